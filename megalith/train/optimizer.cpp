#include "megalith/train/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "megalith/ops/elementwise.h"
#include "megalith/ops/optimizer.h"

namespace megalith {

namespace {

bool has_first_moment(const OptimizerConfig& config) {
  return config.type != OptimizerType::sgd || config.momentum > 0;
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, ParameterBuffers& parameters, Arena& arena,
                     PartRange range)
    : config_(config), parameters_(parameters), arena_(arena), range_(range) {
  const Shape shape{range.end - range.begin};
  const bool separate_master = parameters.values().dtype() != DType::f32;
  master_ =
      separate_master ? arena.allocate_zero(DType::f32, shape) : parameters.values(range.begin, range.end);
  if (has_first_moment(config)) first_moment_ = arena.allocate_zero(DType::f32, shape);
  if (config.type != OptimizerType::sgd) second_moment_ = arena.allocate_zero(DType::f32, shape);
}

void Optimizer::step(const ExecContext& context, double learning_rate, int64_t update,
                     double gradient_scale) {
  AdamWArguments adam;
  adam.learning_rate = static_cast<float>(learning_rate);
  adam.beta1 = static_cast<float>(config_.beta1);
  adam.beta2 = static_cast<float>(config_.beta2);
  adam.epsilon = static_cast<float>(config_.epsilon);
  adam.bias_correction1 = static_cast<float>(1.0 - std::pow(config_.beta1, static_cast<double>(update)));
  adam.bias_correction2 = static_cast<float>(1.0 - std::pow(config_.beta2, static_cast<double>(update)));
  adam.gradient_scale = static_cast<float>(gradient_scale);
  SgdArguments sgd;
  sgd.learning_rate = adam.learning_rate;
  sgd.momentum = static_cast<float>(config_.momentum);
  sgd.gradient_scale = adam.gradient_scale;
  const bool separate_master = parameters_.values().dtype() != DType::f32;
  const std::vector<Piece> pieces = this->pieces();
  const auto states = [&](const Piece& piece) {
    const auto part = [&](TensorView owned) {
      return owned.empty() ? owned : owned.slice(piece.begin - range_.begin, piece.end - range_.begin);
    };
    return std::array{part(master_), part(first_moment_), part(second_moment_)};
  };
  const auto prefetch = [&](const Piece& piece) {
    const auto [master, first_moment, second_moment] = states(piece);
    parameters_.prefetch_gradients({piece.begin, piece.end});
    if (separate_master) {
      arena_.prefetch(master);  // its copy in the compute type is only written
    } else {
      parameters_.prefetch_values({piece.begin, piece.end});
    }
    arena_.prefetch(first_moment);
    arena_.prefetch(second_moment);
  };
  const auto give_up = [&](const Piece& piece) {
    const auto [master, first_moment, second_moment] = states(piece);
    parameters_.give_up_gradients({piece.begin, piece.end});
    parameters_.give_up_values({piece.begin, piece.end});
    if (separate_master) arena_.give_up(master);
    arena_.give_up(first_moment);
    arena_.give_up(second_moment);
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i + 1 < pieces.size()) prefetch(pieces[i + 1]);
    const Piece& piece = pieces[i];
    const auto [master, first_moment, second_moment] = states(piece);
    const TensorView gradient = parameters_.gradients(piece.begin, piece.end);
    const TensorView copy = separate_master ? parameters_.values(piece.begin, piece.end) : TensorView();
    adam.weight_decay = sgd.weight_decay = piece.decay;
    switch (config_.type) {
      case OptimizerType::adamw:
        adamw_update(context, adam, master, first_moment, second_moment, gradient, copy);
        break;
      case OptimizerType::lamb:
        lamb_update(context, adam, master, first_moment, second_moment, gradient, copy);
        break;
      case OptimizerType::sgd:
        sgd_update(context, sgd, master, first_moment, gradient, copy);
        break;
    }
    give_up(piece);
  }
}

std::vector<Optimizer::Piece> Optimizer::pieces() const {
  // Large enough to share out over threads and for the disk, small beside the states.
  constexpr int64_t kPiece = int64_t{1} << 22;
  std::vector<Piece> pieces;
  for (const ParameterSlot& slot : parameters_.slots()) {
    const float decay = slot.parameter->decay ? static_cast<float>(config_.weight_decay) : 0.0f;
    const int64_t end = std::min(slot.offset + slot.elements, range_.end);
    // LAMB needs whole tensors.
    const int64_t most = config_.type == OptimizerType::lamb ? slot.elements : kPiece;
    for (int64_t begin = std::max(slot.offset, range_.begin); begin < end; begin += most)
      pieces.push_back({begin, std::min(end, begin + most), decay});
  }
  return pieces;
}

void Optimizer::refresh_values(const ExecContext& context) {
  if (parameters_.values().dtype() != DType::f32) {
    convert(context, master_, parameters_.values(range_.begin, range_.end));
  }
}

size_t Optimizer::bytes_per_element(const OptimizerConfig& config, DType compute) {
  return (compute != DType::f32 ? 4u : 0u) + (has_first_moment(config) ? 4u : 0u) +
         (config.type != OptimizerType::sgd ? 4u : 0u);
}

}  // namespace megalith
