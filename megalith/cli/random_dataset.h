// A dataset of random tokens, for benchmarks.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/random.h"
#include "megalith/formats/indexed_dataset.h"

namespace megalith {

/// In a directory of its own, removed at the end.
class RandomDataset {
 public:
  RandomDataset(int64_t vocabulary, int64_t tokens)
      : directory_(std::filesystem::temp_directory_path() / fmt::format("megalith-bench-{}", ::getpid())) {
    std::filesystem::create_directories(directory_);
    IndexedDatasetWriter writer(prefix(), optimal_token_type(vocabulary));
    RandomSequence random(RandomStream(1, RandomUse::sampling, 0));
    std::vector<int32_t> document(static_cast<size_t>(tokens));
    for (int32_t& token : document)
      token = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary)));
    writer.add_document(document);
    writer.finish();
  }
  RandomDataset(const RandomDataset&) = delete;
  RandomDataset& operator=(const RandomDataset&) = delete;
  ~RandomDataset() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  std::string prefix() const { return (directory_ / "random").string(); }

 private:
  std::filesystem::path directory_;
};

}  // namespace megalith
