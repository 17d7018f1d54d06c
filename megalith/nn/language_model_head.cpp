#include "megalith/nn/language_model_head.h"

#include <algorithm>

#include "megalith/ops/elementwise.h"
#include "megalith/ops/loss.h"
#include "megalith/ops/matmul.h"

namespace megalith {

LanguageModelHead::LanguageModelHead(const HeadOptions& options, Parameter* token_table)
    : options_(options),
      token_table_(options.tied ? token_table : nullptr),
      norm_("final_norm", options.norm, options.hidden, options.norm_bias, options.norm_epsilon),
      weight_(make_parameter("head.weight", {options.vocabulary, options.hidden},
                             {Initialization::Kind::normal, options.standard_deviation}, true)) {
  weight_.allocated_rows = options.padded_vocabulary;
  projection().is_product_weight = true;
}

void LanguageModelHead::loss(const Pass& pass, TensorView x, TensorView losses) const {
  ArenaScope scope(pass.exec.workspace);
  const TensorView normalized = pass.exec.workspace.allocate(x.dtype(), x.shape());
  norm_.forward_only(pass.exec, x, normalized);
  const int64_t rows = x.rows();
  const TensorView logits =
      pass.exec.workspace.allocate(x.dtype(), {std::min(rows, kChunkRows), options_.padded_vocabulary});
  for (int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const int64_t end = std::min(rows, begin + kChunkRows);
    const TensorView chunk = logits.slice(0, end - begin);
    linear_forward(pass.exec, normalized.slice(begin, end), projection().value, TensorView(), chunk);
    cross_entropy_forward(pass.exec, chunk, pass.batch.targets.slice(begin, end), options_.vocabulary,
                          losses.slice(begin, end));
  }
}

void LanguageModelHead::loss_and_gradient(const Pass& pass, TensorView x, TensorView losses, TensorView d) {
  const ExecContext& exec = pass.exec;
  ArenaScope scope(exec.workspace);
  const int64_t rows = x.rows();
  const TensorView normalized = exec.workspace.allocate(x.dtype(), x.shape());
  norm_.forward(exec, x, normalized, pass.saved);
  const TensorView d_normalized = exec.workspace.allocate(x.dtype(), x.shape());
  const TensorView logits =
      exec.workspace.allocate(x.dtype(), {std::min(rows, kChunkRows), options_.padded_vocabulary});
  Parameter& weight = projection();
  for (int64_t begin = 0; begin < rows; begin += kChunkRows) {
    const int64_t end = std::min(rows, begin + kChunkRows);
    const TensorView chunk = logits.slice(0, end - begin);
    linear_forward(exec, normalized.slice(begin, end), weight.value, TensorView(), chunk);
    cross_entropy_backward(exec, chunk, pass.batch.targets.slice(begin, end),
                           pass.batch.loss_weights.slice(begin, end), options_.vocabulary,
                           losses.slice(begin, end));
    linear_backward_weight(exec, chunk, normalized.slice(begin, end), weight.gradient,
                           weight.start_gradient());
    linear_backward_input(exec, chunk, weight.value, d_normalized.slice(begin, end));
  }
  fill_zero(exec, d);
  norm_.backward(exec, d_normalized, x, d, pass.saved);
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
