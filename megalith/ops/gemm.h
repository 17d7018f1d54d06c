// The matrix product behind the linear layers: C[M,N] = or += A[M,K] B[K,N] (+ bias[N]).
//
// Each task owns a rectangle of C and sums over the whole of K in one order, so that neither the number of
// threads nor the shape of the rectangles changes a result: with these kernels a row of C depends on its row
// of A and on B alone.
#pragma once

#include "megalith/ops/cpu/table.h"
#include "megalith/ops/encoded_matrix.h"
#include "megalith/tensor/exec.h"

namespace megalith {

/// An operand as it lies in memory.
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 0;          // elements between neighbours along the dimension that is not contiguous
  bool sum_contiguous = true;  // whether the summed dimension is the contiguous one
  bool packed = false;         // B only: data comes from pack_operand
  const EncodedMatrix* encoded = nullptr;  // B only: F32 once decoded, the summed dimension contiguous
};

struct GemmResult {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 0;
  const float* bias = nullptr;
  bool add = false;
};

void gemm(const ExecContext& context, int64_t m, int64_t n, int64_t k, const GemmOperand& a,
          const GemmOperand& b, const GemmResult& c);

/// With given kernels instead of those of the active level.
void gemm(const ExecContext& context, const cpu::GemmKernels& kernels, int64_t m, int64_t n, int64_t k,
          const GemmOperand& a, const GemmOperand& b, const GemmResult& c);

/// Bytes of B [K,N] once packed for the active level, and the packing, for operands that are used again and
/// again.
size_t packed_operand_bytes(DType dtype, int64_t n, int64_t k);
void pack_operand(const ExecContext& context, int64_t n, int64_t k, const GemmOperand& b, void* packed);

}  // namespace megalith
