// Vocabulary tables [V,C] (token embedding, output projection) and the bias [V] of the output projection, cut
// by tokens over tensor-parallel ranks.
#pragma once

#include <string>

#include "megalith/nn/parameter.h"
#include "megalith/nn/tensor_parallel.h"
#include "megalith/ops/vocabulary_part.h"

namespace megalith {

/// The tokens of this rank: the padded vocabulary is rounded up to a multiple of the ranks, and each holds an
/// equal, consecutive part of it. `rows` is what it holds, padding included.
struct VocabularyShare {
  VocabularyPart part;
  int64_t rows = 0;

  VocabularyShare(int64_t vocabulary, int64_t padded_vocabulary, const TensorParallel& tensor);
};

/// The table's part of this rank; padding rows stay zero and are never stored.
Parameter make_vocabulary_table(const std::string& name, const VocabularyShare& share, int64_t hidden,
                                float standard_deviation, const TensorParallel& tensor);
/// The same of a bias, which starts at zero.
Parameter make_vocabulary_bias(const std::string& name, const VocabularyShare& share,
                               const TensorParallel& tensor);

}  // namespace megalith
