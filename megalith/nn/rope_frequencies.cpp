#include "megalith/nn/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megalith {

namespace {

std::vector<double> plain_frequencies(double base, int64_t columns) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < columns / 2; ++i) {
    frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(columns)));
  }
  return frequencies;
}

/// The frequency number, counted in fractions, whose wave turns `turns` times within the original context.
double yarn_correction(const RopeOptions& options, double turns) {
  return static_cast<double>(options.columns) *
         std::log(static_cast<double>(options.original_positions) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(options.base));
}

void stretch_yarn(const RopeOptions& options, std::vector<double>& frequencies) {
  const double low = std::max(std::floor(yarn_correction(options, options.beta_fast)), 0.0);
  double high = std::min(std::ceil(yarn_correction(options, options.beta_slow)),
                         static_cast<double>(options.columns - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= stretched / options.factor + (1 - stretched);
  }
}

void stretch_llama3(const RopeOptions& options, std::vector<double>& frequencies) {
  const double original = static_cast<double>(options.original_positions);
  for (double& frequency : frequencies) {
    const double turns = original * frequency / (2 * std::numbers::pi);  // original over the wavelength
    if (turns > options.high_frequency_factor) continue;
    if (turns < options.low_frequency_factor) {
      frequency /= options.factor;
    } else {
      const double smooth = (turns - options.low_frequency_factor) /
                            (options.high_frequency_factor - options.low_frequency_factor);
      frequency *= (1 - smooth) / options.factor + smooth;
    }
  }
}

}  // namespace

RopeFrequencies::RopeFrequencies(const RopeOptions& options) : options_(options) {
  if (options.columns == 0) return;
  if (options.scaling == RopeScaling::longrope) {
    const size_t pairs = static_cast<size_t>(options.columns / 2);
    check(options.short_factors.size() == pairs && options.long_factors.size() == pairs,
          "longrope: {} and {} factors for {} frequencies", options.short_factors.size(),
          options.long_factors.size(), pairs);
  }
  const std::vector<double> frequencies = inverse_frequencies(options.original_positions);
  within_original_.assign(frequencies.begin(), frequencies.end());
}

std::vector<double> RopeFrequencies::inverse_frequencies(int64_t length) const {
  double base = options_.base;
  if (options_.scaling == RopeScaling::dynamic && length > options_.original_positions) {
    const double columns = static_cast<double>(options_.columns);
    const double excess = static_cast<double>(length) / static_cast<double>(options_.original_positions);
    base *= std::pow(options_.factor * excess - (options_.factor - 1), columns / (columns - 2));
  }
  std::vector<double> frequencies = plain_frequencies(base, options_.columns);
  switch (options_.scaling) {
    case RopeScaling::none:
    case RopeScaling::dynamic:
      break;
    case RopeScaling::linear:
      for (double& frequency : frequencies) frequency /= options_.factor;
      break;
    case RopeScaling::yarn:
      stretch_yarn(options_, frequencies);
      break;
    case RopeScaling::llama3:
      stretch_llama3(options_, frequencies);
      break;
    case RopeScaling::longrope: {
      const auto& factors =
          length > options_.original_positions ? options_.long_factors : options_.short_factors;
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
      break;
    }
  }
  return frequencies;
}

double RopeFrequencies::magnitude() const {
  const bool has_rule = options_.scaling == RopeScaling::yarn || options_.scaling == RopeScaling::longrope;
  if (!has_rule) return 1;
  if (options_.attention_factor > 0) return options_.attention_factor;
  if (options_.factor <= 1) return 1;
  if (options_.scaling == RopeScaling::yarn) return 0.1 * std::log(options_.factor) + 1;
  return std::sqrt(1 +
                   std::log(options_.factor) / std::log(static_cast<double>(options_.original_positions)));
}

RopeAngles RopeFrequencies::angles(const ExecContext& exec, int64_t length) const {
  const Shape shape{static_cast<int64_t>(within_original_.size())};
  const float size = static_cast<float>(magnitude());
  const bool depends_on_length =
      options_.scaling == RopeScaling::dynamic || options_.scaling == RopeScaling::longrope;
  if (!depends_on_length || length <= options_.original_positions) {
    return {{const_cast<float*>(within_original_.data()), DType::f32, shape}, size};
  }
  const std::vector<double> frequencies = inverse_frequencies(length);
  const TensorView view = exec.workspace.allocate(DType::f32, shape);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    view.data<float>()[i] = static_cast<float>(frequencies[i]);
  }
  return {view, size};
}

}  // namespace megalith
