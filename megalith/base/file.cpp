#include "megalith/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "megalith/base/error.h"

namespace megalith {

namespace {

constexpr size_t kBufferBytes = 1 << 20;

int open_for_reading(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  check_input(descriptor >= 0, "cannot open {}: {}", path.string(), std::strerror(errno));
  return descriptor;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const int descriptor = open_for_reading(path);
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    fail_input("cannot read {}: it is a directory", path.string());
  }
  std::string content;
  std::vector<char> buffer(kBufferBytes);
  while (true) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int reason = errno;
      ::close(descriptor);
      fail_input("cannot read {}: {}", path.string(), std::strerror(reason));
    }
    if (got == 0) break;
    content.append(buffer.data(), static_cast<size_t>(got));
  }
  ::close(descriptor);
  return content;
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path temporary = path;
  temporary += ".partial";
  try {
    OutputFile file(temporary);
    file.write(bytes);
    file.sync();
    file.close();
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  check(::rename(temporary.c_str(), path.c_str()) == 0, "cannot rename {} to {}: {}", temporary.string(),
        path.string(), std::strerror(errno));
  sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);  // Some file systems refuse this for directories; the rename itself has succeeded.
  ::close(descriptor);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int descriptor = open_for_reading(path);
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail_input("cannot map {}: it is not a regular file", path.string());
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    const int reason = errno;
    ::close(descriptor);
    check_input(mapped != MAP_FAILED, "cannot map {}: {}", path.string(), std::strerror(reason));
    data_ = static_cast<std::byte*>(mapped);
  } else {
    ::close(descriptor);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

FileLock::FileLock(const std::filesystem::path& path, const std::string& what)
    : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  check(descriptor_ >= 0, "cannot create {}: {}", path.string(), std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  ::close(descriptor_);
  check_input(reason != EWOULDBLOCK, "{} is in use by another program", what);
  fail("cannot lock {}: {}", path.string(), std::strerror(reason));
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

OutputFile::OutputFile(const std::filesystem::path& path, bool append) : path_(path) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC);
  descriptor_ = ::open(path.c_str(), flags, 0644);
  check(descriptor_ >= 0, "cannot create {}: {}", path.string(), std::strerror(errno));
  buffer_.reserve(kBufferBytes);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      written_(other.written_),
      buffer_(std::move(other.buffer_)),
      path_(std::move(other.path_)) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  try {
    flush();
  } catch (const Error&) {  // Callers that care call close().
  }
  ::close(descriptor_);
}

void OutputFile::write(const void* data, size_t size) {
  if (buffer_.size() + size > kBufferBytes) flush();
  if (size >= kBufferBytes) {
    write_through(data, size);
  } else {
    const char* bytes = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), bytes, bytes + size);
  }
  written_ += size;
}

void OutputFile::write_through(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t done = ::write(descriptor_, bytes, size);
    if (done < 0 && errno == EINTR) continue;
    check(done >= 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
    bytes += done;
    size -= static_cast<size_t>(done);
  }
}

void OutputFile::flush() {
  // Emptied before the write, so that a failed write is reported once and not again by the destructor.
  std::vector<char> pending;
  pending.swap(buffer_);
  write_through(pending.data(), pending.size());
  pending.clear();
  buffer_.swap(pending);
}

void OutputFile::sync() {
  flush();
  check(::fsync(descriptor_) == 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

void OutputFile::close() {
  flush();
  const int descriptor = std::exchange(descriptor_, -1);
  check(::close(descriptor) == 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

}  // namespace megalith
