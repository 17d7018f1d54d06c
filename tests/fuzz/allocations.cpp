#include "tests/fuzz/allocations.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

// A size beside each block would change the alignment; the allocator knows it anyway.
std::atomic<int64_t> held{0}, peak{0}, begin{0};
std::atomic<int64_t> limit{std::numeric_limits<int64_t>::max()};

void* take(size_t bytes, size_t alignment) {
  const int64_t before = held.load(std::memory_order_relaxed) - begin.load(std::memory_order_relaxed);
  const int64_t most = limit.load(std::memory_order_relaxed);
  if (bytes > static_cast<size_t>(most) || before > most - static_cast<int64_t>(bytes)) {
    throw std::bad_alloc();
  }
  void* pointer = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    pointer = std::malloc(bytes);
  } else if (::posix_memalign(&pointer, alignment, bytes) != 0) {
    pointer = nullptr;
  }
  if (pointer == nullptr) throw std::bad_alloc();
  const int64_t now =
      held.fetch_add(static_cast<int64_t>(::malloc_usable_size(pointer)), std::memory_order_relaxed) +
      static_cast<int64_t>(::malloc_usable_size(pointer));
  if (now > peak.load(std::memory_order_relaxed)) peak.store(now, std::memory_order_relaxed);
  return pointer;
}

void* take_or_null(size_t bytes) noexcept {
  try {
    return take(bytes, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void give(void* pointer) {
  if (pointer == nullptr) return;
  held.fetch_sub(static_cast<int64_t>(::malloc_usable_size(pointer)), std::memory_order_relaxed);
  std::free(pointer);
}

}  // namespace

// Every form: a sanitizer has its own of those that are left out, which do not fit these.
void* operator new(size_t bytes) {
  return take(bytes, 1);
}
void* operator new[](size_t bytes) {
  return take(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return take_or_null(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return take_or_null(bytes);
}
void operator delete(void* pointer) noexcept {
  give(pointer);
}
void operator delete[](void* pointer) noexcept {
  give(pointer);
}
void operator delete(void* pointer, size_t) noexcept {
  give(pointer);
}
void operator delete[](void* pointer, size_t) noexcept {
  give(pointer);
}
void operator delete(void* pointer, std::align_val_t) noexcept {
  give(pointer);
}
void operator delete[](void* pointer, std::align_val_t) noexcept {
  give(pointer);
}
void operator delete(void* pointer, size_t, std::align_val_t) noexcept {
  give(pointer);
}
void operator delete[](void* pointer, size_t, std::align_val_t) noexcept {
  give(pointer);
}
void operator delete(void* pointer, const std::nothrow_t&) noexcept {
  give(pointer);
}
void operator delete[](void* pointer, const std::nothrow_t&) noexcept {
  give(pointer);
}

namespace megalith::fuzz {

void begin_counting(size_t most) {
  begin = held.load();
  peak = held.load();
  limit = static_cast<int64_t>(most);
}

size_t stop_counting() {
  limit = std::numeric_limits<int64_t>::max();
  return static_cast<size_t>(peak.load() - begin.load());
}

}  // namespace megalith::fuzz
