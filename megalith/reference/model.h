// The whole decoder-only transformer, forward and backward, from the layers. Parameters are a map from the
// names that the real model uses to their values.
#pragma once

#include <map>
#include <string>

#include "megalith/reference/attention.h"
#include "megalith/reference/layers.h"

namespace megalith::reference {

struct ModelShape {
  int vocabulary = 0, layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_size = 0, inner = 0;
  bool learned_positions = true;  // else rotary, over whole heads
  double rope_base = 10000;
  bool centered_norm = true;  // LayerNorm, else RMSNorm
  double epsilon = 1e-5;
  Activation activation = Activation::gelu_tanh;
  bool tied = true;
};

struct Tokens {
  int batch = 1, length = 1;
  std::vector<int> ids, targets, positions;
  std::vector<double> weights;  // of each token's loss
  std::vector<int> starts;      // first visible key of each query, or empty
};

template <class T>
using ParameterMap = std::map<std::string, Values<T>>;

template <class T>
class Model {
 public:
  Model(const ModelShape& shape, const ParameterMap<T>& parameters) : s_(shape), p_(parameters) {}

  /// Weighted sum of the token losses; with `gradients`, fills one entry a parameter. `logits` may be null.
  T loss(const Tokens& tokens, ParameterMap<T>* gradients, Values<T>* logits) const {
    const int n = tokens.batch * tokens.length, c = s_.hidden;
    const int packed = (s_.heads + 2 * s_.kv_heads) * s_.head_size;
    AttentionShape attention_shape{tokens.batch, tokens.length, s_.heads, s_.kv_heads, s_.head_size};
    attention_shape.scale = 1.0 / std::sqrt(static_cast<double>(s_.head_size));
    const AttentionMask mask{{}, tokens.starts};
    std::vector<double> frequencies;
    for (int i = 0; !s_.learned_positions && i < s_.head_size / 2; ++i) {
      frequencies.push_back(std::pow(s_.rope_base, -2.0 * i / s_.head_size));
    }

    struct Layer {
      Values<T> x, normalized, qkv, probabilities, attended, middle, normalized2, inner, activated;
    };
    std::vector<Layer> saved(static_cast<size_t>(s_.layers));
    Values<T> x(static_cast<size_t>(n) * c);
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < c; ++k) {
        x[static_cast<size_t>(i) * c + k] =
            get("embedding.token.weight")[static_cast<size_t>(tokens.ids[i]) * c + k];
        if (s_.learned_positions) {
          x[static_cast<size_t>(i) * c + k] +=
              get("embedding.position.weight")[static_cast<size_t>(tokens.positions[i]) * c + k];
        }
      }
    }
    for (int l = 0; l < s_.layers; ++l) {
      Layer& a = saved[static_cast<size_t>(l)];
      const std::string name = "layers." + std::to_string(l) + ".";
      a.x = x;
      a.normalized = norm(x, get(name + "attention_norm.weight"), get(name + "attention_norm.bias"),
                          s_.centered_norm, s_.epsilon, n, c);
      a.qkv = linear(a.normalized, get(name + "attention.query_key_value.weight"),
                     get(name + "attention.query_key_value.bias"), n, c, packed);
      if (!s_.learned_positions) {
        rope(a.qkv, tokens.positions, frequencies, 1.0, false, 1, packed, s_.heads + s_.kv_heads,
             s_.head_size);
      }
      a.attended = attention(a.qkv, attention_shape, mask, a.probabilities);
      const Values<T> branch = linear(a.attended, get(name + "attention.output.weight"),
                                      get(name + "attention.output.bias"), n, s_.heads * s_.head_size, c);
      add(x, branch);
      a.middle = x;
      a.normalized2 = norm(x, get(name + "feed_forward_norm.weight"), get(name + "feed_forward_norm.bias"),
                           s_.centered_norm, s_.epsilon, n, c);
      a.inner = linear(a.normalized2, get(name + "feed_forward.up.weight"),
                       get(name + "feed_forward.up.bias"), n, c, up_width());
      a.activated = activation(s_.activation, a.inner, n, s_.inner);
      add(x, linear(a.activated, get(name + "feed_forward.down.weight"), get(name + "feed_forward.down.bias"),
                    n, s_.inner, c));
    }
    const std::string head = s_.tied ? "embedding.token.weight" : "head.weight";
    const Values<T> normalized =
        norm(x, get("final_norm.weight"), get("final_norm.bias"), s_.centered_norm, s_.epsilon, n, c);
    const Values<T> scores = linear(normalized, get(head), Values<T>(), n, c, s_.vocabulary);
    if (logits != nullptr) *logits = scores;
    Values<T> d_scores;
    const T total = cross_entropy(scores, tokens.targets, tokens.weights, s_.vocabulary, s_.vocabulary,
                                  gradients != nullptr ? &d_scores : nullptr);
    if (gradients == nullptr) return total;

