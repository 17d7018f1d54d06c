// Row operations that a dropout mask may be part of: residual sums and embeddings.
#include "megalith/ops/cpu/families.h"
#include "megalith/ops/cpu/philox.h"
#include "megalith/ops/cpu/vectors.h"

namespace megalith::cpu::MEGALITH_LEVEL {

namespace {

template <class T>
void residual_add(const MaskSource& mask, const void* x_raw, const void* delta_raw, void* y_raw,
                  int64_t first_row, int64_t rows, int64_t columns) {
  const T *x = static_cast<const T*>(x_raw), *delta = static_cast<const T*>(delta_raw);
  T* y = static_cast<T*>(y_raw);
  if (!mask.active) {
    for_vectors(rows * columns, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
      lanes.store(y + j, lanes.load(x + j) + lanes.load(delta + j));
    });
    return;
  }
  float buffer[kMaskBuffer];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t begin = 0; begin < columns; begin += kMaskChunk) {
      const int64_t n = smaller(kMaskChunk, columns - begin), at = r * columns + begin;
      const float* factors =
          mask_factors(mask, static_cast<uint64_t>(first_row + r), static_cast<uint64_t>(begin), n, buffer);
      for_vectors(n, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
        lanes.store(y + at + j,
                    lanes.load(x + at + j) + lanes.load(delta + at + j) * lanes.load(factors + j));
      });
    }
  }
}

template <class T>
void masked_copy(const MaskSource& mask, const void* dy_raw, void* dx_raw, int64_t first_row, int64_t rows,
                 int64_t columns) {
  const T* dy = static_cast<const T*>(dy_raw);
  T* dx = static_cast<T*>(dx_raw);
  float buffer[kMaskBuffer];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t begin = 0; begin < columns; begin += kMaskChunk) {
      const int64_t n = smaller(kMaskChunk, columns - begin), at = r * columns + begin;
      const float* factors =
          mask_factors(mask, static_cast<uint64_t>(first_row + r), static_cast<uint64_t>(begin), n, buffer);
      for_vectors(n, [&](auto lanes, int64_t j) MEGALITH_INLINE_LAMBDA {
        lanes.store(dx + at + j, lanes.load(dy + at + j) * lanes.load(factors + j));
      });
    }
  }
}

template <class T>
void embed_row(const MaskSource& mask, const void* token_raw, float scale, const void* position_raw,
               const void* type_raw, void* y_raw, int64_t row, int64_t columns) {
  const T *token = static_cast<const T*>(token_raw), *position = static_cast<const T*>(position_raw);
  const T* type = static_cast<const T*>(type_raw);
  T* y = static_cast<T*>(y_raw);
  float buffer[kMaskBuffer], sums[kMaskChunk];
  for (int64_t begin = 0; begin < columns; begin += kMaskChunk) {
    const int64_t n = smaller(kMaskChunk, columns - begin);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) sums[j] = load(token[begin + j]) * scale;
    if (position != nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) sums[j] += load(position[begin + j]);
    }
    if (type != nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) sums[j] += load(type[begin + j]);
    }
    if (mask.active) {
      const float* factors =
          mask_factors(mask, static_cast<uint64_t>(row), static_cast<uint64_t>(begin), n, buffer);
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) sums[j] *= factors[j];
    }
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[begin + j] = store<T>(sums[j]);
  }
}

template <class T>
void add_row(const MaskSource& mask, const void* dy_raw, float* table, int64_t row, int64_t begin,
             int64_t end) {
  const T* dy = static_cast<const T*>(dy_raw);
  if (!mask.active) {
#pragma omp simd
    for (int64_t j = begin; j < end; ++j) table[j] += load(dy[j]);
    return;
  }
  float buffer[kMaskBuffer];
  for (int64_t at = begin; at < end; at += kMaskChunk) {
    const int64_t n = smaller(kMaskChunk, end - at);
    const float* factors =
        mask_factors(mask, static_cast<uint64_t>(row), static_cast<uint64_t>(at), n, buffer);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) table[at + j] += load(dy[at + j]) * factors[j];
  }
}

template <class T>
void add_typed(TypedKernels& kernels) {
  kernels.residual_add = residual_add<T>;
  kernels.masked_copy = masked_copy<T>;
  kernels.embed_row = embed_row<T>;
  kernels.add_row = add_row<T>;
}

}  // namespace

void add_dropout_kernels(KernelTable& table) {
  add_typed<float>(table.typed[0]);
  add_typed<BrainFloat>(table.typed[1]);
  add_typed<HalfFloat>(table.typed[2]);
}

}  // namespace megalith::cpu::MEGALITH_LEVEL
