#include "megalith/nn/language_model_head.h"

#include <algorithm>

#include "megalith/ops/elementwise.h"
#include "megalith/ops/matmul.h"

namespace megalith {

LanguageModelHead::LanguageModelHead(const HeadOptions& options, Parameter* token_table,
                                     const TensorParallel& tensor)
    : options_(options),
      tensor_(tensor),
      share_(options.vocabulary, options.padded_vocabulary, tensor),
      token_table_(options.tied ? token_table : nullptr),
      weight_(make_vocabulary_table(options.tied ? "embedding.token.weight" : "head.weight", share_,
                                    options.hidden, options.standard_deviation, tensor)),
      bias_(make_vocabulary_bias("head.bias", share_, tensor)) {
  if (options.has_final_norm) {
    norm_.emplace("final_norm", options.norm, options.hidden, options.norm_bias, options.norm_epsilon,
                  tensor);
  }
  if (!options.has_projection) return;
  if (options.transform) transform_.emplace(*options.transform, tensor);
  weight_.is_copy = options.tied;
  projection().is_product_weight = true;
}

void LanguageModelHead::check_projection() const {
  check_input(options_.has_projection,
              "this model has no output head (model.head = none): it has hidden states, but no logits");
}

void LanguageModelHead::hidden_states(const ExecContext& exec, TensorView x, TensorView hidden) const {
  if (norm_) {
    norm_->forward_only(exec, x, hidden);
  } else {
    convert(exec, x, hidden);
  }
}

LanguageModelHead::Projected LanguageModelHead::prepare(const ExecContext& exec, TensorView x, int64_t rows,
                                                        Saved* saved) const {
  check_projection();
  Projected projected;
  projected.all = exec.workspace.allocate(x.dtype(), {rows, options_.hidden});
  const TensorView own = tensor_.own_rows(projected.all);
  projected.hidden = transform_ ? exec.workspace.allocate(x.dtype(), x.shape()) : own;
  if (norm_ && saved != nullptr) {
    norm_->forward(exec, x, projected.hidden, *saved);
  } else {
    hidden_states(exec, x, projected.hidden);
  }
  if (transform_) projected.transformed = transform_->forward(exec, projected.hidden, own, saved);
  tensor_.gather(exec, projected.all);
  return projected;
}

void LanguageModelHead::prepare_backward(const ExecContext& exec, const Projected& projected,
                                         TensorView d_all, TensorView x, TensorView d, Saved& saved) {
  tensor_.reduce(exec, d_all);
  TensorView d_hidden = tensor_.own_rows(d_all);
  if (transform_) {
    const TensorView d_transformed = d_hidden;
    d_hidden = exec.workspace.allocate(d.dtype(), d.shape());
    transform_->backward(exec, projected.transformed, d_transformed, projected.hidden, d_hidden, saved);
  }
  if (norm_) {
    fill_zero(exec, d);
    norm_->backward(exec, d_hidden, x, d, saved);
  } else {
    convert(exec, d_hidden, d);
  }
  saved.release();
}

TensorView LanguageModelHead::allocate_logits(const ExecContext& exec, DType dtype, int64_t rows) const {
  return exec.workspace.allocate(dtype, {std::min(rows, kChunkRows), share_.rows});
}

void LanguageModelHead::project(const ExecContext& exec, TensorView x, TensorView logits) const {
  product_forward(exec, x, projection(), bias(), logits);
  apply_logit_rule(exec, options_.logit_rule, logits);
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
  const TensorView all = prepare(exec, x, rows, nullptr).all;
  const TensorView logits = allocate_logits(exec, x.dtype(), rows);
  for (int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const int64_t end = std::min(rows, begin + kChunkRows);
    const TensorView chunk = logits.slice(0, end - begin), targets = pass.batch.targets.slice(begin, end);
    project(exec, all.slice(begin, end), chunk);
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
  const Projected projected = prepare(exec, x, rows, &pass.saved);
  const TensorView d_all = exec.workspace.allocate(x.dtype(), projected.all.shape());
  const TensorView logits = allocate_logits(exec, x.dtype(), rows);
  Parameter& weight = projection();
  for (int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const int64_t end = std::min(rows, begin + kChunkRows);
    const TensorView chunk = logits.slice(0, end - begin), targets = pass.batch.targets.slice(begin, end);
    const TensorView loss_weights = pass.batch.loss_weights.slice(begin, end);
    project(exec, projected.all.slice(begin, end), chunk);
    if (tensor_.size() == 1) {
      // In one go, while a row is in the cache.
      cross_entropy_backward(exec, chunk, targets, loss_weights, options_.vocabulary,
                             losses.slice(begin, end), options_.logit_rule);
    } else {
      ArenaScope inner(exec.workspace);
      const TensorView log_sum_exp = exec.workspace.allocate(DType::f32, {end - begin});
      exchange(exec, chunk, targets, log_sum_exp, losses.slice(begin, end));
      cross_entropy_gradient(exec, chunk, targets, loss_weights, log_sum_exp, share_.part,
                             options_.logit_rule);
    }
    linear_backward_weight(exec, chunk, projected.all.slice(begin, end), weight.gradient,
                           weight.start_gradient());
    if (options_.has_bias) {
      bias_.start_gradient_zeroed(exec);
      bias_backward(exec, chunk, bias_.gradient);
    }
    linear_backward_input(exec, chunk, weight.value, d_all.slice(begin, end));
  }
  prepare_backward(exec, projected, d_all, x, d, pass.saved);
}

void LanguageModelHead::logits(const ExecContext& exec, TensorView hidden, TensorView logits) const {
  check_projection();
  ArenaScope scope(exec.workspace);
  TensorView input = hidden;
  if (transform_) {
    input = exec.workspace.allocate(hidden.dtype(), hidden.shape());
    transform_->forward(exec, hidden, input, nullptr);
  }
  project(exec, input, logits);
}

void LanguageModelHead::visit(const ParameterVisitor& visitor) {
  if (norm_) norm_->visit(visitor);
  if (!options_.has_projection) return;
  if (transform_) transform_->visit(visitor);
  if (token_table_ == nullptr) visitor(weight_);
  if (options_.has_bias) visitor(bias_);
}

}  // namespace megalith