    ParameterMap<T>& g = *gradients;
    g.clear();
    for (const auto& [name, values] : p_) g[name].assign(values.size(), T(0));
    Values<T> none;
    Values<T> d =
        norm_backward(linear_backward(d_scores, normalized, get(head), n, c, s_.vocabulary, g[head], none), x,
                      get("final_norm.weight"), s_.centered_norm, s_.epsilon, n, c, g["final_norm.weight"],
                      bias(g, "final_norm.bias", none));
    for (int l = s_.layers; l-- > 0;) {
      const Layer& a = saved[static_cast<size_t>(l)];
      const std::string name = "layers." + std::to_string(l) + ".";
      const Values<T> d_activated = linear_backward(d, a.activated, get(name + "feed_forward.down.weight"), n,
                                                    s_.inner, c, g[name + "feed_forward.down.weight"],
                                                    bias(g, name + "feed_forward.down.bias", none));
      const Values<T> d_inner = activation_backward(s_.activation, d_activated, a.inner, n, s_.inner);
      const Values<T> d_normalized2 =
          linear_backward(d_inner, a.normalized2, get(name + "feed_forward.up.weight"), n, c, up_width(),
                          g[name + "feed_forward.up.weight"], bias(g, name + "feed_forward.up.bias", none));
      add(d, norm_backward(d_normalized2, a.middle, get(name + "feed_forward_norm.weight"), s_.centered_norm,
                           s_.epsilon, n, c, g[name + "feed_forward_norm.weight"],
                           bias(g, name + "feed_forward_norm.bias", none)));
      const Values<T> d_attended =
          linear_backward(d, a.attended, get(name + "attention.output.weight"), n, s_.heads * s_.head_size, c,
                          g[name + "attention.output.weight"], bias(g, name + "attention.output.bias", none));
      Values<T> d_qkv = attention_backward(d_attended, a.qkv, attention_shape, mask, a.probabilities);
      if (!s_.learned_positions) {
        rope(d_qkv, tokens.positions, frequencies, 1.0, false, -1, packed, s_.heads + s_.kv_heads,
             s_.head_size);
      }
      const Values<T> d_normalized =
          linear_backward(d_qkv, a.normalized, get(name + "attention.query_key_value.weight"), n, c, packed,
                          g[name + "attention.query_key_value.weight"],
                          bias(g, name + "attention.query_key_value.bias", none));
      add(d, norm_backward(d_normalized, a.x, get(name + "attention_norm.weight"), s_.centered_norm,
                           s_.epsilon, n, c, g[name + "attention_norm.weight"],
                           bias(g, name + "attention_norm.bias", none)));
    }
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < c; ++k) {
        g["embedding.token.weight"][static_cast<size_t>(tokens.ids[i]) * c + k] +=
            d[static_cast<size_t>(i) * c + k];
        if (s_.learned_positions) {
          g["embedding.position.weight"][static_cast<size_t>(tokens.positions[i]) * c + k] +=
              d[static_cast<size_t>(i) * c + k];
        }
      }
    }
    return total;
  }

 private:
  /// Empty when the model has no such parameter (biases).
  const Values<T>& get(const std::string& name) const {
    static const Values<T> kNone;
    const auto found = p_.find(name);
    return found == p_.end() ? kNone : found->second;
  }
  static Values<T>& bias(ParameterMap<T>& gradients, const std::string& name, Values<T>& none) {
    const auto found = gradients.find(name);
    return found == gradients.end() ? none : found->second;
  }
  static void add(Values<T>& to, const Values<T>& what) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }
  int up_width() const { return is_gated(s_.activation) ? 2 * s_.inner : s_.inner; }

  ModelShape s_;
  const ParameterMap<T>& p_;
};

}  // namespace megalith::reference
