// A dataset that is easily learnt: documents whose tokens count up modulo the vocabulary, from random starts.
#pragma once

#include <filesystem>
#include <vector>

#include "megalith/base/random.h"
#include "megalith/formats/indexed_dataset.h"

namespace megalith {

inline void write_counting_dataset(const std::filesystem::path& prefix, int64_t documents, int64_t length,
                                   int64_t vocabulary) {
  IndexedDatasetWriter writer(prefix, TokenType::uint16);
  RandomSequence random(RandomStream(5, RandomUse::shuffle, 1));
  for (int64_t d = 0; d < documents; ++d) {
    std::vector<int32_t> tokens;
    int64_t token = static_cast<int64_t>(random.below(static_cast<uint64_t>(vocabulary)));
    for (int64_t t = 0; t < length; ++t) tokens.push_back(static_cast<int32_t>(token++ % vocabulary));
    writer.add_document(tokens);
  }
  writer.finish();
}

}  // namespace megalith
