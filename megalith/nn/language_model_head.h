// Final norm, output projection onto the vocabulary, and cross-entropy, in chunks of rows: the logits are
// never stored whole. Tensor-parallel ranks each have the columns of their part of the vocabulary.
#pragma once

#include <optional>

#include "megalith/nn/head_transform.h"
#include "megalith/nn/norm_layer.h"
#include "megalith/nn/pass.h"
#include "megalith/nn/vocabulary_table.h"
#include "megalith/ops/loss.h"

namespace megalith {

struct HeadOptions {
  int64_t vocabulary = 0, padded_vocabulary = 0, hidden = 0;
  /// Without it the head ends with the final norm: there are hidden states, but no logits and no loss.
  bool has_projection = true;
  bool has_bias = false;
  bool tied = true;
  float standard_deviation = 0.02f;
  bool has_final_norm = true;
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  double norm_epsilon = 1e-5;
  /// What stands before the projection of a masked language model.
  std::optional<HeadTransformOptions> transform;
  LogitRule logit_rule;
};

class LanguageModelHead {
 public:
  /// A tied head uses the values and gradients of `token_table`; where that is null, on a pipeline stage
  /// without the embedding, it holds a copy of it.
  LanguageModelHead(const HeadOptions& options, Parameter* token_table, const TensorParallel& tensor);

  /// x [N,C], or this rank's rows of it with sequence parallelism; losses [N] F32 of each row, without
  /// weights; 0 where there is no target.
  void loss(const Pass& pass, TensorView x, TensorView losses) const;
  /// The same, and at once the whole backward pass: `d`, of x's shape, receives the gradient of
  /// sum(loss_weights * losses) with respect to x, and parameter gradients accumulate. Doing both together is
  /// what spares the logits.
  void loss_and_gradient(const Pass& pass, TensorView x, TensorView losses, TensorView d);
  /// The hidden states of a model, behind the final norm if there is one: x, hidden [n,C].
  void hidden_states(const ExecContext& exec, TensorView x, TensorView hidden) const;
  /// logits [n, V padded] F32 of hidden states; columns from V on mean nothing. With the whole vocabulary.
  void logits(const ExecContext& exec, TensorView hidden, TensorView logits) const;
  void visit(const ParameterVisitor& visitor);

  /// Rows whose logits exist at once.
  static constexpr int64_t kChunkRows = 1024;

 private:
  const Parameter& projection() const { return token_table_ != nullptr ? *token_table_ : weight_; }
  Parameter& projection() { return token_table_ != nullptr ? *token_table_ : weight_; }
  TensorView bias() const { return options_.has_bias ? bias_.value : TensorView(); }

  /// What the projection multiplies, and what the way there leaves for the backward pass.
  struct Projected {
    TensorView all;     // [N,C]
    TensorView hidden;  // this rank's rows, behind the final norm
    HeadTransform::State transformed;
  };
  /// From `workspace`. `saved` is null without a backward pass.
  Projected prepare(const ExecContext& exec, TensorView x, int64_t rows, Saved* saved) const;
  /// d [n,C] receives the gradient with respect to x from that with respect to `all`, a partial sum over
  /// ranks.
  void prepare_backward(const ExecContext& exec, const Projected& projected, TensorView d_all, TensorView x,
                        TensorView d, Saved& saved);
  void check_projection() const;
  TensorView allocate_logits(const ExecContext& exec, DType dtype, int64_t rows) const;
  /// Logits of some rows.
  void project(const ExecContext& exec, TensorView x, TensorView logits) const;
  /// Exchanges what the ranks need of each other's logits; log_sum_exp and losses [n].
  void exchange(const ExecContext& exec, TensorView logits, TensorView targets, TensorView log_sum_exp,
                TensorView losses) const;

  HeadOptions options_;
  TensorParallel tensor_;
  VocabularyShare share_;
  Parameter* token_table_;
  std::optional<NormLayer> norm_;
  std::optional<HeadTransform> transform_;
  Parameter weight_;  // this rank's part of [V, C] when not tied
  Parameter bias_;    // this rank's part of [V]
};

}  // namespace megalith
