#include "megalith/nn/language_model_head.h"

#include <algorithm>

#include "megalith/ops/elementwise.h"
#include "megalith/ops/loss.h"
#include "megalith/ops/matmul.h"

namespace megalith {

LanguageModelHead::LanguageModelHead(const HeadOptions& options, Parameter* token_table,
                                     const TensorParallel& tensor)
    : options_(options),
      tensor_(tensor),
      share_(options.vocabulary, options.padded_vocabulary, tensor),
      token_table_(options.tied ? token_table : nullptr),
      norm_("final_norm", options.norm, options.hidden, options.norm_bias, options.norm_epsilon, tensor),
      weight_(make_vocabulary_table(options.tied ? "embedding.token.weight" : "head.weight", share_,
                                    options.hidden, options.standard_deviation, tensor)) {
  weight_.is_copy = options.tied;
  projection().is_product_weight = true;
}

TensorView LanguageModelHead::normalize(const ExecContext& exec, TensorView x, int64_t rows,
                                        Saved* saved) const {
  const TensorView normalized = exec.workspace.allocate(x.dtype(), {rows, options_.hidden});
  if (saved != nullptr) {
    norm_.forward(exec, x, tensor_.own_rows(normalized), *saved);
  } else {
    norm_.forward_only(exec, x, tensor_.own_rows(normalized));
  }
  tensor_.gather(exec, normalized);
  return normalized;
}

TensorView LanguageModelHead::allocate_logits(const ExecContext& exec, DType dtype, int64_t rows) const {
  return exec.workspace.allocate(dtype, {std::min(rows, kChunkRows), share_.rows});
}

void LanguageModelHead::exchange(const ExecContext& exec, TensorView logits, TensorView targets,
                                 TensorView log_sum_exp, TensorView losses) const {
  ArenaScope scope(exec.workspace);
  const int64_t rows = logits.shape()[0];
  const TensorView partials = exec.workspace.allocate(DType::f32, {tensor_.size(), 2, rows});
  const TensorView own = partials.slice(tensor_.rank(), tensor_.rank() + 1).reshape({2, rows});
  cross_entropy_partial(exec, logits, targets, share_.part, own);
  tensor_.all_gather(exec, partials);
  cross_entropy_combine(exec, partials, targets, log_sum_exp, losses);
}

void LanguageModelHead::loss(const Pass& pass, TensorView x, TensorView losses) const {
  const ExecContext& exec = pass.exec;
  ArenaScope scope(exec.workspace);
  const int64_t rows = pass.batch.rows();
  const TensorView normalized = normalize(exec, x, rows, nullptr);
  const TensorView logits = allocate_logits(exec, x.dtype(), rows);
  for (int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const int64_t end = std::min(rows, begin + kChunkRows);
    const TensorView chunk = logits.slice(0, end - begin), targets = pass.batch.targets.slice(begin, end);
    linear_forward(exec, normalized.slice(begin, end), projection().value, TensorView(), chunk);
    if (tensor_.size() == 1) {
      cross_entropy_forward(exec, chunk, targets, options_.vocabulary, losses.slice(begin, end));
    } else {
      ArenaScope inner(exec.workspace);
      exchange(exec, chunk, targets, exec.workspace.allocate(DType::f32, {end - begin}),
               losses.slice(begin, end));
    }
  }
}

void LanguageModelHead::loss_and_gradient(const Pass& pass, TensorView x, TensorView losses, TensorView d) {
  const ExecContext& exec = pass.exec;
  ArenaScope scope(exec.workspace);
  const int64_t rows = pass.batch.rows();
  const TensorView normalized = normalize(exec, x, rows, &pass.saved);
  const TensorView d_normalized = exec.workspace.allocate(x.dtype(), normalized.shape());
  const TensorView logits = allocate_logits(exec, x.dtype(), rows);
  Parameter& weight = projection();
  for (int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const int64_t end = std::min(rows, begin + kChunkRows);
    const TensorView chunk = logits.slice(0, end - begin), targets = pass.batch.targets.slice(begin, end);
    const TensorView loss_weights = pass.batch.loss_weights.slice(begin, end);
    linear_forward(exec, normalized.slice(begin, end), weight.value, TensorView(), chunk);
    if (tensor_.size() == 1) {
      // In one go, while a row is in the cache.
      cross_entropy_backward(exec, chunk, targets, loss_weights, options_.vocabulary,
                             losses.slice(begin, end));
    } else {
      ArenaScope inner(exec.workspace);
      const TensorView log_sum_exp = exec.workspace.allocate(DType::f32, {end - begin});
      exchange(exec, chunk, targets, log_sum_exp, losses.slice(begin, end));
      cross_entropy_gradient(exec, chunk, targets, loss_weights, log_sum_exp, share_.part);
    }
    linear_backward_weight(exec, chunk, normalized.slice(begin, end), weight.gradient,
                           weight.start_gradient());
    linear_backward_input(exec, chunk, weight.value, d_normalized.slice(begin, end));
  }
  tensor_.reduce(exec, d_normalized);
  fill_zero(exec, d);
  norm_.backward(exec, tensor_.own_rows(d_normalized), x, d, pass.saved);
  pass.saved.release();
}

void LanguageModelHead::logits(const ExecContext& exec, TensorView x, TensorView logits) const {
  ArenaScope scope(exec.workspace);
  const TensorView normalized = exec.workspace.allocate(x.dtype(), x.shape());
  norm_.forward_only(exec, x, normalized);
  product_forward(exec, normalized, projection(), TensorView(), logits);
}

void LanguageModelHead::visit(const ParameterVisitor& visitor) {
  norm_.visit(visitor);
  if (token_table_ == nullptr) visitor(weight_);
}

}  // namespace megalith
