// What a masked language model does to the stream before its output projection (Devlin et al., "BERT"): a
// dense layer, an activation and a norm.
#pragma once

#include "megalith/nn/linear.h"
#include "megalith/nn/norm_layer.h"
#include "megalith/ops/activation.h"

namespace megalith {

struct HeadTransformOptions {
  int64_t hidden = 0;
  Activation activation = Activation::gelu_erf;  // not a gated one
  float standard_deviation = 0.02f;
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  double norm_epsilon = 1e-5;
};

/// y = norm(activation(W x + b)), on the rows of the stream that a rank holds.
class HeadTransform {
 public:
  HeadTransform(const HeadTransformOptions& options, const TensorParallel& tensor);

  /// What the backward pass needs besides the statistics of the norm; in the workspace, since the head's
  /// forward and backward pass are one.
  struct State {
    TensorView inner, activated;  // [n,C]
  };
  /// x, y [n,C]. With `saved` the statistics of the norm are pushed; `state` lies in the caller's scope.
  State forward(const ExecContext& exec, TensorView x, TensorView y, Saved* saved) const;
  /// Assigns dx.
  void backward(const ExecContext& exec, const State& state, TensorView dy, TensorView x, TensorView dx,
                Saved& saved);
  void visit(const ParameterVisitor& visitor);

 private:
  HeadTransformOptions options_;
  ReplicatedLinear dense_;
  NormLayer norm_;
};

}  // namespace megalith
