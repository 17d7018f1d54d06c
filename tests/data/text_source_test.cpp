#include "megalith/data/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "megalith/base/error.h"
#include "tests/data/temporary_folder.h"

namespace megalith {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TextSourceTest = testing::TemporaryFolderTest;

std::string gzip(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::vector<std::string> texts(const std::vector<std::string>& paths,
                               const RecordReaderOptions& options = {}) {
  RecordReader reader(find_input_files(paths), options);
  std::vector<std::string> result;
  for (RawRecord record; reader.next(record);) result.push_back(record.text);
  return result;
}

TEST_F(TextSourceTest, PlainFilesAreOneDocument) {
  EXPECT_THAT(texts({write_file("a.txt", "one\r\ntwo\n"), write_file("b", "three")}),
              ElementsAre("one\r\ntwo\n", "three"));
  EXPECT_THAT(texts({write_file("bom.txt", "\xEF\xBB\xBFx")}), ElementsAre("x"));
  EXPECT_THAT(texts({write_file("empty.txt", "")}), ElementsAre(""));
}

TEST_F(TextSourceTest, SeparatorEndsDocuments) {
  const std::string path = write_file("a.txt", "one\n<END>\n\ntwo\nthree\n<END>\r\n<END>\nfour");
  RecordReader reader(find_input_files({path}), {.document_separator = "<END>"});
  std::vector<std::pair<uint64_t, std::string>> found;
  for (RawRecord record; reader.next(record);) found.emplace_back(record.line, record.text);
  EXPECT_THAT(found,
              ElementsAre(std::pair(1u, "one\n"), std::pair(3u, "\ntwo\nthree\n"), std::pair(8u, "four\n")));
}

TEST_F(TextSourceTest, LinesOfJson) {
  const std::string path = write_file("a.jsonl", "\xEF\xBB\xBF{\"a\":1}\r\n\n{\"b\":2}\n{\"c\":3}");
  RecordReader reader(find_input_files({path}), {});
  std::vector<std::pair<uint64_t, std::string>> found;
  for (RawRecord record; reader.next(record);) found.emplace_back(record.line, record.text);
  EXPECT_THAT(found, ElementsAre(std::pair(1u, "{\"a\":1}"), std::pair(2u, ""), std::pair(3u, "{\"b\":2}"),
                                 std::pair(4u, "{\"c\":3}")));
}

TEST_F(TextSourceTest, Compressed) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "line " + std::to_string(i * 7919) + "\n";
  EXPECT_EQ(texts({write_file("a.txt.gz", gzip(text))})[0], text);
  EXPECT_EQ(texts({write_file("a.txt.zst", zstd(text))})[0], text);
  EXPECT_EQ(texts({write_file("members.gz", gzip(text) + gzip("end") + std::string(512, '\0'))})[0],
            text + "end");
  EXPECT_EQ(texts({write_file("frames.zst", zstd(text) + zstd("end"))})[0], text + "end");
  EXPECT_EQ(texts({write_file("lines.jsonl.gz", gzip("{}\n{}\n"))}).size(), 2u);
  for (const std::string& whole : {gzip(text), zstd(text)}) {
    for (const size_t size : {whole.size() - 1, whole.size() / 2, size_t{10}}) {
      const std::string path = write_file("cut", whole.substr(0, size));
      try {
        texts({path});
        ADD_FAILURE() << "a cut file was read";
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), HasSubstr(path));
      }
    }
    std::string damaged = whole;
    damaged[whole.size() / 2] = static_cast<char>(~damaged[whole.size() / 2]);
    damaged[whole.size() / 2 + 1] = static_cast<char>(~damaged[whole.size() / 2 + 1]);
    EXPECT_THROW(texts({write_file("damaged", damaged)}), InputError);
  }
}

TEST_F(TextSourceTest, Directories) {
  write_file("tree/b.txt", "2");
  write_file("tree/a/z.md", "1");
  write_file("tree/c.png", "no");
  write_file("tree/c.jsonl", "3");
  EXPECT_THAT(texts({(folder / "tree").string()}), ElementsAre("1", "2", "3"));
  std::filesystem::create_directory(folder / "nothing");
  EXPECT_THROW(find_input_files({(folder / "nothing").string()}), InputError);
  EXPECT_THROW(find_input_files({(folder / "missing").string()}), InputError);
}

TEST_F(TextSourceTest, PartsJoinToTheWhole) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += i % 9 == 0 ? "word\n" : "some words ";
  const auto parts = texts({write_file("a.txt", text)}, {.document_separator = "", .part_bytes = 100000});
  EXPECT_GT(parts.size(), 15u);
  std::string joined;
  for (const auto& part : parts) joined += part;
  EXPECT_EQ(joined, text);
  // Without a place to cut, the file stays whole.
  const std::string solid(1000000, 'x');
  EXPECT_THAT(texts({write_file("b.txt", solid)}, {.document_separator = "", .part_bytes = 100000}),
              ElementsAre(solid));
}

TEST_F(TextSourceTest, RecordsAreBounded) {
  const RecordReaderOptions options{.maximum_record_bytes = 1000};
  EXPECT_THROW(texts({write_file("a.jsonl", std::string(2000000, 'x'))}, options), InputError);
}

}  // namespace
}  // namespace megalith
