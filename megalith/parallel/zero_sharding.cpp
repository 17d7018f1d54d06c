#include "megalith/parallel/zero_sharding.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/ops/elementwise.h"

namespace megalith {

ZeroSharding::Plan ZeroSharding::plan(const std::vector<UnitRange>& units, const Options& options,
                                      bool values) {
  Plan plan;
  plan.of_unit.resize(units.size());
  const size_t head = units.size() - 1;
  std::vector<size_t> blocks, tables;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const int64_t size = units[unit].elements.size();
    const bool persistent = values && size < options.persistent_elements;
    const bool block = unit > 0 && unit < head;
    if (persistent || (!block && options.tied)) {
      plan.of_unit[unit] = {plan.sizes.size()};
      plan.sizes.push_back(size);
      continue;
    }
    std::vector<size_t>& shared = block ? blocks : tables;
    if (shared.empty()) {
      for (int buffer = 0; buffer < (block ? 2 : 1); ++buffer) {
        shared.push_back(plan.sizes.size());
        plan.sizes.push_back(0);
      }
    }
    for (const size_t buffer : shared) plan.sizes[buffer] = std::max(plan.sizes[buffer], size);
    plan.of_unit[unit] = shared;
  }
  return plan;
}

uint64_t ZeroSharding::buffer_bytes(const std::vector<UnitRange>& units, const Options& options,
                                    size_t element) {
  uint64_t bytes = 0;
  for (const int64_t size : plan(units, options, false).sizes) bytes += static_cast<uint64_t>(size) * 4;
  if (options.stage < 3) return bytes;
  for (const int64_t size : plan(units, options, true).sizes) bytes += static_cast<uint64_t>(size) * element;
  return bytes;
}

ZeroSharding::ZeroSharding(const ExecContext& exec, ParameterBuffers& parameters,
                           std::vector<UnitRange> units, const TensorParallel& tensor, const Options& options,
                           Arena& arena, CommunicationQueue& queue)
    : exec_(exec),
      parameters_(parameters),
      units_(std::move(units)),
      tensor_(tensor),
      options_(options),
      queue_(queue),
      value_plan_(plan(units_, options, true)),
      gradient_plan_(plan(units_, options, false)) {
  for (const int64_t size : gradient_plan_.sizes)
    gradients_.push_back({arena.allocate_zero(DType::f32, {size}), -1, 0});
  if (options_.stage < 3) return;
  for (const int64_t size : value_plan_.sizes)
    values_.push_back({arena.allocate_zero(parameters.values().dtype(), {size}), -1, 0});
}

void ZeroSharding::weights_changed() {
  for (Buffer& buffer : values_) buffer.unit = -1;
}

ZeroSharding::Buffer& ZeroSharding::gather(int64_t unit, int64_t in_use, int64_t then) {
  Buffer* chosen = nullptr;
  for (const size_t index : value_plan_.of_unit[static_cast<size_t>(unit)]) {
    Buffer& buffer = values_[index];
    if (buffer.unit == unit) return buffer;
    if (chosen == nullptr || chosen->unit == in_use) chosen = &buffer;
  }
  const PartRange elements = units_[static_cast<size_t>(unit)].elements;
  const PartRange ahead =
      then < 0 || then > head() ? PartRange() : units_[static_cast<size_t>(then)].elements;
  const TensorView data = chosen->data;
  chosen->unit = unit;
  chosen->ticket = queue_.submit("gather weights", [this, elements, ahead, data](Communicator& group) {
    parameters_.prefetch_values(intersection(ahead, parameters_.own_part()));
    for (int owner = 0; owner < group.size(); ++owner) {
      const PartRange part = intersection(elements, parameters_.part(owner));
      if (part.size() == 0) continue;
      const TensorView target = data.slice(part.begin - elements.begin, part.end - elements.begin);
      if (owner == group.rank()) {
        const TensorView own = parameters_.values(part.begin, part.end);
        std::memcpy(target.raw(), own.raw(), own.bytes());
        parameters_.give_up_values(part);
      }
      group.broadcast(target, owner);
    }
  });
  return *chosen;
}

