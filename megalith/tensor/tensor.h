// TensorView, a trivially copyable view of a dense row-major array, and Tensor, which owns one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "megalith/base/error.h"
#include "megalith/tensor/dtype.h"
#include "megalith/tensor/shape.h"

namespace megalith {

/// Where the bytes of a tensor live.
enum class Device : uint8_t { cpu };

/// A view: pointer, dtype, device and shape; dense and row-major. An empty view (no data) stands for "not
/// there".
class TensorView {
 public:
  TensorView() = default;
  TensorView(void* data, DType dtype, const Shape& shape, Device device = Device::cpu)
      : data_(data), shape_(shape), dtype_(dtype), device_(device) {}

  bool empty() const { return data_ == nullptr; }
  void* raw() const { return data_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype_); }
  /// All dimensions but the last, multiplied: the rows of the matrix that this tensor is to a linear layer.
  int64_t rows() const { return shape_.rank() == 0 ? 1 : columns() == 0 ? 0 : elements() / columns(); }
  int64_t columns() const { return shape_.rank() == 0 ? 1 : shape_.back(); }

  /// Typed pointer; throws when T is not the element type.
  template <class T>
  T* data() const {
    check(dtype_of<T>() == dtype_, "tensor of type {} used as {}", name(dtype_), name(dtype_of<T>()));
    return static_cast<T*>(data_);
  }
  template <class T>
  std::span<T> span() const {
    return {data<T>(), static_cast<size_t>(elements())};
  }

  /// The same elements under another shape.
  TensorView reshape(const Shape& shape) const;
  /// Rows [begin, end) of the first dimension.
  TensorView slice(int64_t begin, int64_t end) const;

 private:
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
};

/// An owning tensor, 64-byte aligned, zero-filled. For tests, tools and file contents: training memory comes
/// from arenas.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, const Shape& shape);

  const TensorView& view() const { return view_; }
  operator TensorView() const { return view_; }
  template <class T>
  T* data() const {
    return view_.data<T>();
  }
  const Shape& shape() const { return view_.shape(); }

 private:
  struct Free {
    void operator()(void* pointer) const;
  };
  std::unique_ptr<void, Free> storage_;
  TensorView view_;
};

/// Throws Error naming `operation` and `what` when the view does not have this dtype and shape.
void expect(const TensorView& view, DType dtype, const Shape& shape, const char* operation, const char* what);

}  // namespace megalith
