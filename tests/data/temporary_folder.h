// A folder that vanishes with the test, and small datasets in it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "megalith/formats/indexed_dataset.h"

namespace megalith::testing {

class TemporaryFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith_data_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string write_file(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream file(folder / name, std::ios::binary);
    file << bytes;
    return (folder / name).string();
  }
  std::shared_ptr<const IndexedDataset> write_dataset(const std::string& name,
                                                      const std::vector<std::vector<int32_t>>& documents) {
    IndexedDatasetWriter writer(folder / name, TokenType::int32);
    for (const auto& document : documents) writer.add_document(document);
    writer.finish();
    return std::make_shared<IndexedDataset>(folder / name);
  }
  /// Documents of the given lengths whose tokens are 0, 1, 2, ... through the dataset.
  std::shared_ptr<const IndexedDataset> counting_dataset(const std::string& name,
                                                         const std::vector<int>& lengths, int32_t first = 0) {
    std::vector<std::vector<int32_t>> documents;
    for (const int length : lengths) {
      documents.emplace_back();
      for (int i = 0; i < length; ++i) documents.back().push_back(first++);
    }
    return write_dataset(name, documents);
  }

  std::filesystem::path folder;
};

}  // namespace megalith::testing
