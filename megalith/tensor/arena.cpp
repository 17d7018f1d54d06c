#include "megalith/tensor/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"

namespace megalith {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// What the limit on this process's address space leaves; nothing without a limit.
std::optional<size_t> address_space_left() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t used = pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

}  // namespace

void Arena::reserve() {
  size_t capacity = capacity_ > 0 ? capacity_ : total_memory_bytes();
  if (const std::optional<size_t> left = address_space_left(); left && capacity_ == 0)
    capacity = std::min(capacity, expected_ > 0 ? expected_ : *left / 4);
  capacity_ = round_up(capacity, kHugePage);
  reserved_ = capacity_ + kHugePage;
  void* mapped =
      ::mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(mapped != MAP_FAILED,
        "cannot reserve {} bytes of address space for {}: {}; a limit on virtual memory (ulimit -v, or that "
        "of a "
        "batch system) must leave as much",
        reserved_, name_, std::strerror(errno));
  base_ = static_cast<std::byte*>(mapped);
  // Positions count from the first huge page, so that the first tensor is 2 MiB-aligned.
  const size_t start = round_up(reinterpret_cast<size_t>(base_), kHugePage) - reinterpret_cast<size_t>(base_);
  if (start > 0) {
    ::munmap(base_, start);
    base_ += start;
    reserved_ -= start;
  }
  ::madvise(base_, capacity_, MADV_HUGEPAGE);  // Without huge pages it is slower, not wrong.
}

void Arena::move_to_file(const std::filesystem::path& directory, size_t capacity) {
  check(base_ == nullptr, "{} is in use and cannot move to a file", name_);
  in_file_ = true;
  capacity_ = reserved_ = round_up(std::max<size_t>(capacity, 1), kHugePage);
  std::string path = (directory / "megalith-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  check_input(file >= 0, "cannot create a file for {} in {}: {}", name_, directory.string(),
              std::strerror(errno));
  ::unlink(path.c_str());
  // All of it at once: a disk that fills up later would end the program without a word.
  const int code = ::posix_fallocate(file, 0, static_cast<off_t>(reserved_));
  if (code != 0) {
    ::close(file);
    fail_input("cannot keep {} bytes of {} in {}: {}", reserved_, name_, directory.string(),
               std::strerror(code));
  }
  void* mapped = ::mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  check(mapped != MAP_FAILED, "cannot map {} bytes for {}: {}", reserved_, name_, std::strerror(error));
  base_ = static_cast<std::byte*>(mapped);
}

namespace {

// Whole pages that a tensor touches, or only those that it fills.
void advise(TensorView view, int advice, bool touched) {
  constexpr size_t kPage = 4096;
  std::byte* const data = static_cast<std::byte*>(view.raw());
  const size_t begin = reinterpret_cast<size_t>(data), end = begin + view.bytes();
  const size_t from = touched ? begin / kPage * kPage : round_up(begin, kPage);
  const size_t to = touched ? round_up(end, kPage) : end / kPage * kPage;
  if (from < to) ::madvise(data + static_cast<std::ptrdiff_t>(from - begin), to - from, advice);
}

}  // namespace

void Arena::prefetch(TensorView view) const {
  if (in_file_ && !view.empty()) advise(view, MADV_WILLNEED, true);
}

void Arena::give_up(TensorView view) const {
  if (in_file_ && !view.empty()) advise(view, MADV_PAGEOUT, false);
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, reserved_);
}

void* Arena::allocate(size_t bytes) {
  if (base_ == nullptr) reserve();
  const size_t rounded = round_up(bytes, kAlignment);
  check(rounded >= bytes && rounded <= capacity_ - used_,
        "out of memory for {}: {} bytes asked with {} of {} in use; use a smaller micro_batch or "
        "sequence_length, or "
        "recompute = \"full\"",
        name_, bytes, used_, capacity_);
  void* pointer = base_ + used_;
  used_ += rounded;
  if (used_ > high_water_) high_water_ = used_;
  return pointer;
}

TensorView Arena::allocate(DType dtype, const Shape& shape) {
  return {allocate(static_cast<size_t>(shape.elements()) * size_of(dtype)), dtype, shape};
}

TensorView Arena::allocate_zero(DType dtype, const Shape& shape) {
  const TensorView view = allocate(dtype, shape);
  // A new file is zero; filling it would only read it in.
  if (!in_file_ || used_ < high_water_) std::memset(view.raw(), 0, view.bytes());
  return view;
}

void Arena::rewind(size_t mark) {
  check(mark <= used_, "{}: rewind to {} beyond {} in use", name_, mark, used_);
  used_ = mark;
}

}  // namespace megalith
