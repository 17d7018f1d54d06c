#include "megalith/formats/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "megalith/base/error.h"

namespace megalith {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

class IndexedDatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "megalith_indexed_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  static std::filesystem::path golden(const std::string& name) {
    const char* root = std::getenv("MEGALITH_TEST_DATA");
    return std::filesystem::path(root == nullptr ? "tests" : root) / "formats" / "golden" / name;
  }
  void expect_equal_files(const std::filesystem::path& prefix, const std::string& name) {
    EXPECT_EQ(read_file(bin_path(prefix)), read_file(bin_path(golden(name)))) << name;
    EXPECT_EQ(read_file(idx_path(prefix)), read_file(idx_path(golden(name)))) << name;
  }
  void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary);
    file << bytes;
  }
  std::filesystem::path write(const std::string& name, const std::vector<std::vector<Tokens>>& documents,
                              TokenType type = TokenType::int32) {
    IndexedDatasetWriter writer(folder / name, type);
    for (const auto& document : documents) {
      for (const Tokens& sequence : document) writer.add_sequence(sequence);
      writer.end_document();
    }
    writer.finish();
    return folder / name;
  }
  std::vector<uint64_t> document_indices(const std::filesystem::path& prefix) {
    const IndexedDataset dataset(prefix);
    std::vector<uint64_t> indices;
    for (uint64_t d = 0; d <= dataset.documents(); ++d) indices.push_back(dataset.document_index(d));
    EXPECT_EQ(indices.back(), dataset.sequences());
    return indices;
  }

  std::filesystem::path folder;
};

const std::vector<std::vector<Tokens>> kGolden = {
    {{1, 2, 3, 50256, 0}}, {{10, 20, 30}, {65499, 300, 7, 50256}}, {{42}}};

TEST_F(IndexedDatasetTest, WritesTheBytesOfMegatron) {
  expect_equal_files(write("u16", kGolden, TokenType::uint16), "u16");
  expect_equal_files(write("i32", kGolden), "i32");
  expect_equal_files(write("adddoc", kGolden), "i32_adddoc");
  expect_equal_files(write("empty_document", {{{5, 6}}, {}, {{7}}}), "i32_emptydoc");
  IndexedDatasetWriter merged(folder / "merged", TokenType::int32);
  merged.add_index(golden("i32"));
  merged.add_index(golden("i32_emptydoc"));
  merged.finish();
  expect_equal_files(folder / "merged", "i32_merged");
  EXPECT_FALSE(std::filesystem::exists(folder / "merged.bin.partial"));
  EXPECT_FALSE(std::filesystem::exists(folder / "merged.idx.partial"));
}

TEST_F(IndexedDatasetTest, ReadsWhatMegatronWrote) {
  for (const char* name : {"u16", "i32", "u16_modes"}) {
    const IndexedDataset dataset(golden(name));
    EXPECT_EQ(dataset.documents(), 3u);
    EXPECT_EQ(dataset.sequences(), 4u);
    EXPECT_EQ(dataset.tokens(), 13u);
    EXPECT_THAT(dataset.sequence(2), ElementsAre(65499, 300, 7, 50256));
    EXPECT_THAT(dataset.document(1), ElementsAre(10, 20, 30, 65499, 300, 7, 50256));
    Tokens part(3);
    dataset.read_document(1, 2, part);
    EXPECT_THAT(part, ElementsAre(30, 65499, 300));
    EXPECT_THROW(dataset.read_document(1, 5, part), Error);
    EXPECT_THROW(dataset.read_document(3, 0, part), Error);
    EXPECT_THROW(dataset.read_sequence(0, ~uint64_t{0}, part), Error);
  }
  const IndexedDataset modes(golden("u16_modes"));
  ASSERT_TRUE(modes.has_modes());
  EXPECT_EQ(modes.sequence_mode(1), 1);
  const IndexedDataset empty_document(golden("i32_emptydoc"));
  EXPECT_EQ(empty_document.document_length(1), 0u);
  EXPECT_TRUE(empty_document.document(1).empty());
}

TEST_F(IndexedDatasetTest, TypeFollowsTheVocabulary) {
  EXPECT_EQ(optimal_token_type(65499), TokenType::uint16);
  EXPECT_EQ(optimal_token_type(65500), TokenType::int32);
}

