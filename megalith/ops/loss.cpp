#include "megalith/ops/loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/elementwise.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

void check_targets(const TensorView& logits, const TensorView& targets, int64_t vocabulary,
                   const char* operation) {
  check(logits.shape().rank() == 2, "{}: logits {} must be a matrix", operation, to_string(logits.shape()));
  const int64_t rows = logits.shape()[0];
  expect(targets, DType::i32, {rows}, operation, "targets");
  const int32_t* target = targets.data<int32_t>();
  for (int64_t n = 0; n < rows; ++n) {
    check(target[n] < vocabulary, "{}: target {} at row {} is outside the vocabulary of {}", operation,
          target[n], n, vocabulary);
  }
}

void check_operands(const TensorView& logits, const TensorView& targets, int64_t vocabulary,
                    const TensorView& losses, const char* operation) {
  check_targets(logits, targets, vocabulary, operation);
  check(vocabulary > 0 && vocabulary <= logits.columns(), "{}: vocabulary {} does not fit logits {}",
        operation, vocabulary, to_string(logits.shape()));
  expect(losses, DType::f32, {logits.shape()[0]}, operation, "losses");
}

}  // namespace

void apply_logit_rule(const ExecContext& context, const LogitRule& rule, TensorView scores) {
  if (rule.softcap > 0) {
    soft_cap(context, scores, rule.scale, rule.softcap);
  } else if (rule.scale != 1) {
    scale(context, scores, rule.scale);
  }
}

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
                            TensorView weights, int64_t vocabulary, TensorView losses,
                            const LogitRule& rule) {
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
    kernels.softmax_gradient(row, log_sum, target[n], weight[n] * rule.scale, rule.softcap, vocabulary,
                             logits.columns());
  });
}

void cross_entropy_partial(const ExecContext& context, TensorView logits, TensorView targets,
                           const VocabularyPart& part, TensorView partial) {
  check_targets(logits, targets, part.vocabulary, "cross_entropy_partial");
  const int64_t rows = logits.shape()[0], held = logits.columns();
  expect(partial, DType::f32, {2, rows}, "cross_entropy_partial", "partial");
  const cpu::TypedKernels& kernels = cpu::typed(logits.dtype());
  ProfileScope scope(context, "loss");
  const int32_t* target = targets.data<int32_t>();
  float* log_sum = partial.data<float>();
  parallel_tasks(context, rows, [&](int64_t n, int) {
    const void* row = row_of(logits, n);
    const int64_t column = part.find(target[n], held);
    log_sum[n] = target[n] < 0 ? 0 : kernels.log_sum_exp(row, part.counted(held));
    log_sum[rows + n] = column < 0 ? 0 : kernels.load_one(row, column);
  });
}

void cross_entropy_combine(const ExecContext& context, TensorView partials, TensorView targets,
                           TensorView log_sum_exp, TensorView losses) {
  const int64_t parts = partials.shape()[0], rows = targets.elements();
  expect(partials, DType::f32, {parts, 2, rows}, "cross_entropy_combine", "partials");
  expect(log_sum_exp, DType::f32, {rows}, "cross_entropy_combine", "log_sum_exp");
  expect(losses, DType::f32, {rows}, "cross_entropy_combine", "losses");
  ProfileScope scope(context, "loss");
  const int32_t* target = targets.data<int32_t>();
  const float* values = partials.data<float>();
  float *log_sum = log_sum_exp.data<float>(), *loss = losses.data<float>();
  parallel_blocks(context, rows, 256, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float largest = values[n];
      double logit = 0, sum = 0;
      for (int64_t r = 0; r < parts; ++r) {
        largest = std::max(largest, values[r * 2 * rows + n]);
        logit += values[(r * 2 + 1) * rows + n];
      }
      for (int64_t r = 0; r < parts; ++r) {
        sum += std::exp(static_cast<double>(values[r * 2 * rows + n]) - static_cast<double>(largest));
      }
      log_sum[n] = static_cast<float>(static_cast<double>(largest) + std::log(sum));
      loss[n] = target[n] < 0 ? 0 : log_sum[n] - static_cast<float>(logit);
    }
  });
}

void cross_entropy_gradient(const ExecContext& context, TensorView logits, TensorView targets,
                            TensorView weights, TensorView log_sum_exp, const VocabularyPart& part,
                            const LogitRule& rule) {
  check_targets(logits, targets, part.vocabulary, "cross_entropy_gradient");
  const int64_t rows = logits.shape()[0], held = logits.columns();
  expect(weights, DType::f32, {rows}, "cross_entropy_gradient", "weights");
  expect(log_sum_exp, DType::f32, {rows}, "cross_entropy_gradient", "log_sum_exp");
  const cpu::TypedKernels& kernels = cpu::typed(logits.dtype());
  ProfileScope scope(context, "loss");
  const int32_t* target = targets.data<int32_t>();
  const float *weight = weights.data<float>(), *log_sum = log_sum_exp.data<float>();
  parallel_tasks(context, rows, [&](int64_t n, int) {
    void* row = row_of(logits, n);
    if (target[n] < 0) {
      std::memset(row, 0, static_cast<size_t>(held) * size_of(logits.dtype()));
    } else {
      kernels.softmax_gradient(row, log_sum[n], part.find(target[n], held), weight[n] * rule.scale,
                               rule.softcap, part.counted(held), held);
    }
  });
}

}  // namespace megalith
