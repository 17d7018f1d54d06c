// Final norm, output projection onto the vocabulary, and cross-entropy, in chunks of rows: the logits are
// never stored whole.
#pragma once

#include "megalith/nn/norm_layer.h"
#include "megalith/nn/parameter.h"
#include "megalith/nn/pass.h"

namespace megalith {

struct HeadOptions {
  int64_t vocabulary = 0, padded_vocabulary = 0, hidden = 0;
  bool tied = true;
  float standard_deviation = 0.02f;
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  double norm_epsilon = 1e-5;
};

class LanguageModelHead {
 public:
  /// A tied head uses the values and gradients of `token_table`.
  LanguageModelHead(const HeadOptions& options, Parameter* token_table);

  /// losses [N] F32 of each row, without weights; 0 where there is no target.
  void loss(const Pass& pass, TensorView x, TensorView losses) const;
  /// The same, and at once the whole backward pass: `d` [N,C] receives the gradient of sum(loss_weights *
  /// losses) with respect to x, and parameter gradients accumulate. Doing both together is what spares the
  /// logits.
  void loss_and_gradient(const Pass& pass, TensorView x, TensorView losses, TensorView d);
  /// logits [N, V padded] F32; columns from V on mean nothing.
  void logits(const ExecContext& exec, TensorView x, TensorView logits) const;
  void visit(const ParameterVisitor& visitor);

  /// Rows whose logits exist at once.
  static constexpr int64_t kChunkRows = 1024;

 private:
  const Parameter& projection() const { return token_table_ != nullptr ? *token_table_ : weight_; }
  Parameter& projection() { return token_table_ != nullptr ? *token_table_ : weight_; }

  HeadOptions options_;
  Parameter* token_table_;
  NormLayer norm_;
  Parameter weight_;  // [V, C] when not tied
};

}  // namespace megalith
