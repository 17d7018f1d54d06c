// The mathematics of every layer, forward and backward, as plain loops. Row-major arrays; shape letters as in
// DESIGN: N rows, C hidden, F feed-forward, H heads, K key/value heads, D head size, V vocabulary. Input
// gradients are returned, parameter gradients accumulate.
#pragma once

#include <algorithm>

#include "megalith/reference/math.h"

namespace megalith::reference {

/// y[N,F] = x[N,C] w[F,C]^T + b; b may be empty.
template <class T>
Values<T> linear(const Values<T>& x, const Values<T>& w, const Values<T>& b, int n, int c, int f) {
  Values<T> y(static_cast<size_t>(n) * f);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < f; ++j) {
      T sum = b.empty() ? T(0) : b[j];
      for (int k = 0; k < c; ++k)
        sum += x[static_cast<size_t>(i) * c + k] * w[static_cast<size_t>(j) * c + k];
      y[static_cast<size_t>(i) * f + j] = sum;
    }
  }
  return y;
}

template <class T>
Values<T> linear_backward(const Values<T>& dy, const Values<T>& x, const Values<T>& w, int n, int c, int f,
                          Values<T>& dw, Values<T>& db) {
  Values<T> dx(static_cast<size_t>(n) * c, T(0));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < f; ++j) {
      const T g = dy[static_cast<size_t>(i) * f + j];
      if (!db.empty()) db[j] += g;
      for (int k = 0; k < c; ++k) {
        dx[static_cast<size_t>(i) * c + k] += g * w[static_cast<size_t>(j) * c + k];
        dw[static_cast<size_t>(j) * c + k] += g * x[static_cast<size_t>(i) * c + k];
      }
    }
  }
  return dx;
}

/// LayerNorm when `centered`, else RMSNorm; b may be empty.
template <class T>
Values<T> norm(const Values<T>& x, const Values<T>& w, const Values<T>& b, bool centered, double epsilon,
               int n, int c) {
  Values<T> y(x.size());
  for (int i = 0; i < n; ++i) {
    const T* row = &x[static_cast<size_t>(i) * c];
    T mean(0), variance(0);
    if (centered) {
      for (int k = 0; k < c; ++k) mean += row[k];
      mean /= T(c);
    }
    for (int k = 0; k < c; ++k) variance += (row[k] - mean) * (row[k] - mean);
    const T rstd = T(1) / std::sqrt(variance / T(c) + T(epsilon));
    for (int k = 0; k < c; ++k) {
      y[static_cast<size_t>(i) * c + k] = (row[k] - mean) * rstd * w[k] + (b.empty() ? T(0) : b[k]);
    }
  }
  return y;
}

template <class T>
Values<T> norm_backward(const Values<T>& dy, const Values<T>& x, const Values<T>& w, bool centered,
                        double epsilon, int n, int c, Values<T>& dw, Values<T>& db) {
  Values<T> dx(x.size());
  for (int i = 0; i < n; ++i) {
    const size_t at = static_cast<size_t>(i) * c;
    T mean(0), variance(0);
    if (centered) {
      for (int k = 0; k < c; ++k) mean += x[at + k];
      mean /= T(c);
    }
    for (int k = 0; k < c; ++k) variance += (x[at + k] - mean) * (x[at + k] - mean);
    const T rstd = T(1) / std::sqrt(variance / T(c) + T(epsilon));
    T sum(0), projection(0);
    for (int k = 0; k < c; ++k) {
      const T normalized = (x[at + k] - mean) * rstd;
      dw[k] += dy[at + k] * normalized;
      if (!db.empty()) db[k] += dy[at + k];
      sum += dy[at + k] * w[k];
      projection += dy[at + k] * w[k] * normalized;
    }
    for (int k = 0; k < c; ++k) {
      const T normalized = (x[at + k] - mean) * rstd;
      T inner = dy[at + k] * w[k] - normalized * projection / T(c);
      if (centered) inner -= sum / T(c);
      dx[at + k] = inner * rstd;
    }
  }
  return dx;
}

enum class Activation { gelu_tanh, gelu_erf, relu, silu, swiglu, geglu_tanh, geglu_erf };

inline bool is_gated(Activation a) {
  return a >= Activation::swiglu;
}

template <class T>
T activate(Activation kind, T x) {
  switch (kind) {
    case Activation::relu:
      return real_part(x) > 0 ? x : T(0);
    case Activation::silu:
    case Activation::swiglu:
      return x / (T(1) + std::exp(-x));
    case Activation::gelu_erf:
    case Activation::geglu_erf:
      return T(0.5) * x * (T(1) + error_function(x * T(0.7071067811865476)));
    default:
      return T(0.5) * x * (T(1) + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
  }
}

template <class T>
T activate_derivative(Activation kind, T x) {
  switch (kind) {
    case Activation::relu:
      return real_part(x) > 0 ? T(1) : T(0);
    case Activation::silu:
    case Activation::swiglu: {
      const T s = T(1) / (T(1) + std::exp(-x));
      return s * (T(1) + x * (T(1) - s));
    }
    case Activation::gelu_erf:
    case Activation::geglu_erf:
      return T(0.5) * (T(1) + error_function(x * T(0.7071067811865476))) +
             x * T(0.3989422804014327) * std::exp(-T(0.5) * x * x);
    default: {
      const T inner = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
      const T t = std::tanh(inner);
      return T(0.5) * (T(1) + t) +
             T(0.5) * x * (T(1) - t * t) * T(0.7978845608028654) * (T(1) + T(3 * 0.044715) * x * x);
    }
  }
}

/// x [N,F], or [N,2F] (gate columns, then up columns) for a gated kind; y [N,F].
template <class T>
Values<T> activation(Activation kind, const Values<T>& x, int n, int f) {
  Values<T> y(static_cast<size_t>(n) * f);
  const int width = is_gated(kind) ? 2 * f : f;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < f; ++j) {
      const T gate = activate(kind, x[static_cast<size_t>(i) * width + j]);
      y[static_cast<size_t>(i) * f + j] =
          is_gated(kind) ? gate * x[static_cast<size_t>(i) * width + f + j] : gate;
    }
  }
  return y;
}

