// ProcessGrid: which rank stands where when tensor, data and pipeline parallelism are combined. Arithmetic
// alone: no rank is started.
#pragma once

namespace megalith {

/// A place in the grid. The tensor axis is the fastest, so that the ranks that exchange most are neighbours,
/// on one host; then data, then pipeline, whose messages are the smallest.
struct GridPlace {
  int pipeline = 0, data = 0, tensor = 0;
  bool operator==(const GridPlace&) const = default;
};

enum class GridAxis { pipeline, data, tensor };

class ProcessGrid {
 public:
  /// A world of `ranks`: `pipeline` stages of `tensor` ranks each, repeated for data parallelism as often as
  /// there are ranks. Throws InputError when they do not come out even.
  ProcessGrid(int ranks, int pipeline, int tensor);

  int ranks() const { return pipeline_ * data_ * tensor_; }
  int pipeline() const { return pipeline_; }
  int data() const { return data_; }
  int tensor() const { return tensor_; }

  /// rank = (pipeline * data() + data) * tensor() + tensor.
  GridPlace place(int rank) const;
  int rank(const GridPlace& place) const;
  /// A number for the group of ranks that differ from `rank` along one axis only: the same for all of them.
  int group_number(GridAxis axis, int rank) const;

 private:
  int pipeline_, data_, tensor_;
};

}  // namespace megalith
