// Attention, forward and backward, as plain loops over all pairs of query and key.
#pragma once

#include <algorithm>

#include "megalith/reference/math.h"

namespace megalith::reference {

struct AttentionShape {
  int batch = 1, tokens = 1, heads = 1, kv_heads = 1, head_size = 1;
  double scale = 1;
  bool causal = true;
  int window = 0;                   // 0 for none
  double softcap = 0;               // 0 for none
  std::vector<double> slopes = {};  // ALiBi's, of each head, or empty
};

/// Factors that multiply probabilities (0 or 1/(1-p)), [B,H,T,T]; empty for none. starts [B*T]: first token
/// of each token's document, or empty.
struct AttentionMask {
  std::vector<double> keep;
  std::vector<int> starts;
};

inline bool sees(const AttentionShape& s, const AttentionMask& mask, int batch, int query, int key) {
  const size_t row = static_cast<size_t>(batch) * s.tokens;
  if (!mask.starts.empty() && mask.starts[row + query] != mask.starts[row + key]) return false;
  if (s.causal && key > query) return false;
  return s.window == 0 || std::abs(query - key) < s.window;
}

/// ALiBi's slopes of `heads` heads (Press et al.; other head counts than powers of two as their code does
/// it): 2^(-8 i / n), i = 1 .. n, for the largest power of two n <= heads, then every second one of those for
/// 2 n.
inline std::vector<double> alibi_slopes(int heads) {
  int n = 1;
  while (2 * n <= heads) n *= 2;
  std::vector<double> slopes;
  for (int i = 1; i <= n; ++i) slopes.push_back(std::pow(2.0, -8.0 * i / n));
  for (int i = 1; static_cast<int>(slopes.size()) < heads; i += 2)
    slopes.push_back(std::pow(2.0, -4.0 * i / n));
  return slopes;
}

/// Packed qkv [B*T, (H+2K) D]; out [B*T, H D]. Fills probabilities [B,H,T,T].
template <class T>
Values<T> attention(const Values<T>& qkv, const AttentionShape& s, const AttentionMask& mask,
                    Values<T>& probabilities) {
  const int columns = (s.heads + 2 * s.kv_heads) * s.head_size, d = s.head_size, t_count = s.tokens;
  Values<T> out(static_cast<size_t>(s.batch) * t_count * s.heads * d, T(0));
  probabilities.assign(static_cast<size_t>(s.batch) * s.heads * t_count * t_count, T(0));
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const int kv = h / (s.heads / s.kv_heads);
      for (int t = 0; t < t_count; ++t) {
        const T* q = &qkv[(static_cast<size_t>(b) * t_count + t) * columns + h * d];
        const size_t row = ((static_cast<size_t>(b) * s.heads + h) * t_count + t) * t_count;
        T* p = &probabilities[row];
        double largest = -1e300;
        for (int k = 0; k < t_count; ++k) {
          if (!sees(s, mask, b, t, k)) continue;
          const T* key = &qkv[(static_cast<size_t>(b) * t_count + k) * columns + (s.heads + kv) * d];
          T dot(0);
          for (int i = 0; i < d; ++i) dot += q[i] * key[i];
          p[k] = dot * T(s.scale);
          if (s.softcap > 0) p[k] = T(s.softcap) * std::tanh(p[k] / T(s.softcap));
          if (!s.slopes.empty()) p[k] += T(s.slopes[static_cast<size_t>(h)] * (k - t));
          largest = std::max(largest, real_part(p[k]));
        }
        T total(0);
        for (int k = 0; k < t_count; ++k) {
          if (sees(s, mask, b, t, k)) total += (p[k] = std::exp(p[k] - T(largest)));
        }
        T* o = &out[(static_cast<size_t>(b) * t_count + t) * s.heads * d + h * d];
        for (int k = 0; k < t_count; ++k) {
          p[k] /= total;
          const T weight = mask.keep.empty() ? p[k] : p[k] * T(mask.keep[row + k]);
          const T* value =
              &qkv[(static_cast<size_t>(b) * t_count + k) * columns + (s.heads + s.kv_heads + kv) * d];
          for (int i = 0; i < d; ++i) o[i] += weight * value[i];
        }
      }
    }
  }
  return out;
}

template <class T>
Values<T> attention_backward(const Values<T>& dout, const Values<T>& qkv, const AttentionShape& s,
                             const AttentionMask& mask, const Values<T>& probabilities) {
  const int columns = (s.heads + 2 * s.kv_heads) * s.head_size, d = s.head_size, t_count = s.tokens;
  Values<T> dqkv(qkv.size(), T(0));
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const int kv = h / (s.heads / s.kv_heads);
      for (int t = 0; t < t_count; ++t) {
        const size_t q_at = (static_cast<size_t>(b) * t_count + t) * columns + h * d;
        const size_t row = ((static_cast<size_t>(b) * s.heads + h) * t_count + t) * t_count;
        const T* p = &probabilities[row];
        const T* g = &dout[(static_cast<size_t>(b) * t_count + t) * s.heads * d + h * d];
        Values<T> dp(t_count, T(0));
        T inner(0);
        for (int k = 0; k < t_count; ++k) {
          const size_t v_at =
              (static_cast<size_t>(b) * t_count + k) * columns + (s.heads + s.kv_heads + kv) * d;
          const T keep = mask.keep.empty() ? T(1) : T(mask.keep[row + k]);
          T dot(0);
          for (int i = 0; i < d; ++i) {
            dot += g[i] * qkv[v_at + i];
            dqkv[v_at + i] += p[k] * keep * g[i];
          }
          dp[k] = dot * keep;
          inner += dp[k] * p[k];
        }
        for (int k = 0; k < t_count; ++k) {
          const size_t k_at = (static_cast<size_t>(b) * t_count + k) * columns + (s.heads + kv) * d;
          T ds = p[k] * (dp[k] - inner) * T(s.scale);
          if (s.softcap > 0) {
            T dot(0);
            for (int i = 0; i < d; ++i) dot += qkv[q_at + i] * qkv[k_at + i];
            const T t_capped = std::tanh(dot * T(s.scale / s.softcap));
            ds *= T(1) - t_capped * t_capped;
          }
          for (int i = 0; i < d; ++i) {
            dqkv[q_at + i] += ds * qkv[k_at + i];
            dqkv[k_at + i] += ds * qkv[q_at + i];
          }
        }
      }
    }
  }
  return dqkv;
}

}  // namespace megalith::reference