template <class T>
Values<T> activation_backward(Activation kind, const Values<T>& dy, const Values<T>& x, int n, int f) {
  Values<T> dx(x.size());
  const int width = is_gated(kind) ? 2 * f : f;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < f; ++j) {
      const size_t at = static_cast<size_t>(i) * width + j;
      const T g = dy[static_cast<size_t>(i) * f + j];
      if (is_gated(kind)) {
        dx[at] = g * x[at + f] * activate_derivative(kind, x[at]);
        dx[at + f] = g * activate(kind, x[at]);
      } else {
        dx[at] = g * activate_derivative(kind, x[at]);
      }
    }
  }
  return dx;
}

/// Rotary embedding of the first R columns of `heads` heads of each row, in place; rotated columns grow by
/// `magnitude`. direction is +1 or -1.
template <class T>
void rope(Values<T>& packed, const std::vector<int>& positions, const std::vector<double>& inverse_frequency,
          double magnitude, bool interleaved, int direction, int columns, int heads, int d) {
  const int half = static_cast<int>(inverse_frequency.size());
  for (size_t n = 0; n < positions.size(); ++n) {
    for (int h = 0; h < heads; ++h) {
      T* head = &packed[n * columns + static_cast<size_t>(h) * d];
      for (int i = 0; i < half; ++i) {
        const double angle = direction * positions[n] * inverse_frequency[i];
        T& a = head[interleaved ? 2 * i : i];
        T& b = head[interleaved ? 2 * i + 1 : i + half];
        const T cosine(magnitude * std::cos(angle)), sine(magnitude * std::sin(angle));
        const T rotated_a = a * cosine - b * sine;
        b = a * sine + b * cosine;
        a = rotated_a;
      }
    }
  }
}

/// cap * tanh(scale * x / cap), or scale * x when cap is 0.
template <class T>
Values<T> soft_cap(const Values<T>& x, double scale, double cap) {
  Values<T> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = cap > 0 ? T(cap) * std::tanh(x[i] * T(scale / cap)) : T(scale) * x[i];
  }
  return y;
}

template <class T>
Values<T> soft_cap_backward(const Values<T>& dy, const Values<T>& x, double scale, double cap) {
  Values<T> dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const T t = cap > 0 ? std::tanh(x[i] * T(scale / cap)) : T(0);
    dx[i] = dy[i] * T(scale) * (T(1) - t * t);
  }
  return dx;
}

/// RMSNorm of `heads` heads of d columns at column `first` of each packed row, in place.
template <class T>
void head_norm(Values<T>& packed, const Values<T>& w, double epsilon, int n, int columns, int first,
               int heads, int d) {
  for (int i = 0; i < n * heads; ++i) {
    T* head = &packed[static_cast<size_t>(i / heads) * columns + first + i % heads * d];
    const Values<T> y = norm(Values<T>(head, head + d), w, Values<T>(), false, epsilon, 1, d);
    std::copy(y.begin(), y.end(), head);
  }
}

/// `before` is what the heads were; d_packed is replaced.
template <class T>
void head_norm_backward(Values<T>& d_packed, const Values<T>& before, const Values<T>& w, double epsilon,
                        int n, int columns, int first, int heads, int d, Values<T>& dw) {
  Values<T> none;
  for (int i = 0; i < n * heads; ++i) {
    const size_t at = static_cast<size_t>(i / heads) * columns + first + i % heads * d;
    const Values<T> dy(&d_packed[at], &d_packed[at] + d), x(&before[at], &before[at] + d);
    const Values<T> dx = norm_backward(dy, x, w, false, epsilon, 1, d, dw, none);
    std::copy(dx.begin(), dx.end(), &d_packed[at]);
  }
}

/// Sum of weights[n] * (log sum exp logits[n, :vocabulary] - logits[n, target]); a negative target does not
/// count. With dlogits, fills it with the gradient. logits [N,V].
template <class T>
T cross_entropy(const Values<T>& logits, const std::vector<int>& targets, const std::vector<double>& weights,
                int vocabulary, int v, Values<T>* dlogits) {
  T total(0);
  if (dlogits != nullptr) dlogits->assign(logits.size(), T(0));
  for (size_t n = 0; n < targets.size(); ++n) {
    if (targets[n] < 0) continue;
    const T* row = &logits[n * v];
    double largest = -1e300;
    for (int j = 0; j < vocabulary; ++j) largest = std::max(largest, real_part(row[j]));
    T sum(0);
    for (int j = 0; j < vocabulary; ++j) sum += std::exp(row[j] - T(largest));
    total += T(weights[n]) * (std::log(sum) + T(largest) - row[targets[n]]);
    if (dlogits == nullptr) continue;
    for (int j = 0; j < vocabulary; ++j) {
      (*dlogits)[n * v + j] =
          T(weights[n]) * (std::exp(row[j] - T(largest)) / sum - T(j == targets[n] ? 1 : 0));
    }
  }
  return total;
}

}  // namespace megalith::reference
