// Scaled dot-product attention without the T x T matrix: tiles of keys with a running softmax (Dao et al.,
// FlashAttention). B batch, T tokens, H query heads, K key/value heads (K divides H), D head size.
#pragma once

#include "megalith/ops/dropout.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// The sizes of an attention, and which keys a query sees with which logits.
struct AttentionShape {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  float scale = 0;  // of the products of queries and keys; usually 1/sqrt(D)
  /// The query at t sees keys up to t; else those after it as well.
  bool causal = true;
  /// The query at t sees only keys closer than this: t - window + 1 .. t, and as many after it when not
  /// causal. 0 for all.
  int64_t window = 0;
  /// With c > 0 a logit s becomes c tanh(s / c) (Gemma 2).
  float softcap = 0;
  /// [H] F32, or empty: the logit of the query at t and key k grows by slopes[h] * (k - t) (Press et al.,
  /// "Train short, test long"). Not together with a soft cap.
  TensorView slopes = {};

  /// Columns of the packed projection: H query heads, then K key heads, then K value heads.
  int64_t packed_columns() const { return (heads + 2 * kv_heads) * head_size; }
};

/// qkv [B*T, (H+2K)*D]; out [B*T, H*D] of the same dtype; log_sum_exp [B,H,T] F32, kept for the backward
/// pass. `document_starts` [B,T] I32, or empty: of the keys that `shape` lets it see, the query at t sees
/// those of its own document only, whose tokens are the consecutive ones with the same document_starts[b,t]
/// <= t. So packed documents do not see each other. Dropout element of (head h, key k) is h * T + k at the
/// query's position. A row's result is bitwise independent of what lies outside its visible keys and of other
/// rows of the batch. Blocks of 64 keys that none of some 50 neighbouring queries sees are not computed.
void attention_forward(const ExecContext& context, const AttentionShape& shape, TensorView qkv,
                       TensorView document_starts, const Dropout& dropout, TensorView out,
                       TensorView log_sum_exp);

/// dqkv (assigned) from dout [B*T, H*D]; probabilities are computed again from qkv and log_sum_exp.
void attention_backward(const ExecContext& context, const AttentionShape& shape, TensorView qkv,
                        TensorView document_starts, const Dropout& dropout, TensorView out,
                        TensorView log_sum_exp, TensorView dout, TensorView dqkv);

/// Causal attention of new tokens of one sequence over a cache. qkv [T, (H+2K)*D] holds the projections of
/// the T new tokens at positions past .. past+T-1; their keys and values are first appended to key_cache and
/// value_cache [S, K*D]; out [T, H*D]. Gives the same bits whether tokens come one by one or together.
void attention_with_cache(const ExecContext& context, const AttentionShape& shape, TensorView qkv,
                          int64_t past, TensorView key_cache, TensorView value_cache, TensorView out);

}  // namespace megalith
