// Parameters, and the flat buffers that hold their values and gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megalith/nn/tensor_parallel.h"
#include "megalith/ops/encoded_matrix.h"
#include "megalith/ops/matmul.h"
#include "megalith/tensor/exec.h"
#include "megalith/tensor/tensor_slice.h"

namespace megalith {

/// How a parameter starts.
struct Initialization {
  enum class Kind { zeros, ones, normal } kind = Kind::zeros;
  float standard_deviation = 0;
};

/// One learned tensor. Layers own their parameters; everything else meets them through the walk of the model,
/// in one order.
struct Parameter {
  std::string name;
  /// The shape that the model means; checkpoints and exports hold exactly this.
  Shape shape;
  /// What this rank of a tensor-parallel group holds of it; the whole when the ranks hold copies.
  TensorSlice slice;
  /// Rows allocated; beyond local_shape()[0] only for vocabulary tables, whose padding stays zero and is
  /// never stored.
  int64_t allocated_rows = 0;
  Initialization initialization;
  /// Weight decay applies (matrices, not norms and biases).
  bool decay = false;
  /// Another rank holds the same parameter and stands for it in gradient norms and checkpoints (what
  /// every tensor-parallel rank holds whole; the tied token table on the last pipeline stage).
  bool is_copy = false;
  /// The weight of a matrix product x W^T.
  bool is_product_weight = false;
  /// Each rank of the tensor-parallel group sums its gradient over its own rows of the stream; the gradient
  /// is the sum over ranks (norms under sequence parallelism).
  bool gradient_is_partial = false;

  TensorView value;     // [allocated_rows, ...] in the compute type
  TensorView gradient;  // F32, the same shape; empty for inference
  /// A second form of `value` for products of few rows; empty unless pack() made it. Whoever changes `value`
  /// drops it.
  PackedWeight packed;
  /// The value as a file holds it, for inference in fp32; then `value` is empty. Null otherwise.
  const EncodedMatrix* encoded = nullptr;
  /// Whether `gradient` holds a sum of this step; before, its bytes mean nothing.
  bool gradient_started = false;

  /// The type of what is computed with the value.
  DType compute_type() const { return encoded != nullptr ? DType::f32 : value.dtype(); }

  /// Says whether a gradient must be added to what is there (true) or assigned (false), and marks it as
  /// started.
  bool start_gradient() {
    const bool accumulate = gradient_started;
    gradient_started = true;
    return accumulate;
  }
  /// Like start_gradient, for kernels that only add: clears the gradient first when nothing is there.
  void start_gradient_zeroed(const ExecContext& context);

  /// Makes `packed`, for inference, in memory of `arena`.
  void pack(const ExecContext& context, Arena& arena);

  Shape local_shape() const { return slice.local_shape(shape); }
  Shape allocated_shape() const {
    Shape allocated = local_shape();
    if (allocated.rank() > 0) allocated.set(0, allocated_rows);
    return allocated;
  }
};

/// y = x W^T + bias with the packed or encoded form of the weight where there is one; the same bits either
/// way. `bias` may be empty.
void product_forward(const ExecContext& context, TensorView x, const Parameter& weight, TensorView bias,
                     TensorView y);

Parameter make_parameter(std::string name, const Shape& shape, Initialization initialization, bool decay,
                         TensorSlice slice = {});

using ParameterVisitor = std::function<void(Parameter&)>;

/// A position in the flat buffers. Offsets are in elements, and every parameter starts on a 64-byte boundary
/// of fp32.
struct ParameterSlot {
  Parameter* parameter;
  int64_t offset;
  int64_t elements;
};

/// Elements that a parameter of `elements` takes up in the flat index space: whole cache lines of fp32.
int64_t slot_elements(int64_t elements);
/// Size of the flat index space when its slots take up `used` elements and it is cut into `parts`.
int64_t flat_elements(int64_t used, int parts);

/// The flat index space is padded so that it can be cut into `parts` equal parts, of the ranks that share it.
/// Values or gradients that a rank does not hold whole, it holds of part `own` (ZeRO 3 and 2).
struct FlatParts {
  int parts = 1, own = 0;
  bool whole_values = true, whole_gradients = true;
};

/// Values and gradients of all parameters of a walk, each in one flat buffer in the order of the walk: the
/// unit of optimizer, reduction and checkpoint.
class ParameterBuffers {
 public:
  /// Cuts the buffers from `values` and `gradients` (null for inference), for all parameters but those whose
  /// value is encoded. All values start as zero. The views
  /// of every parameter are bound to what is held whole; who holds parts binds the others when they are
  /// needed.
  ParameterBuffers(const std::function<void(const ParameterVisitor&)>& walk, DType dtype, Arena& values,
                   Arena* gradients, const FlatParts& parts = {});

  const std::vector<ParameterSlot>& slots() const { return slots_; }
  int64_t elements() const { return elements_; }
  /// The elements of part `part`.
  PartRange part(int part) const { return part_range(elements_, part, parts_.parts); }
  PartRange own_part() const { return part(parts_.own); }
  TensorView values() const { return values_; }        // [held], compute type
  TensorView gradients() const { return gradients_; }  // [held], F32
  /// Elements [begin, end) of the flat index space, which must be held.
  TensorView values(int64_t begin, int64_t end) const {
    return values_.slice(begin - first_value_, end - first_value_);
  }
  TensorView gradients(int64_t begin, int64_t end) const {
    return gradients_.slice(begin - first_gradient_, end - first_gradient_);
  }
  /// Begins to read elements `range`, as far as they are held, when they lie in a file.
  void prefetch_values(PartRange range) const { values_arena_.prefetch(held(values_, first_value_, range)); }
  void prefetch_gradients(PartRange range) const;
  /// Lets what lies in a file leave memory: elements `range` will not be needed soon.
  void give_up_values(PartRange range) const { values_arena_.give_up(held(values_, first_value_, range)); }
  void give_up_gradients(PartRange range) const;

  /// To be called before the first backward pass of a step: no gradient is started.
  void forget_gradients();
  /// Clears the gradient of every parameter that no backward pass of this step has reached.
  void finish_gradients(const ExecContext& context);
  /// Completes the gradients of slots [first, end) that are partial sums over the ranks of `tensor`.
  void sum_partial_gradients(const ExecContext& context, const TensorParallel& tensor, size_t first,
                             size_t end);

 private:
  static TensorView held(TensorView all, int64_t first, PartRange range);

  const Arena& values_arena_;
  const Arena* gradients_arena_;
  std::vector<ParameterSlot> slots_;
  FlatParts parts_;
  int64_t elements_ = 0, first_value_ = 0, first_gradient_ = 0;
  TensorView values_, gradients_;
};

/// Fills fp32 weights with elements `range` of the flat index space, from the parameters' initialisation. An
/// element depends on (seed, parameter name, its number in the whole parameter) alone, whoever holds it.
void initialize_parameters(const ExecContext& context, const std::vector<ParameterSlot>& slots, uint64_t seed,
                           PartRange range, TensorView weights);

}  // namespace megalith
