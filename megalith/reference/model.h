// The whole transformer, forward and backward, from the layers. Parameters are a map from the names that the
// real model uses to their values; biases, tables and norms that are not in it are not in the model.
#pragma once

#include <map>
#include <string>

#include "megalith/reference/attention.h"
#include "megalith/reference/layers.h"

namespace megalith::reference {

/// Where a branch is normalised, and whether the feed-forward branch starts from the attention branch's
/// input.
enum class NormPlacement { pre, post, both };
enum class BranchOrder { sequential, parallel, parallel_shared_norm };

struct LayerRule {
  int window = 0;                   // 0 for none
  std::vector<double> frequencies;  // inverse ones of the rotary embedding; empty without
};

struct ModelShape {
  int vocabulary = 0, layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_size = 0, inner = 0;
  std::vector<LayerRule> rules;  // one a layer
  double rope_magnitude = 1;
  bool causal = true, alibi = false;
  double attention_scale = 1, attention_softcap = 0;
  bool centered_norm = true;  // LayerNorm, else RMSNorm
  double epsilon = 1e-5;
  NormPlacement placement = NormPlacement::pre;
  BranchOrder order = BranchOrder::sequential;
  double embedding_scale = 1, logit_scale = 1, logit_softcap = 0;
  Activation activation = Activation::gelu_tanh;
  bool tied = true;
};

struct Tokens {
  int batch = 1, length = 1;
  std::vector<int> ids, targets, positions;
  std::vector<int> types;       // or empty: all of type 0
  std::vector<double> weights;  // of each token's loss
  std::vector<int> starts;      // first token of each token's document, or empty
};

template <class T>
using ParameterMap = std::map<std::string, Values<T>>;

template <class T>
class Model {
 public:
  Model(const ModelShape& shape, const ParameterMap<T>& parameters) : s_(shape), p_(parameters) {}

  /// Weighted sum of the token losses; with `gradients`, fills one entry a parameter. `logits` [N,V] and
  /// `hidden`, the states behind the final norm [N,C], may be null.
  T loss(const Tokens& tokens, ParameterMap<T>* gradients, Values<T>* logits,
         Values<T>* hidden = nullptr) const {
    const int n = tokens.batch * tokens.length, c = s_.hidden;
    const Values<T> sum = embed(tokens);
    Values<T> x = has("embedding.norm") ? normalize(sum, "embedding.norm") : sum;
    std::vector<Branch> attention_saved(static_cast<size_t>(s_.layers)), inner_saved(attention_saved);
    for (int l = 0; l < s_.layers; ++l) {
      const size_t at = static_cast<size_t>(l);
      const Values<T> middle = branch(tokens, l, true, x, x, attention_saved[at]);
      x = branch(tokens, l, false, parallel() ? x : middle, middle, inner_saved[at]);
    }
    const Values<T> states = has("final_norm") ? normalize(x, "final_norm") : x;
    if (hidden != nullptr) *hidden = states;
    // The dense layer and norm of a masked language model.
    Values<T> dense, activated, transformed = states;
    const bool masked = has("head.dense");
    if (masked) {
      dense = product(states, "head.dense", n, c, c);
      activated = activation(s_.activation, dense, n, c);
      transformed = normalize(activated, "head.norm");
    }
    const std::string head = s_.tied ? "embedding.token.weight" : "head.weight";
    const Values<T> scores = linear(transformed, get(head), get("head.bias"), n, c, s_.vocabulary);
    const Values<T> capped = soft_cap(scores, s_.logit_scale, s_.logit_softcap);
    if (logits != nullptr) *logits = capped;
    Values<T> d_logits;
    const T total = cross_entropy(capped, tokens.targets, tokens.weights, s_.vocabulary, s_.vocabulary,
                                  gradients != nullptr ? &d_logits : nullptr);
    if (gradients == nullptr) return total;

    ParameterMap<T>& g = *gradients;
    g.clear();
    for (const auto& [name, values] : p_) g[name].assign(values.size(), T(0));
    const Values<T> d_scores = soft_cap_backward(d_logits, scores, s_.logit_scale, s_.logit_softcap);
    Values<T> d = linear_backward(d_scores, transformed, get(head), n, c, s_.vocabulary, g[head],
                                  gradient(g, "head.bias"));
    if (masked) {
      d = activation_backward(s_.activation, normalize_backward(d, activated, "head.norm", g), dense, n, c);
      d = product_backward(d, states, "head.dense", n, c, c, g);
    }
    if (has("final_norm")) d = normalize_backward(d, x, "final_norm", g);
    for (int l = s_.layers; l-- > 0;) {
      const size_t at = static_cast<size_t>(l);
      Values<T> d_middle, d_residual;
      const Values<T> d_inner = branch_backward(tokens, l, false, d, inner_saved[at], d_middle, g);
      if (!parallel()) add(d_middle, d_inner);
      d = branch_backward(tokens, l, true, d_middle, attention_saved[at], d_residual, g);
      add(d, d_residual);
      if (parallel()) add(d, d_inner);
    }
    if (has("embedding.norm")) d = normalize_backward(d, sum, "embedding.norm", g);
    embed_backward(tokens, d, g);
    return total;
  }

