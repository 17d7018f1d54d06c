// Token, position and token type embeddings. N rows, C columns, V vocabulary.
#pragma once

#include "megalith/ops/dropout.h"
#include "megalith/ops/vocabulary_part.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// What is added to a token's embedding. A table may be empty: then its indices are not read.
struct AddedEmbeddings {
  TensorView positions;       // [N] I32
  TensorView position_table;  // [P,C]
  TensorView types;           // [N] I32; empty: all of type 0
  TensorView type_table;      // [types,C]
};

/// y[n] = dropout(scale * token_table[tokens[n]] + position_table[positions[n]] + type_table[types[n]]).
/// tokens [N] I32. Throws Error naming the row when an index lies outside its table.
void embedding_forward(const ExecContext& context, TensorView tokens, TensorView token_table, float scale,
                       const AddedEmbeddings& added, const Dropout& dropout, TensorView y);

/// The first half of embedding_forward for a table of which this rank holds a part: y[n] = the row of
/// tokens[n], or zeros when another rank holds it. Summed over the ranks this is the look-up, exactly.
void embedding_lookup_part(const ExecContext& context, TensorView tokens, TensorView token_table,
                           const VocabularyPart& part, TensorView y);

/// The second half, from x[n], the row of tokens[n]; y may be x.
void embedding_finish(const ExecContext& context, TensorView x, float scale, const AddedEmbeddings& added,
                      const Dropout& dropout, TensorView y);

/// d_token_table [V,C] += scale * dy, and the tables of `d_added` (F32, may be empty) += dy, in an order
/// fixed by the tokens alone. The rows of a token are summed first and then added to the table once, so that
/// a table which begins with another gradient (of a tied output layer) gets the sum of the two, rounded as if
/// each had been computed by itself. Tokens outside `part`, whose rows d_token_table has, are left out.
void embedding_backward(const ExecContext& context, TensorView dy, TensorView tokens,
                        const VocabularyPart& part, float scale, const Dropout& dropout,
                        TensorView d_token_table, const AddedEmbeddings& d_added);

}  // namespace megalith
