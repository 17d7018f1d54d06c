// Files: whole reads, read-only memory maps, checked buffered writes, and atomic replacement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// Reads a whole file. Throws InputError that names the path when it is missing, a directory or unreadable.
std::string read_file(const std::filesystem::path& path);

/// Writes `bytes` to a temporary file beside `path`, syncs it and renames it into place, so that a reader
/// sees either the old or the whole new content. Throws Error naming the path (a full disk, for example).
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

/// Makes a rename or a new name in `directory` durable.
void sync_directory(const std::filesystem::path& directory);

/// A read-only memory map of a whole file. An empty file gives an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws InputError naming the path when it cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// Never null, so that an empty file too can be handed to functions that want a pointer.
  const std::byte* data() const { return data_ != nullptr ? data_ : &kNothing; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data(), size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data()), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  static constexpr std::byte kNothing{};

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

/// Holds a lock file while it lives, so that two programs do not write into one directory. The system
/// releases it when a program ends, however it ends.
class FileLock {
 public:
  /// Throws InputError saying that another program uses `what` when the lock is taken.
  FileLock(const std::filesystem::path& path, const std::string& what);
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  int descriptor_;
};

/// A buffered file being written. Every failed write throws Error naming the path and the reason.
class OutputFile {
 public:
  /// Creates or truncates `path`; with `append`, goes on at its end.
  explicit OutputFile(const std::filesystem::path& path, bool append = false);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile(OutputFile&& other) noexcept;
  ~OutputFile();

  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Hands buffered bytes to the operating system.
  void flush();
  /// Flushes and waits until the bytes are on the disk.
  void sync();
  /// Flushes and closes; the destructor closes too but cannot report errors.
  void close();
  uint64_t bytes_written() const { return written_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_through(const void* data, size_t size);

  int descriptor_ = -1;
  uint64_t written_ = 0;
  std::vector<char> buffer_;
  std::filesystem::path path_;
};

}  // namespace megalith
