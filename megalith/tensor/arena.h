// Arena: one large region of huge pages from which tensors are cut, stack-like.
//
// Address space is reserved when the first tensor is cut; pages become resident when first used and stay so.
// A page fault is expensive (tens of times the cost of the same bytes on huge pages), so a training step that
// has run once faults no more, and high_water() is what the arena costs in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "megalith/tensor/tensor.h"

namespace megalith {

class Arena {
 public:
  /// `name` appears in errors and reports. `capacity` in bytes; 0 means as much as the machine has memory.
  explicit Arena(std::string name, size_t capacity = 0) : name_(std::move(name)), capacity_(capacity) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// What an arena of capacity 0 reserves in a process whose address space is limited (ulimit -v); without
  /// it, a quarter of what the limit leaves. For an arena from which nothing has been cut.
  void expect(size_t bytes) { expected_ = bytes; }
  /// From now on the arena, from which nothing has been cut, lies in a file of `capacity` bytes in
  /// `directory` instead of in memory: what the system keeps of it in memory it can give up at any time. The
  /// file has no name and goes with the arena. Throws InputError when the disk does not hold it.
  void move_to_file(const std::filesystem::path& directory, size_t capacity);
  bool in_file() const { return in_file_; }

  /// 64-byte aligned, not initialised. Throws Error naming the arena when the capacity is exceeded, or at the
  /// first call when the address space cannot be reserved.
  void* allocate(size_t bytes);
  TensorView allocate(DType dtype, const Shape& shape);
  /// Zero-filled.
  TensorView allocate_zero(DType dtype, const Shape& shape);

  /// Position to give to rewind(), which frees all that was allocated since.
  size_t mark() const { return used_; }
  void rewind(size_t mark);

  /// Of a file: begins to read a tensor that is going to be used, or to write one back that is not. Nothing
  /// without a file.
  void prefetch(TensorView view) const;
  void give_up(TensorView view) const;

  size_t used() const { return used_; }
  /// Most bytes ever in use at once.
  size_t high_water() const { return high_water_; }
  /// Forgets the high-water mark, to measure one step.
  void reset_high_water() { high_water_ = used_; }
  const std::string& name() const { return name_; }

 private:
  void reserve();

  std::string name_;
  std::byte* base_ = nullptr;
  bool in_file_ = false;
  size_t capacity_ = 0, expected_ = 0;
  size_t reserved_ = 0;
  size_t used_ = 0;
  size_t high_water_ = 0;
};

/// Frees at the end of a scope what the scope allocated.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;
  ~ArenaScope() { arena_.rewind(mark_); }

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace megalith
