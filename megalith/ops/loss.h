// Softmax cross-entropy over the vocabulary. N rows, V vocabulary columns, of which the first `vocabulary`
// count (the rest pads the table to a round size and has probability zero).
#pragma once

#include "megalith/ops/vocabulary_part.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// What makes logits of an output layer's scores: cap * tanh(scale * score / cap), or scale * score when the
/// cap is 0.
struct LogitRule {
  float scale = 1;
  float softcap = 0;
};
/// Replaces scores by logits; the operations below take logits.
void apply_logit_rule(const ExecContext& context, const LogitRule& rule, TensorView scores);

/// losses[N] (F32) = log(sum exp logits) - logits[target], in fp32; 0 where the target is negative.
void cross_entropy_forward(const ExecContext& context, TensorView logits, TensorView targets,
                           int64_t vocabulary, TensorView losses);

/// The same, and replaces logits by the gradient with respect to the scores that `rule` made them of: for
/// plain logits (softmax - onehot(target)) * weights[n]; weights [N] F32.
void cross_entropy_backward(const ExecContext& context, TensorView logits, TensorView targets,
                            TensorView weights, int64_t vocabulary, TensorView losses,
                            const LogitRule& rule = {});

// The same over a vocabulary whose columns R ranks share. Two numbers a row and rank are exchanged, never
// logits (Shoeybi et al., "Megatron-LM", section 3, exchange the largest logit as a third; here it is part of
// the logarithm).

/// partial [2,N] F32: log(sum exp) over the columns that count (minus infinity where none does), and the
/// logit of the target, 0 where another part has it or there is none.
void cross_entropy_partial(const ExecContext& context, TensorView logits, TensorView targets,
                           const VocabularyPart& part, TensorView partial);

/// log_sum_exp [N] and losses [N] (F32) of the whole vocabulary from the partial results [R,2,N] of all
/// ranks, added up in their order.
void cross_entropy_combine(const ExecContext& context, TensorView partials, TensorView targets,
                           TensorView log_sum_exp, TensorView losses);

/// Replaces logits by the gradient with respect to the scores, as cross_entropy_backward does.
void cross_entropy_gradient(const ExecContext& context, TensorView logits, TensorView targets,
                            TensorView weights, TensorView log_sum_exp, const VocabularyPart& part,
                            const LogitRule& rule = {});

}  // namespace megalith
