#include "megalith/ops/optimizer.h"

#include <cmath>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

constexpr int64_t kBlock = 65536;  // elements that one call of a kernel handles, and that share a partial sum

/// The rounded copy of the weights that an update writes on the way.
struct Copy {
  cpu::RoundedCopy whole;

  Copy(const TensorView& copy, const TensorView& weight, const char* operation) {
    if (copy.empty()) return;
    check(copy.dtype() == DType::bf16 || copy.dtype() == DType::f16, "{}: copy is {}; expected BF16 or F16",
          operation, name(copy.dtype()));
    expect(copy, copy.dtype(), weight.shape(), operation, "copy");
    // Weights, moments and gradients of so many elements pass through all caches.
    constexpr int64_t kManyElements = int64_t{1} << 20;
    whole = {copy.raw(), copy.dtype() == DType::bf16 ? cpu::CopyKind::bf16 : cpu::CopyKind::f16,
             weight.elements() >= kManyElements};
  }
  cpu::RoundedCopy from(int64_t index) const {
    cpu::RoundedCopy copy = whole;
    if (copy.data != nullptr) copy.data = offset(copy.data, index, 2);
    return copy;
  }
};

void expect_f32(const TensorView& weight, const char* operation) {
  check(!weight.empty(), "{}: weight is missing", operation);
  expect(weight, DType::f32, weight.shape(), operation, "weight");
}

cpu::AdamWStep kernel_step(const AdamWArguments& a) {
  return {a.learning_rate,    a.beta1,         a.beta2, a.epsilon, a.weight_decay, a.bias_correction1,
          a.bias_correction2, a.gradient_scale};
}

}  // namespace

void adamw_update(const ExecContext& context, const AdamWArguments& arguments, TensorView weight,
                  TensorView m, TensorView v, TensorView gradient, TensorView copy) {
  constexpr const char* kName = "adamw_update";
  expect_f32(weight, kName);
  expect(m, DType::f32, weight.shape(), kName, "m");
  expect(v, DType::f32, weight.shape(), kName, "v");
  expect(gradient, DType::f32, weight.shape(), kName, "gradient");
  const Copy rounded(copy, weight, kName);
  const cpu::AdamWStep step = kernel_step(arguments);
  ProfileScope scope(context, "optimizer");
  float *w = weight.data<float>(), *first = m.data<float>(), *second = v.data<float>();
  const float* g = gradient.data<float>();
  parallel_blocks(context, weight.elements(), kBlock, [&](int64_t begin, int64_t end) {
    cpu::kernels().optimizer.adamw(step, w + begin, first + begin, second + begin, g + begin,
                                   rounded.from(begin), end - begin);
  });
}

void sgd_update(const ExecContext& context, const SgdArguments& arguments, TensorView weight, TensorView u,
                TensorView gradient, TensorView copy) {
  constexpr const char* kName = "sgd_update";
  expect_f32(weight, kName);
  expect(gradient, DType::f32, weight.shape(), kName, "gradient");
  if (arguments.momentum != 0) expect(u, DType::f32, weight.shape(), kName, "u");
  const Copy rounded(copy, weight, kName);
  ProfileScope scope(context, "optimizer");
  float *w = weight.data<float>(), *moment = arguments.momentum != 0 ? u.data<float>() : nullptr;
  const float* g = gradient.data<float>();
  parallel_blocks(context, weight.elements(), kBlock, [&](int64_t begin, int64_t end) {
    cpu::kernels().optimizer.sgd(
        arguments.learning_rate, arguments.momentum, arguments.weight_decay, arguments.gradient_scale,
        w + begin, moment == nullptr ? nullptr : moment + begin, g + begin, rounded.from(begin), end - begin);
  });
}

void lamb_update(const ExecContext& context, const AdamWArguments& arguments, TensorView weight, TensorView m,
                 TensorView v, TensorView gradient, TensorView copy) {
  constexpr const char* kName = "lamb_update";
  expect_f32(weight, kName);
  expect(m, DType::f32, weight.shape(), kName, "m");
  expect(v, DType::f32, weight.shape(), kName, "v");
  expect(gradient, DType::f32, weight.shape(), kName, "gradient");
  const Copy rounded(copy, weight, kName);
  const cpu::AdamWStep step = kernel_step(arguments);
  ProfileScope scope(context, "optimizer");
  ArenaScope arena(context.workspace);
  const int64_t n = weight.elements(), blocks = (n + kBlock - 1) / kBlock;
  float* direction = context.workspace.allocate(DType::f32, {n}).data<float>();
  double* squares = context.workspace.allocate(DType::f64, {blocks, 2}).data<double>();
  float *w = weight.data<float>(), *first = m.data<float>(), *second = v.data<float>();
  const float* g = gradient.data<float>();
  parallel_blocks(context, n, kBlock, [&](int64_t begin, int64_t end) {
    double* of_block = squares + begin / kBlock * 2;
    cpu::kernels().optimizer.lamb_direction(step, w + begin, first + begin, second + begin, g + begin,
                                            direction + begin, end - begin, of_block, of_block + 1);
  });
  double weight_squares = 0, direction_squares = 0;
  for (int64_t i = 0; i < blocks; ++i) {
    weight_squares += squares[2 * i];
    direction_squares += squares[2 * i + 1];
  }
  const double ratio = weight_squares > 0 && direction_squares > 0
                           ? std::sqrt(weight_squares) / std::sqrt(direction_squares)
                           : 1.0;
  const float rate = static_cast<float>(arguments.learning_rate * ratio);
  parallel_blocks(context, n, kBlock, [&](int64_t begin, int64_t end) {
    cpu::kernels().optimizer.apply(rate, direction + begin, w + begin, rounded.from(begin), end - begin);
  });
}

}  // namespace megalith
