#include "megalith/tensor/tensor.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace megalith {

TensorView TensorView::reshape(const Shape& shape) const {
  check(shape.elements() == elements(), "cannot view {} as {}", to_string(shape_), to_string(shape));
  return {data_, dtype_, shape, device_};
}

TensorView TensorView::slice(int64_t begin, int64_t end) const {
  check(shape_.rank() >= 1 && 0 <= begin && begin <= end && end <= shape_[0], "rows {} to {} lie outside {}",
        begin, end, to_string(shape_));
  Shape shape = shape_;
  shape.set(0, end - begin);
  const int64_t row = shape_[0] == 0 ? 0 : elements() / shape_[0];
  return {static_cast<char*>(data_) + static_cast<size_t>(begin * row) * size_of(dtype_), dtype_, shape,
          device_};
}

Tensor::Tensor(DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
  const size_t rounded = (bytes + 63) / 64 * 64 + 64;
  void* pointer = std::aligned_alloc(64, rounded);
  if (pointer == nullptr) throw std::bad_alloc();
  std::memset(pointer, 0, rounded);
  storage_.reset(pointer);
  view_ = TensorView(pointer, dtype, shape);
}

void Tensor::Free::operator()(void* pointer) const {
  std::free(pointer);
}

void expect(const TensorView& view, DType dtype, const Shape& shape, const char* operation,
            const char* what) {
  if (!view.empty() && view.dtype() == dtype && view.shape() == shape) return;
  if (view.empty()) fail("{}: {} is missing; expected {} {}", operation, what, name(dtype), to_string(shape));
  fail("{}: {} is {} {}; expected {} {}", operation, what, name(view.dtype()), to_string(view.shape()),
       name(dtype), to_string(shape));
}

}  // namespace megalith
