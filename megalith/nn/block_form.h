// How the branches of a transformer block are put together.
#pragma once

namespace megalith {

/// Where a branch f is normalised: before it (x + f(norm(x))), behind the sum (norm(x + f(x))), or before it
/// and again at its end (x + norm(f(norm(x)))).
enum class NormPlacement { pre, post, both };

/// Attention then feed-forward; or both from the same stream, each with its norm or with one norm for both.
enum class BranchOrder { sequential, parallel, parallel_shared_norm };

}  // namespace megalith
