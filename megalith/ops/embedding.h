// Token and position embeddings. N rows, C columns, V vocabulary, P positions.
#pragma once

#include "megalith/ops/dropout.h"
#include "megalith/ops/vocabulary_part.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// y[n] = dropout(token_table[tokens[n]] + position_table[positions[n]]). tokens, positions [N] I32;
/// position_table [P,C] may be empty (then positions are not read). Throws Error naming the row when an id or
/// position lies outside its table.
void embedding_forward(const ExecContext& context, TensorView tokens, TensorView positions,
                       TensorView token_table, TensorView position_table, const Dropout& dropout,
                       TensorView y);

/// The first half of embedding_forward for a table of which this rank holds a part: y[n] = the row of
/// tokens[n], or zeros when another rank holds it. Summed over the ranks this is the look-up, exactly.
void embedding_lookup_part(const ExecContext& context, TensorView tokens, TensorView token_table,
                           const VocabularyPart& part, TensorView y);

/// The second half: y[n] = dropout(x[n] + position_table[positions[n]]); y may be x.
void embedding_finish(const ExecContext& context, TensorView x, TensorView positions,
                      TensorView position_table, const Dropout& dropout, TensorView y);

/// d_token_table [V,C] and d_position_table [P,C] (F32, the latter may be empty) += dy, in an order fixed by
/// the tokens alone. The rows of a token are summed first and then added to the table once, so that a table
/// which begins with another gradient (of a tied output layer) gets the sum of the two, rounded as if each
/// had been computed by itself. Tokens outside `part`, whose rows d_token_table has, are left out.
void embedding_backward(const ExecContext& context, TensorView dy, TensorView tokens,
                        const VocabularyPart& part, TensorView positions, const Dropout& dropout,
                        TensorView d_token_table, TensorView d_position_table);

}  // namespace megalith
