// The part of a vocabulary that one rank of a tensor group holds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace megalith {

/// Consecutive rows of a vocabulary table, or columns of logits, from `first` on. Those from `vocabulary` on
/// pad the table and take part in nothing.
struct VocabularyPart {
  int64_t first = 0;
  int64_t vocabulary = 0;

  /// How many of `held` rows or columns are tokens of the vocabulary.
  int64_t counted(int64_t held) const { return std::clamp<int64_t>(vocabulary - first, 0, held); }
  /// The row or column of a token, or -1 when this part, of which `held` are held, does not have it.
  int64_t find(int64_t token, int64_t held) const {
    return token >= first && token < first + counted(held) ? token - first : -1;
  }
};

}  // namespace megalith
