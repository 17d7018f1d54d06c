#include "megalith/nn/parameter.h"

#include <algorithm>
#include <utility>

#include "megalith/base/random.h"
#include "megalith/ops/elementwise.h"

namespace megalith {

namespace {

constexpr int64_t kSlotAlignment = 16;  // elements: 64 bytes of fp32

// FNV-1a: a stable hash of the name, the same on every machine.
uint64_t hash_name(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

}  // namespace

void Parameter::start_gradient_zeroed(const ExecContext& context) {
  if (!start_gradient()) fill_zero(context, gradient);
}

void Parameter::pack(const ExecContext& context, Arena& arena) {
  const size_t bytes = packed_weight_bytes(value.dtype(), allocated_rows, value.columns());
  packed = pack_weight(context, value, arena.allocate(DType::u8, {static_cast<int64_t>(bytes)}));
}

void product_forward(const ExecContext& context, TensorView x, const Parameter& weight, TensorView bias,
                     TensorView y) {
  if (weight.encoded != nullptr) {
    linear_forward(context, x, *weight.encoded, bias, y);
  } else if (weight.packed.data.empty()) {
    linear_forward(context, x, weight.value, bias, y);
  } else {
    linear_forward(context, x, weight.packed, bias, y);
  }
}

Parameter make_parameter(std::string name, const Shape& shape, Initialization initialization, bool decay,
                         TensorSlice slice) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = shape;
  parameter.slice = std::move(slice);
  parameter.allocated_rows = shape.rank() > 0 ? parameter.local_shape()[0] : 1;
  parameter.initialization = initialization;
  parameter.decay = decay;
  return parameter;
}

int64_t slot_elements(int64_t elements) {
  return (elements + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

int64_t flat_elements(int64_t used, int parts) {
  const int64_t multiple = kSlotAlignment * parts;
  return (used + multiple - 1) / multiple * multiple;
}

ParameterBuffers::ParameterBuffers(const std::function<void(const ParameterVisitor&)>& walk, DType dtype,
                                   Arena& values, Arena* gradients, const FlatParts& parts)
    : values_arena_(values), gradients_arena_(gradients), parts_(parts) {
  walk([&](Parameter& parameter) {
    if (parameter.encoded != nullptr) return;
    const int64_t elements = parameter.allocated_shape().elements();
    slots_.push_back({&parameter, elements_, elements});
    elements_ += slot_elements(elements);
  });
  elements_ = flat_elements(elements_, parts.parts);
  const PartRange own = own_part();
  if (!parts.whole_values) first_value_ = own.begin;
  if (!parts.whole_gradients) first_gradient_ = own.begin;
  const Shape held{parts.whole_values ? elements_ : own.size()};
  values.expect(static_cast<size_t>(held.elements()) * size_of(dtype));
  values_ = values.allocate_zero(dtype, held);
  if (gradients != nullptr)
    gradients_ = gradients->allocate_zero(DType::f32, {parts.whole_gradients ? elements_ : own.size()});
  for (const ParameterSlot& slot : slots_) {
    const Shape shape = slot.parameter->allocated_shape();
    if (parts.whole_values)
      slot.parameter->value = values_.slice(slot.offset, slot.offset + slot.elements).reshape(shape);
    if (gradients != nullptr && parts.whole_gradients) {
      slot.parameter->gradient = gradients_.slice(slot.offset, slot.offset + slot.elements).reshape(shape);
    }
  }
}

TensorView ParameterBuffers::held(TensorView all, int64_t first, PartRange range) {
  const PartRange part = intersection(range, {first, first + all.elements()});
  return part.size() > 0 ? all.slice(part.begin - first, part.end - first) : TensorView();
}

void ParameterBuffers::prefetch_gradients(PartRange range) const {
  if (gradients_arena_ != nullptr) gradients_arena_->prefetch(held(gradients_, first_gradient_, range));
}

void ParameterBuffers::give_up_gradients(PartRange range) const {
  if (gradients_arena_ != nullptr) gradients_arena_->give_up(held(gradients_, first_gradient_, range));
}

void ParameterBuffers::forget_gradients() {
  for (const ParameterSlot& slot : slots_) slot.parameter->gradient_started = false;
}

void ParameterBuffers::finish_gradients(const ExecContext& context) {
  for (const ParameterSlot& slot : slots_) {
    if (!slot.parameter->gradient_started) slot.parameter->start_gradient_zeroed(context);
  }
}

void ParameterBuffers::sum_partial_gradients(const ExecContext& context, const TensorParallel& tensor,
                                             size_t first, size_t end) {
  if (tensor.size() == 1) return;
  // They are many and small, so they travel together.
  std::vector<const ParameterSlot*> partial;
  int64_t total = 0;
  for (size_t i = first; i < end; ++i) {
    const ParameterSlot& slot = slots_[i];
    if (!slot.parameter->gradient_is_partial) continue;
    partial.push_back(&slot);
    total += slot.elements;
  }
  if (partial.empty()) return;
  ArenaScope scope(context.workspace);
  const TensorView together = context.workspace.allocate(DType::f32, {total});
  const auto copy_all = [&](bool back) {
    int64_t at = 0;
    for (const ParameterSlot* slot : partial) {
      const TensorView own = slot->parameter->gradient;
      const TensorView packed = together.slice(at, at + slot->elements);
      back ? convert(context, packed, own) : convert(context, own, packed);
      at += slot->elements;
    }
  };
  copy_all(false);
  tensor.all_reduce(context, together);
  copy_all(true);
}

namespace {

// out[i] = normal number first + i of the stream.
void fill_normal(const ExecContext& context, const RandomStream& stream, float standard_deviation,
                 int64_t first, int64_t elements, float* out) {
  const int64_t end = first + elements;
#pragma omp parallel for num_threads(context.threads) schedule(static) if (elements > 4096)
  for (int64_t block = first / 4; block < (end + 3) / 4; ++block) {
    const auto normals = stream.normals(static_cast<uint64_t>(block));
    for (int64_t i = std::max(first, block * 4); i < std::min(block * 4 + 4, end); ++i) {
      out[i - first] = normals[static_cast<size_t>(i % 4)] * standard_deviation;
    }
  }
}

}  // namespace

void initialize_parameters(const ExecContext& context, const std::vector<ParameterSlot>& slots, uint64_t seed,
                           PartRange range, TensorView weights) {
  fill_zero(context, weights);
  for (const ParameterSlot& slot : slots) {
    const Parameter& parameter = *slot.parameter;
    // Padding rows stay zero.
    const PartRange part =
        intersection({slot.offset, slot.offset + parameter.local_shape().elements()}, range);
    if (part.size() == 0) continue;
    const int64_t begin = part.begin - slot.offset, end = part.end - slot.offset;
    float* out = weights.data<float>() + (slot.offset + begin - range.begin);
    const RandomStream stream(seed, RandomUse::initialization, hash_name(parameter.name));
    switch (parameter.initialization.kind) {
      case Initialization::Kind::zeros:
        break;
      case Initialization::Kind::ones:
        std::fill(out, out + (end - begin), 1.0f);
        break;
      case Initialization::Kind::normal:
        parameter.slice.for_each_run(
            parameter.shape, begin, end, [&](int64_t local, int64_t global, int64_t count) {
              fill_normal(context, stream, parameter.initialization.standard_deviation, global, count,
                          out + (local - begin));
            });
        break;
    }
  }
}

}  // namespace megalith