void ZeroSharding::acquire(int64_t unit, int64_t next) {
  if (options_.stage < 3) return;
  const Buffer& buffer = gather(unit, -1, next);
  queue_.wait(buffer.ticket);
  const UnitRange& range = units_[static_cast<size_t>(unit)];
  for (size_t i = range.first_slot; i < range.end_slot; ++i) {
    const ParameterSlot& slot = parameters_.slots()[i];
    const int64_t at = slot.offset - range.elements.begin;
    slot.parameter->value =
        buffer.data.slice(at, at + slot.elements).reshape(slot.parameter->allocated_shape());
  }
  // The tables have one buffer, which is in use until their turn comes.
  if (next != unit && is_block(next)) gather(next, unit, 2 * next - unit);
}

void ZeroSharding::open_gradients(int64_t unit) {
  const std::vector<size_t>& buffers = gradient_plan_.of_unit[static_cast<size_t>(unit)];
  Buffer& buffer = gradients_[buffers[static_cast<size_t>(unit) % buffers.size()]];
  if (buffer.unit == unit) return;
  {
    const ProfileScope waiting(exec_, "communication");
    queue_.wait(buffer.ticket);  // the unit that had the buffer before
  }
  buffer.unit = unit;
  const UnitRange& range = units_[static_cast<size_t>(unit)];
  for (size_t i = range.first_slot; i < range.end_slot; ++i) {
    const ParameterSlot& slot = parameters_.slots()[i];
    const int64_t at = slot.offset - range.elements.begin;
    Parameter& parameter = *slot.parameter;
    parameter.gradient = buffer.data.slice(at, at + slot.elements).reshape(parameter.allocated_shape());
    parameter.gradient_started = false;
  }
}

void ZeroSharding::finish() {
  const ProfileScope waiting(exec_, "communication");
  queue_.wait_all();
}

void ZeroSharding::begin_micro_batch(bool) {
  first_micro_batch_ = next_is_first_;
  next_is_first_ = false;
}

void ZeroSharding::before_forward(int64_t unit) {
  const ProfileScope waiting(exec_, "communication");
  if (unit == head() && options_.tied) acquire(0, 0);
  acquire(unit, unit + 1);
}

void ZeroSharding::before_backward(int64_t unit) {
  {
    const ProfileScope waiting(exec_, "communication");
    if (unit == head() && options_.tied) acquire(0, 0);
    if (unit > 0 || options_.embedding_norm) acquire(unit, std::max<int64_t>(unit - 1, 0));
  }
  if (unit == head() && options_.tied) open_gradients(0);
  open_gradients(unit);
}

void ZeroSharding::after_backward(int64_t unit) {
  const UnitRange& range = units_[static_cast<size_t>(unit)];
  for (size_t i = range.first_slot; i < range.end_slot; ++i) {
    Parameter& parameter = *parameters_.slots()[i].parameter;
    if (!parameter.gradient_started) parameter.start_gradient_zeroed(exec_);
  }
  parameters_.sum_partial_gradients(exec_, tensor_, range.first_slot, range.end_slot);
  const std::vector<size_t>& buffers = gradient_plan_.of_unit[static_cast<size_t>(unit)];
  Buffer& buffer = gradients_[buffers[static_cast<size_t>(unit) % buffers.size()]];
  const PartRange elements = range.elements;
  const TensorView data = buffer.data.slice(0, elements.size());
  const bool first = first_micro_batch_;
  buffer.unit = -1;
  buffer.ticket = queue_.submit("reduce gradients", [this, elements, data, first](Communicator& group) {
    const PartRange own = intersection(elements, parameters_.own_part());
    parameters_.prefetch_gradients(own);
    reduce_to_owners(group, parameters_, elements.begin, data);
    if (own.size() == 0) return;
    const TensorView sum = parameters_.gradients(own.begin, own.end);
    const TensorView part = data.slice(own.begin - elements.begin, own.end - elements.begin);
    if (first) {
      std::memcpy(sum.raw(), part.raw(), part.bytes());
    } else {
      add(ExecContext{exec_.workspace}, part, sum);
    }
    parameters_.give_up_gradients(own);
  });
}

void ZeroSharding::idle_micro_batch() {
  for (int64_t unit = 0; unit < head(); ++unit) before_forward(unit);
  for (int64_t unit = head(); unit >= 0; --unit) {
    before_backward(unit);
    after_backward(unit);
  }
}

void ZeroSharding::idle_evaluation() {
  for (int64_t unit = 0; unit <= head(); ++unit) before_forward(unit);
}

}  // namespace megalith
