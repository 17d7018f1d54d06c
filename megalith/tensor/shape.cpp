#include "megalith/tensor/shape.h"

#include "megalith/base/error.h"

namespace megalith {

Shape::Shape(std::initializer_list<int64_t> dimensions) {
  for (const int64_t dimension : dimensions) push_back(dimension);
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product *= (*this)[axis];
  return product;
}

void Shape::push_back(int64_t dimension) {
  check(rank_ < kMaxRank, "a shape has at most {} dimensions", kMaxRank);
  check(dimension >= 0, "a dimension cannot be negative: {}", dimension);
  dimensions_[static_cast<size_t>(rank_++)] = dimension;
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (int axis = 0; axis < rank_; ++axis) {
    if ((*this)[axis] != other[axis]) return false;
  }
  return true;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

}  // namespace megalith
