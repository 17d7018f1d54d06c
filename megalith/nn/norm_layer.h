// LayerNorm or RMSNorm with learned weight and bias, at the start of a residual branch.
#pragma once

#include <string>

#include "megalith/nn/parameter.h"
#include "megalith/nn/saved.h"
#include "megalith/ops/norm.h"

namespace megalith {

class NormLayer {
 public:
  NormLayer(const std::string& name, NormKind kind, int64_t columns, bool bias, double epsilon,
            const TensorParallel& tensor);

  /// Saves the statistics; x must outlive the backward pass, to which the caller hands it again.
  void forward(const ExecContext& context, TensorView x, TensorView y, Saved& saved) const;
  /// Without saving anything.
  void forward_only(const ExecContext& context, TensorView x, TensorView y) const;
  /// dx += the gradient through the norm.
  void backward(const ExecContext& context, TensorView dy, TensorView x, TensorView dx, Saved& saved);
  void visit(const ParameterVisitor& visitor);
  size_t saved_bytes(int64_t rows) const {
    return static_cast<size_t>(rows) * (kind_ == NormKind::layer ? 8 : 4);
  }

 private:
  NormKind kind_;
  bool has_bias_;
  float epsilon_;
  Parameter weight_, bias_;  // [C]
};

}  // namespace megalith
