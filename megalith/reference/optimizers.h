// AdamW, SGD with momentum and LAMB on one tensor, as their papers (and PyTorch, for SGD) state them.
#pragma once

#include "megalith/reference/math.h"

namespace megalith::reference {

struct AdamSettings {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

/// `step` counts from 1.
template <class T>
void adamw(Values<T>& w, Values<T>& m, Values<T>& v, const Values<T>& g, const AdamSettings& s, int step) {
  const T c1 = T(1 - std::pow(s.beta1, step)), c2 = T(1 - std::pow(s.beta2, step));
  for (size_t i = 0; i < w.size(); ++i) {
    m[i] = T(s.beta1) * m[i] + T(1 - s.beta1) * g[i];
    v[i] = T(s.beta2) * v[i] + T(1 - s.beta2) * g[i] * g[i];
    w[i] -=
        T(s.learning_rate) * (m[i] / c1 / (std::sqrt(v[i] / c2) + T(s.epsilon)) + T(s.weight_decay) * w[i]);
  }
}

template <class T>
void sgd(Values<T>& w, Values<T>& u, const Values<T>& g, double learning_rate, double momentum,
         double weight_decay) {
  for (size_t i = 0; i < w.size(); ++i) {
    const T gradient = g[i] + T(weight_decay) * w[i];
    u[i] = T(momentum) * u[i] + gradient;
    w[i] -= T(learning_rate) * u[i];
  }
}

template <class T>
void lamb(Values<T>& w, Values<T>& m, Values<T>& v, const Values<T>& g, const AdamSettings& s, int step) {
  const T c1 = T(1 - std::pow(s.beta1, step)), c2 = T(1 - std::pow(s.beta2, step));
  Values<T> r(w.size());
  T weight_norm(0), update_norm(0);
  for (size_t i = 0; i < w.size(); ++i) {
    m[i] = T(s.beta1) * m[i] + T(1 - s.beta1) * g[i];
    v[i] = T(s.beta2) * v[i] + T(1 - s.beta2) * g[i] * g[i];
    r[i] = m[i] / c1 / (std::sqrt(v[i] / c2) + T(s.epsilon)) + T(s.weight_decay) * w[i];
    weight_norm += w[i] * w[i];
    update_norm += r[i] * r[i];
  }
  const bool degenerate = real_part(weight_norm) == 0 || real_part(update_norm) == 0;
  const T ratio = degenerate ? T(1) : std::sqrt(weight_norm) / std::sqrt(update_norm);
  for (size_t i = 0; i < w.size(); ++i) w[i] -= T(s.learning_rate) * ratio * r[i];
}

}  // namespace megalith::reference
