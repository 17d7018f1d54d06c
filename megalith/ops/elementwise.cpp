#include "megalith/ops/elementwise.h"

#include <cstring>

#include "megalith/ops/cpu/dispatch.h"
#include "megalith/ops/parallel.h"

namespace megalith {

namespace {

constexpr int64_t kBlock = 32768;      // elements that one call of a kernel handles
constexpr int64_t kSumBlock = 262144;  // elements that share one partial sum

void expect_f32(const TensorView& x, const char* operation) {
  check(!x.empty() && x.dtype() == DType::f32, "{}: needs a F32 tensor, got {}", operation,
        x.empty() ? "none" : name(x.dtype()));
}

}  // namespace

void convert(const ExecContext& context, TensorView from, TensorView to) {
  check(from.elements() == to.elements(), "convert: {} has other elements than {}", to_string(from.shape()),
        to_string(to.shape()));
  const cpu::TypedKernels &source = cpu::typed(from.dtype()), &target = cpu::typed(to.dtype());
  ProfileScope scope(context, "convert");
  const size_t source_size = size_of(from.dtype()), target_size = size_of(to.dtype());
  parallel_blocks(context, from.elements(), kBlock, [&](int64_t begin, int64_t end) {
    const void* x = offset(from.raw(), begin, source_size);
    void* y = offset(to.raw(), begin, target_size);
    if (from.dtype() == to.dtype()) {
      std::memmove(y, x, static_cast<size_t>(end - begin) * source_size);
    } else if (to.dtype() == DType::f32) {
      source.to_float(x, static_cast<float*>(y), end - begin);
    } else if (from.dtype() == DType::f32) {
      target.from_float(static_cast<const float*>(x), y, end - begin);
    } else {
      // Between the 16-bit types by way of fp32, which holds both exactly.
      constexpr int64_t kChunk = 1024;
      float chunk[kChunk];
      for (int64_t at = begin; at < end; at += kChunk) {
        const int64_t n = std::min(kChunk, end - at);
        source.to_float(offset(from.raw(), at, source_size), chunk, n);
        target.from_float(chunk, offset(to.raw(), at, target_size), n);
      }
    }
  });
}

void fill_zero(const ExecContext& context, TensorView x) {
  ProfileScope scope(context, "convert");
  const size_t size = size_of(x.dtype());
  parallel_blocks(context, x.elements(), kBlock, [&](int64_t begin, int64_t end) {
    std::memset(offset(x.raw(), begin, size), 0, static_cast<size_t>(end - begin) * size);
  });
}

void scale(const ExecContext& context, TensorView x, float factor) {
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  ProfileScope scope(context, "convert");
  parallel_blocks(context, x.elements(), kBlock, [&](int64_t begin, int64_t end) {
    kernels.scale(offset(x.raw(), begin, size_of(x.dtype())), factor, end - begin);
  });
}

void soft_cap(const ExecContext& context, TensorView x, float scale, float cap) {
  check(cap > 0, "soft_cap: cap {} must be positive", cap);
  const cpu::TypedKernels& kernels = cpu::typed(x.dtype());
  ProfileScope scope(context, "convert");
  parallel_blocks(context, x.elements(), kBlock, [&](int64_t begin, int64_t end) {
    kernels.soft_cap(offset(x.raw(), begin, size_of(x.dtype())), scale, cap, end - begin);
  });
}

void add(const ExecContext& context, TensorView x, TensorView sum) {
  expect_f32(x, "add");
  expect_f32(sum, "add");
  check(x.elements() == sum.elements(), "add: {} elements to {}", x.elements(), sum.elements());
  ProfileScope scope(context, "convert");
  parallel_blocks(context, x.elements(), kBlock, [&](int64_t begin, int64_t end) {
    cpu::kernels().element.add(x.data<float>() + begin, sum.data<float>() + begin, end - begin);
  });
}

int64_t first_not_finite(const ExecContext& context, TensorView x) {
  expect_f32(x, "first_not_finite");
  ProfileScope scope(context, "optimizer");
  const float* data = x.data<float>();
  const int64_t blocks = (x.elements() + kSumBlock - 1) / kSumBlock;
  ArenaScope arena(context.workspace);
  int64_t* found =
      static_cast<int64_t*>(context.workspace.allocate(static_cast<size_t>(blocks) * sizeof(int64_t)));
  parallel_blocks(context, x.elements(), kSumBlock, [&](int64_t begin, int64_t end) {
    const int64_t at = cpu::kernels().element.first_not_finite(data + begin, end - begin);
    found[begin / kSumBlock] = at < 0 ? -1 : begin + at;
  });
  for (int64_t i = 0; i < blocks; ++i) {
    if (found[i] >= 0) return found[i];
  }
  return -1;
}

}  // namespace megalith
