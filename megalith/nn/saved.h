// Saved: what the forward pass leaves for the backward pass, as a stack.
#pragma once

#include <vector>

#include "megalith/tensor/arena.h"

namespace megalith {

/// The activations of one micro-batch. A layer's forward() pushes what its backward() pops, in reverse order.
/// Memory comes from an arena of its own; what has been popped stays readable until the next push or
/// release().
class Saved {
 public:
  explicit Saved(Arena& arena) : arena_(arena) {}

  /// Allocates a tensor on top of the stack.
  TensorView push(DType dtype, const Shape& shape) {
    release();
    const size_t before = arena_.mark();
    const TensorView view = arena_.allocate(dtype, shape);
    entries_.push_back({view, before});
    return view;
  }
  /// Remembers a tensor that something below on the stack, or outside of it, owns.
  void keep(TensorView view) {
    release();
    entries_.push_back({view, arena_.mark()});
  }
  TensorView pop() {
    check(!entries_.empty(), "backward pass without its forward pass: nothing is saved");
    const Entry entry = entries_.back();
    entries_.pop_back();
    pending_ = entry.before;
    has_pending_ = true;
    return entry.view;
  }
  /// Gives back the memory of what has been popped.
  void release() {
    if (has_pending_) arena_.rewind(pending_);
    has_pending_ = false;
  }

  size_t size() const { return entries_.size(); }
  /// Drops everything above `size` entries: what recompute does after a forward pass.
  void truncate(size_t size) {
    while (entries_.size() > size) pop();
    release();
  }

 private:
  struct Entry {
    TensorView view;
    size_t before;
  };
  Arena& arena_;
  std::vector<Entry> entries_;
  size_t pending_ = 0;
  bool has_pending_ = false;
};

}  // namespace megalith
