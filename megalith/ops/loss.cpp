#include "megalith/ops/loss.h"

#include <cstring>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

void check_operands(const TensorView& logits, const TensorView& targets, int64_t vocabulary,
                    const TensorView& losses, const char* operation) {
  check(logits.shape().rank() == 2, "{}: logits {} must be a matrix", operation, to_string(logits.shape()));
  const int64_t rows = logits.shape()[0];
  check(vocabulary > 0 && vocabulary <= logits.columns(), "{}: vocabulary {} does not fit logits {}",
        operation, vocabulary, to_string(logits.shape()));
  expect(targets, DType::i32, {rows}, operation, "targets");
  expect(losses, DType::f32, {rows}, operation, "losses");
  const int32_t* target = targets.data<int32_t>();
  for (int64_t n = 0; n < rows; ++n) {
    check(target[n] < vocabulary, "{}: target {} at row {} is outside the vocabulary of {}", operation,
          target[n], n, vocabulary);
  }
}

}  // namespace

void cross_entropy_forward(const ExecContext& context, TensorView logits, TensorView targets,
                           int64_t vocabulary, TensorView losses) {
  check_operands(logits, targets, vocabulary, losses, "cross_entropy_forward");
  const cpu::TypedKernels& kernels = cpu::typed(logits.dtype());
  ProfileScope scope(context, "loss");
  const int32_t* target = targets.data<int32_t>();
  float* loss = losses.data<float>();
  parallel_tasks(context, logits.shape()[0], [&](int64_t n, int) {
    const void* row = row_of(logits, n);
    loss[n] = target[n] < 0 ? 0 : kernels.log_sum_exp(row, vocabulary) - kernels.load_one(row, target[n]);
  });
}

void cross_entropy_backward(const ExecContext& context, TensorView logits, TensorView targets,
                            TensorView weights, int64_t vocabulary, TensorView losses) {
  check_operands(logits, targets, vocabulary, losses, "cross_entropy_backward");
  expect(weights, DType::f32, losses.shape(), "cross_entropy_backward", "weights");
  const cpu::TypedKernels& kernels = cpu::typed(logits.dtype());
  ProfileScope scope(context, "loss");
  const int32_t* target = targets.data<int32_t>();
  const float* weight = weights.data<float>();
  float* loss = losses.data<float>();
  parallel_tasks(context, logits.shape()[0], [&](int64_t n, int) {
    void* row = row_of(logits, n);
    if (target[n] < 0) {
      loss[n] = 0;
      std::memset(row, 0, static_cast<size_t>(logits.columns()) * size_of(logits.dtype()));
      return;
    }
    const float log_sum = kernels.log_sum_exp(row, vocabulary);
    loss[n] = log_sum - kernels.load_one(row, target[n]);
    kernels.softmax_gradient(row, log_sum, target[n], weight[n], vocabulary, logits.columns());
  });
}

}  // namespace megalith
