// The optimizer: fp32 master weights and moments over the flat parameter buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "megalith/comm/communicator.h"
#include "megalith/nn/parameter.h"
#include "megalith/train/recipe.h"

namespace megalith {

class Optimizer {
 public:
  /// Owns the elements [range.begin, range.end) of the flat buffers (ZeRO: each data-parallel rank a part).
  /// Cuts master weights (unless the compute type is F32: then they are the values themselves) and moments of
  /// the range from `arena`.
  Optimizer(const OptimizerConfig& config, ParameterBuffers& parameters, Arena& arena, PartRange range);

  /// One update of the range; of what lies in a file the next piece is read and the last one written
  /// meanwhile. `update` counts from 1 (bias correction); `gradient_scale` multiplies every
  /// gradient.
  void step(const ExecContext& context, double learning_rate, int64_t update, double gradient_scale);
  /// Writes the compute copy of the master weights anew (after loading or initialising).
  void refresh_values(const ExecContext& context);

  PartRange range() const { return range_; }
  TensorView master() const { return master_; }              // [range] F32
  TensorView first_moment() const { return first_moment_; }  // [range] F32; empty when the method has none
  TensorView second_moment() const { return second_moment_; }

  /// Bytes of master weights and moments per parameter element.
  static size_t bytes_per_element(const OptimizerConfig& config, DType compute);

 private:
  // Elements of one parameter that are updated at once.
  struct Piece {
    int64_t begin, end;
    float decay;
  };
  std::vector<Piece> pieces() const;

  OptimizerConfig config_;
  ParameterBuffers& parameters_;
  const Arena& arena_;
  PartRange range_;
  TensorView master_, first_moment_, second_moment_;
};

}  // namespace megalith
