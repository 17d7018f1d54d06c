// Token and position embeddings. N rows, C columns, V vocabulary, P positions.
#pragma once

#include "megalith/ops/dropout.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// y[n] = dropout(token_table[tokens[n]] + position_table[positions[n]]). tokens, positions [N] I32;
/// position_table [P,C] may be empty (then positions are not read). Throws Error naming the row when an id or
/// position lies outside its table.
void embedding_forward(const ExecContext& context, TensorView tokens, TensorView positions,
                       TensorView token_table, TensorView position_table, const Dropout& dropout,
                       TensorView y);

/// d_token_table [V,C] and d_position_table [P,C] (F32, the latter may be empty) += dy, in an order fixed by
/// N alone.
void embedding_backward(const ExecContext& context, TensorView dy, TensorView tokens, TensorView positions,
                        const Dropout& dropout, TensorView d_token_table, TensorView d_position_table);

}  // namespace megalith
