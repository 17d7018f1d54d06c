// Matrices of a model that are used as they lie in mapped files.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "megalith/formats/gguf_types.h"
#include "megalith/model/stored_tensor.h"

namespace megalith {

class EncodedWeights {
 public:
  /// Whether a parameter can be used as these tensors hold it: a matrix that is multiplied or looked up,
  /// whose rows are rows of the file.
  static bool serves(const Parameter& parameter, std::span<const StoredTensor> tensors);
  /// An empty matrix, which the parameter is bound to.
  EncodedMatrix& add(Parameter& parameter);
  /// The rows that a stored tensor holds, which begins at `data`.
  static void append(EncodedMatrix& matrix, const StoredTensor& stored, const void* data,
                     const RowCode& code);
  /// Rows that pad a vocabulary, whose products mean nothing.
  static void finish(EncodedMatrix& matrix, const Parameter& parameter);

  bool empty() const { return matrices_.empty(); }

 private:
  std::vector<std::unique_ptr<EncodedMatrix>> matrices_;
};

/// How rows of a type are decoded.
RowCode row_code(GgufType type);
RowCode row_code(DType dtype);

}  // namespace megalith
