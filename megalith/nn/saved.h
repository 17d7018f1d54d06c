// Saved: what the forward pass leaves for the backward pass, as a stack.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "megalith/tensor/arena.h"

namespace megalith {

/// The activations of one micro-batch. A layer's forward() pushes what its backward() pops, in reverse order.
/// Memory comes from arenas of its own; what has been popped stays readable until the next push or release().
class Saved {
 public:
  /// What recompute drops at once comes from `transient`, which several micro-batches can share, everything
  /// else from `kept`. They may be the same.
  Saved(Arena& kept, Arena& transient) : arenas_{&kept, &transient} {}
  explicit Saved(Arena& arena) : Saved(arena, arena) {}

  /// For its life, when `on`, pushes go to the transient arena.
  class Transient {
   public:
    Transient(Saved& saved, bool on) : saved_(saved), before_(saved.current_) {
      if (on && saved.arenas_[0] != saved.arenas_[1]) saved.current_ = 1;
    }
    Transient(const Transient&) = delete;
    Transient& operator=(const Transient&) = delete;
    ~Transient() { saved_.current_ = before_; }

   private:
    Saved& saved_;
    size_t before_;
  };

  /// Allocates a tensor on top of the stack.
  TensorView push(DType dtype, const Shape& shape) {
    release();
    const size_t before = arenas_[current_]->mark();
    const TensorView view = arenas_[current_]->allocate(dtype, shape);
    entries_.push_back({view, current_, before});
    return view;
  }
  /// Remembers a tensor that something below on the stack, or outside of it, owns.
  void keep(TensorView view) {
    release();
    entries_.push_back({view, current_, arenas_[current_]->mark()});
  }
  TensorView pop() {
    check(!entries_.empty(), "backward pass without its forward pass: nothing is saved");
    const Entry entry = entries_.back();
    entries_.pop_back();
    pending_[entry.arena] = entry.before;
    return entry.view;
  }
  /// Gives back the memory of what has been popped.
  void release() {
    for (size_t i = 0; i < arenas_.size(); ++i) {
      if (pending_[i]) arenas_[i]->rewind(*pending_[i]);
      pending_[i].reset();
    }
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
    size_t arena;
    size_t before;
  };
  std::array<Arena*, 2> arenas_;
  size_t current_ = 0;
  std::vector<Entry> entries_;
  std::array<std::optional<size_t>, 2> pending_;
};

}  // namespace megalith
