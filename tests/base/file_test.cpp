#include "megalith/base/file.h"

#include <gtest/gtest.h>

#include "megalith/base/error.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  const fs::path directory = fs::path(::testing::TempDir()) / "megalith-base-test";
  fs::create_directories(directory);
  return directory / name;
}

TEST(File, AtomicWriteReplacesAndLeavesNothingElse) {
  const fs::path path = scratch("atomic.txt");
  write_file_atomic(path, "first");
  write_file_atomic(path, "second");
  EXPECT_EQ(read_file(path), "second");
  EXPECT_FALSE(fs::exists(path.string() + ".partial"));
}

TEST(File, ErrorsNameThePath) {
  EXPECT_THROW(read_file(scratch("missing")), InputError);
  EXPECT_THROW(read_file(scratch("").parent_path()), InputError);
  EXPECT_THROW(MappedFile(scratch("missing")), InputError);
  EXPECT_THROW(OutputFile(scratch("no/such/directory/file")), Error);
  try {
    read_file(scratch("missing"));
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("missing"), std::string::npos);
  }
}

TEST(File, FullDiskIsAnErrorThatNamesTheFile) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  OutputFile file("/dev/full");
  file.write("text");
  try {
    file.close();
    FAIL() << "writing to a full disk succeeded";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "cannot write /dev/full: No space left on device");
  }
}

TEST(File, BufferedWritesOfAllSizesArriveInOrder) {
  const fs::path path = scratch("sizes.bin");
  std::string expected;
  OutputFile file(path);
  for (const size_t size :
       {size_t{1}, size_t{1} << 19, (size_t{1} << 20) - 1, size_t{1} << 20, size_t{3} << 20, size_t{7}}) {
    const std::string block(size, static_cast<char>('a' + size % 26));
    file.write(block);
    expected += block;
  }
  EXPECT_EQ(file.bytes_written(), expected.size());
  file.close();
  EXPECT_EQ(read_file(path), expected);
  EXPECT_EQ(MappedFile(path).text(), expected);
}

TEST(File, EmptyFileMapsToNothing) {
  const fs::path path = scratch("empty");
  write_file_atomic(path, "");
  EXPECT_EQ(MappedFile(path).size(), 0u);
  EXPECT_NE(MappedFile(path).text().data(), nullptr);
}

}  // namespace
}  // namespace megalith
