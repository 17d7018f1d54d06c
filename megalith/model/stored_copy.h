// Copies between parameters and the tensors of files that hold them (StoredTensor).
#pragma once

#include "megalith/model/stored_tensor.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// rows [stored.rows, columns] of a parameter, or [stored.rows], from the whole stored tensor `from`, of any
/// weight type. The result is rounded once to the type of `rows`.
void read_stored(const ExecContext& exec, const StoredTensor& stored, TensorView from, TensorView rows);

/// The reverse; `to` is F32, BF16 or F16, and rows that nothing uses become zero.
void write_stored(const ExecContext& exec, const StoredTensor& stored, TensorView rows, TensorView to);

}  // namespace megalith
