// Shapes of rank 0 to 4, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace megalith {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dimensions);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dimensions_[static_cast<size_t>(axis)]; }
  int64_t back() const { return dimensions_[static_cast<size_t>(rank_ - 1)]; }
  /// Product of all dimensions; 1 for a scalar.
  int64_t elements() const;
  /// Appends a dimension; throws beyond rank 4 or for a negative one.
  void push_back(int64_t dimension);
  void set(int axis, int64_t dimension) { dimensions_[static_cast<size_t>(axis)] = dimension; }

  bool operator==(const Shape& other) const;

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> dimensions_{};
};

/// "[4, 768]".
std::string to_string(const Shape& shape);

}  // namespace megalith