 private:
  /// What one branch of a layer leaves for the backward pass.
  struct Branch {
    Values<T> x, input, output, sum;                 // of the branch
    Values<T> packed, qkv, probabilities, attended;  // of attention
    Values<T> inner, activated;                      // of the feed-forward network
  };

  Values<T> embed(const Tokens& tokens) const {
    const size_t c = static_cast<size_t>(s_.hidden);
    Values<T> x(tokens.ids.size() * c);
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      for (size_t k = 0; k < c; ++k) {
        x[i * c + k] = T(s_.embedding_scale) * get("embedding.token.weight")[tokens.ids[i] * c + k];
        if (has("embedding.position"))
          x[i * c + k] += get("embedding.position.weight")[tokens.positions[i] * c + k];
        if (has("embedding.token_type"))
          x[i * c + k] += get("embedding.token_type.weight")[type(tokens, i) * c + k];
      }
    }
    return x;
  }

  void embed_backward(const Tokens& tokens, const Values<T>& d, ParameterMap<T>& g) const {
    const size_t c = static_cast<size_t>(s_.hidden);
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      for (size_t k = 0; k < c; ++k) {
        g["embedding.token.weight"][tokens.ids[i] * c + k] += T(s_.embedding_scale) * d[i * c + k];
        if (has("embedding.position"))
          g["embedding.position.weight"][tokens.positions[i] * c + k] += d[i * c + k];
        if (has("embedding.token_type"))
          g["embedding.token_type.weight"][type(tokens, i) * c + k] += d[i * c + k];
      }
    }
  }
  static size_t type(const Tokens& tokens, size_t i) {
    return tokens.types.empty() ? 0 : static_cast<size_t>(tokens.types[i]);
  }

  /// residual + f(norm(x)), and where the placement puts its norms else.
  Values<T> branch(const Tokens& tokens, int l, bool is_attention, const Values<T>& x,
                   const Values<T>& residual, Branch& b) const {
    const std::string name = branch_name(l, is_attention);
    b.x = x;
    b.input = s_.placement == NormPlacement::post ? x : normalize(x, norm_name(l, is_attention));
    b.output = is_attention ? attend(tokens, l, b) : feed_forward(tokens, l, b);
    Values<T> y = s_.placement == NormPlacement::both ? normalize(b.output, name + "_post_norm") : b.output;
    add(y, residual);
    b.sum = y;
    return s_.placement == NormPlacement::post ? normalize(y, norm_name(l, is_attention)) : y;
  }

  Values<T> branch_backward(const Tokens& tokens, int l, bool is_attention, const Values<T>& dy,
                            const Branch& b, Values<T>& d_residual, ParameterMap<T>& g) const {
    const std::string name = branch_name(l, is_attention);
    d_residual = dy;
    if (s_.placement == NormPlacement::post)
      d_residual = normalize_backward(dy, b.sum, norm_name(l, is_attention), g);
    Values<T> d = d_residual;
    if (s_.placement == NormPlacement::both) d = normalize_backward(d, b.output, name + "_post_norm", g);
    d = is_attention ? attend_backward(tokens, l, d, b, g) : feed_forward_backward(tokens, l, d, b, g);
    return s_.placement == NormPlacement::post ? d
                                               : normalize_backward(d, b.x, norm_name(l, is_attention), g);
  }

  Values<T> attend(const Tokens& tokens, int l, Branch& b) const {
    const std::string name = branch_name(l, true);
    const int n = tokens.batch * tokens.length, d = s_.head_size, columns = packed_columns();
    b.packed = product(b.input, name + ".query_key_value", n, s_.hidden, columns);
    b.qkv = b.packed;
    if (has(name + ".query_norm")) {
      head_norm(b.qkv, get(name + ".query_norm.weight"), s_.epsilon, n, columns, 0, s_.heads, d);
      head_norm(b.qkv, get(name + ".key_norm.weight"), s_.epsilon, n, columns, s_.heads * d, s_.kv_heads, d);
    }
    rope(b.qkv, tokens.positions, rule(l).frequencies, s_.rope_magnitude, false, 1, columns,
         s_.heads + s_.kv_heads, d);
    b.attended = attention(b.qkv, attention_shape(tokens, l), {{}, tokens.starts}, b.probabilities);
    return product(b.attended, name + ".output", n, s_.heads * d, s_.hidden);
  }

  Values<T> attend_backward(const Tokens& tokens, int l, const Values<T>& dy, const Branch& b,
                            ParameterMap<T>& g) const {
    const std::string name = branch_name(l, true);
    const int n = tokens.batch * tokens.length, d = s_.head_size, columns = packed_columns();
    const Values<T> d_attended =
        product_backward(dy, b.attended, name + ".output", n, s_.heads * d, s_.hidden, g);
    Values<T> dqkv = attention_backward(d_attended, b.qkv, attention_shape(tokens, l), {{}, tokens.starts},
                                        b.probabilities);
    rope(dqkv, tokens.positions, rule(l).frequencies, s_.rope_magnitude, false, -1, columns,
         s_.heads + s_.kv_heads, d);
    if (has(name + ".query_norm")) {
      head_norm_backward(dqkv, b.packed, get(name + ".query_norm.weight"), s_.epsilon, n, columns, 0,
                         s_.heads, d, g[name + ".query_norm.weight"]);
      head_norm_backward(dqkv, b.packed, get(name + ".key_norm.weight"), s_.epsilon, n, columns, s_.heads * d,
                         s_.kv_heads, d, g[name + ".key_norm.weight"]);
    }
    return product_backward(dqkv, b.input, name + ".query_key_value", n, s_.hidden, columns, g);
  }

  Values<T> feed_forward(const Tokens& tokens, int l, Branch& b) const {
    const std::string name = branch_name(l, false);
    const int n = tokens.batch * tokens.length;
    b.inner = product(b.input, name + ".up", n, s_.hidden, up_width());
    b.activated = activation(s_.activation, b.inner, n, s_.inner);
    return product(b.activated, name + ".down", n, s_.inner, s_.hidden);
  }

  Values<T> feed_forward_backward(const Tokens& tokens, int l, const Values<T>& dy, const Branch& b,
                                  ParameterMap<T>& g) const {
    const std::string name = branch_name(l, false);
    const int n = tokens.batch * tokens.length;
    const Values<T> d_activated =
        product_backward(dy, b.activated, name + ".down", n, s_.inner, s_.hidden, g);
    const Values<T> d_inner = activation_backward(s_.activation, d_activated, b.inner, n, s_.inner);
    return product_backward(d_inner, b.input, name + ".up", n, s_.hidden, up_width(), g);
  }

  AttentionShape attention_shape(const Tokens& tokens, int l) const {
    AttentionShape shape{tokens.batch, tokens.length, s_.heads,
                         s_.kv_heads,  s_.head_size,  s_.attention_scale};
    shape.causal = s_.causal;
    shape.window = rule(l).window;
    shape.softcap = s_.attention_softcap;
    if (s_.alibi) shape.slopes = alibi_slopes(s_.heads);
    return shape;
  }

  Values<T> product(const Values<T>& x, const std::string& name, int n, int inputs, int outputs) const {
    return linear(x, get(name + ".weight"), get(name + ".bias"), n, inputs, outputs);
  }
  Values<T> product_backward(const Values<T>& dy, const Values<T>& x, const std::string& name, int n,
                             int inputs, int outputs, ParameterMap<T>& g) const {
    return linear_backward(dy, x, get(name + ".weight"), n, inputs, outputs, g[name + ".weight"],
                           gradient(g, name + ".bias"));
  }
  Values<T> normalize(const Values<T>& x, const std::string& name) const {
    return norm(x, get(name + ".weight"), get(name + ".bias"), s_.centered_norm, s_.epsilon,
                static_cast<int>(x.size()) / s_.hidden, s_.hidden);
  }
  Values<T> normalize_backward(const Values<T>& dy, const Values<T>& x, const std::string& name,
                               ParameterMap<T>& g) const {
    return norm_backward(dy, x, get(name + ".weight"), s_.centered_norm, s_.epsilon,
                         static_cast<int>(x.size()) / s_.hidden, s_.hidden, g[name + ".weight"],
                         gradient(g, name + ".bias"));
  }

  bool has(const std::string& name) const { return !get(name + ".weight").empty(); }
  /// Empty when the model has no such parameter.
  const Values<T>& get(const std::string& name) const {
    static const Values<T> kNone;
    const auto found = p_.find(name);
    return found == p_.end() ? kNone : found->second;
  }
  static Values<T>& gradient(ParameterMap<T>& gradients, const std::string& name) {
    static Values<T> none;
    const auto found = gradients.find(name);
    return found == gradients.end() ? none : found->second;
  }
  static void add(Values<T>& to, const Values<T>& what) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }
  static std::string branch_name(int l, bool is_attention) {
    return "layers." + std::to_string(l) + (is_attention ? ".attention" : ".feed_forward");
  }
  std::string norm_name(int l, bool is_attention) const {
    return branch_name(l, is_attention || s_.order == BranchOrder::parallel_shared_norm) + "_norm";
  }
  const LayerRule& rule(int l) const { return s_.rules[static_cast<size_t>(l)]; }
  bool parallel() const { return s_.order != BranchOrder::sequential; }
  int packed_columns() const { return (s_.heads + 2 * s_.kv_heads) * s_.head_size; }
  int up_width() const { return is_gated(s_.activation) ? 2 * s_.inner : s_.inner; }

  ModelShape s_;
  const ParameterMap<T>& p_;
};

}  // namespace megalith::reference