TEST_F(IndexedDatasetTest, IdsOutOfRangeAreErrors) {
  IndexedDatasetWriter narrow(folder / "narrow", TokenType::uint16);
  narrow.add_sequence(Tokens{0, 65535});
  EXPECT_THROW(narrow.add_sequence(Tokens{1, 65536}), InputError);
  EXPECT_THROW(narrow.add_sequence(Tokens{-1}), InputError);
  IndexedDatasetWriter wide(folder / "wide", TokenType::int32);
  EXPECT_THROW(wide.add_sequence(Tokens{-1}), InputError);
}

TEST_F(IndexedDatasetTest, AnUnfinishedWriterLeavesNothing) {
  {
    IndexedDatasetWriter writer(folder / "gone", TokenType::int32);
    writer.add_document(Tokens{1, 2});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  IndexedDatasetWriter writer(folder / "open", TokenType::int32);
  writer.add_sequence(Tokens{1});
  EXPECT_THROW(writer.finish(), Error) << "the document is not ended";
}

TEST_F(IndexedDatasetTest, MergingKeepsDocuments) {
  const auto a = write("a", {{{1}}, {{2, 3}, {4}}});
  const auto b = write("b", {{{5}, {6}}});
  const auto none = write("none", {});
  EXPECT_EQ(IndexedDataset(none).documents(), 0u);
  EXPECT_EQ(IndexedDataset(none).tokens(), 0u);
  const auto merge = [&](const std::string& name, const std::vector<std::filesystem::path>& inputs) {
    IndexedDatasetWriter writer(folder / name, TokenType::int32);
    for (const auto& input : inputs) writer.add_index(input);
    writer.finish();
    return folder / name;
  };
  EXPECT_THAT(document_indices(merge("ab", {a, b})), ElementsAre(0, 1, 3, 5));
  EXPECT_THAT(document_indices(merge("ba", {b, a})), ElementsAre(0, 2, 3, 5));
  const auto with_none = merge("a_none", {none, a, none});
  EXPECT_EQ(read_file(idx_path(with_none)), read_file(idx_path(a)));
  EXPECT_EQ(read_file(bin_path(with_none)), read_file(bin_path(a)));
  const IndexedDataset merged(folder / "ba");
  EXPECT_THAT(merged.document(2), ElementsAre(2, 3, 4));
  IndexedDatasetWriter other_type(folder / "other", TokenType::uint16);
  EXPECT_THROW(other_type.add_index(a), InputError);
}

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string index_bytes(uint8_t code, const std::vector<int32_t>& lengths,
                        const std::vector<int64_t>& pointers, const std::vector<int64_t>& documents) {
  std::string bytes("MMIDIDX\0\0", 9);
  put<uint64_t>(bytes, 1);
  put<uint8_t>(bytes, code);
  put<uint64_t>(bytes, lengths.size());
  put<uint64_t>(bytes, documents.size());
  for (const auto value : lengths) put(bytes, value);
  for (const auto value : pointers) put(bytes, value);
  for (const auto value : documents) put(bytes, value);
  return bytes;
}

TEST_F(IndexedDatasetTest, OffsetsBeyond32Bits) {
  // Four documents of 600,000,000 uint16 tokens each in a sparse file.
  const std::vector<int32_t> lengths(4, 600'000'000);
  const std::vector<int64_t> pointers = {0, 1'200'000'000, 2'400'000'000, 3'600'000'000};
  write_bytes(folder / "big.idx", index_bytes(8, lengths, pointers, {0, 1, 2, 3, 4}));
  {
    std::ofstream bin(folder / "big.bin", std::ios::binary);
    for (const int64_t document : {2, 3}) {
      bin.seekp(document * 1'200'000'000 + 10);
      const uint16_t token = static_cast<uint16_t>(1000 + document);
      bin.write(reinterpret_cast<const char*>(&token), 2);
    }
  }
  std::filesystem::resize_file(folder / "big.bin", 4'800'000'000);
  const IndexedDataset dataset(folder / "big");
  Tokens token(1);
  dataset.read_document(3, 5, token);
  EXPECT_EQ(token[0], 1003);
  dataset.read_document(2, 5, token);
  EXPECT_EQ(token[0], 1002);
  dataset.read_document(3, 599'999'999, token);
  EXPECT_EQ(token[0], 0);
  EXPECT_EQ(dataset.tokens(), 2'400'000'000u);
}

TEST_F(IndexedDatasetTest, MergedOffsetsGoOnBeyond32Bits) {
  // The index of such a merge, without writing gigabytes: pointers follow from lengths alone.
  const std::vector<int32_t> lengths(8, 600'000'000);
  std::vector<int64_t> pointers;
  for (int64_t i = 0; i < 8; ++i) pointers.push_back(i * 1'200'000'000);
  write_bytes(folder / "merged.idx", index_bytes(8, lengths, pointers, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
  write_bytes(folder / "merged.bin", "");
  std::filesystem::resize_file(folder / "merged.bin", 9'600'000'000);
  EXPECT_EQ(IndexedDataset(folder / "merged").sequence_pointer(4), 4'800'000'000u);
}

TEST_F(IndexedDatasetTest, DamageIsNamed) {
  const std::string good = index_bytes(4, {2, 1}, {0, 8}, {0, 1, 2});
  const std::string content(12, '\1');
  const auto error = [&](const std::string& idx, const std::string& bin) -> std::string {
    write_bytes(folder / "d.idx", idx);
    write_bytes(folder / "d.bin", bin);
    try {
      const IndexedDataset dataset(folder / "d");
    } catch (const InputError& problem) {
      return problem.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(good, content), "no error");
  EXPECT_THAT(error("", content), HasSubstr("header"));
  EXPECT_THAT(error("X" + good.substr(1), content), HasSubstr("magic"));
  std::string changed = good;
  changed[9] = 2;
  EXPECT_THAT(error(changed, content), HasSubstr("version"));
  EXPECT_THAT(error(index_bytes(7, {2, 1}, {0, 8}, {0, 1, 2}), content), HasSubstr("type code"));
  EXPECT_THAT(error(good.substr(0, good.size() - 1), content), HasSubstr("document count"));
  EXPECT_THAT(error(good + "abc", content), HasSubstr("size"));
  EXPECT_THAT(error(good, content + "x"), HasSubstr("not whole"));
  EXPECT_THAT(error(index_bytes(4, {-1, 1}, {0, 8}, {0, 1, 2}), content), HasSubstr("sequence length 0"));
  EXPECT_THAT(error(index_bytes(4, {2, 1}, {0, -4}, {0, 1, 2}), content), HasSubstr("sequence pointer 1"));
  EXPECT_THAT(error(index_bytes(4, {2, 1}, {0, 7}, {0, 1, 2}), content), HasSubstr("sequence pointer 1"));
  EXPECT_THAT(error(index_bytes(4, {2, 2}, {0, 8}, {0, 1, 2}), content), HasSubstr("sequence pointer 1"));
  EXPECT_THAT(error(index_bytes(4, {2, 1}, {0, 8}, {1, 1, 2}), content), HasSubstr("document index 0"));
  EXPECT_THAT(error(index_bytes(4, {2, 1}, {0, 8}, {0, 2, 1, 2}), content), HasSubstr("document index 2"));
  EXPECT_THAT(error(index_bytes(4, {2, 1}, {0, 8}, {0, 1}), content), HasSubstr("document index 1"));
  EXPECT_THAT(error(index_bytes(4, {2, 1}, {0, 8}, {0, 3, 2}), content), HasSubstr("document index 1"));
  EXPECT_THAT(error(index_bytes(4, {1, 1}, {0, 8}, {0, 2}), content), HasSubstr("does not follow"));
  changed = good;
  std::memset(changed.data() + 18, 0xff, 8);
  EXPECT_THAT(error(changed, content), HasSubstr("sequence count"));
  EXPECT_THROW(IndexedDataset(folder / "missing"), InputError);
}

TEST_F(IndexedDatasetTest, MutatedIndexesNeverCrash) {
  const std::string good = index_bytes(8, {2, 1, 0, 3}, {0, 4, 6, 6}, {0, 1, 1, 3, 4});
  std::mt19937 random(21);
  int opened = 0, refused = 0;
  write_bytes(folder / "m.bin", std::string(12, '\2'));
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (size_t edits = 1 + random() % 2; edits > 0; --edits) {
      const size_t at = random() % bytes.size();
      if (random() % 4 == 0) {
        bytes.resize(at + 1);
      } else {
        bytes[at] = static_cast<char>(random() % 3 == 0 ? random() : random() % 4);
      }
    }
    write_bytes(folder / "m.idx", bytes);
    try {
      const IndexedDataset dataset(folder / "m");
      for (uint64_t d = 0; d < dataset.documents(); ++d) dataset.document(d);
      for (uint64_t s = 0; s < dataset.sequences(); ++s) dataset.sequence(s);
      ++opened;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr((folder / "m").string()));
      ++refused;
    }
  }
  EXPECT_GT(opened, 50);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace megalith
