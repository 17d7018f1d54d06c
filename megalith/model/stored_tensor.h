// Where the rows of a parameter of ours stand in the tensors of a model file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/model_config.h"
#include "megalith/nn/parameter.h"

namespace megalith {

/// How a file orders the rows of a tensor that holds attention heads of D rows.
enum class RowOrder {
  as_ours,
  /// In each head, the two rows that rotate together stand side by side: its first R rows are pairs (2i,
  /// 2i+1), ours are (i, i + R/2).
  adjacent_pairs,
  /// [head][query, key, value][D]; ours is [query, key, value][head][D].
  query_key_value_by_head,
};

/// A tensor of a file that holds some rows of a parameter of ours.
struct StoredTensor {
  std::string name;
  /// Rows of ours that it holds, one after the other.
  int64_t rows = 0;
  /// Stored as [columns, rows] (GPT-2's Conv1D).
  bool transposed = false;
  /// Rows of the file in front of ours that nothing uses (OPT's and RoBERTa's first positions).
  int64_t unused_rows = 0;
  RowOrder order = RowOrder::as_ours;
  int64_t heads = 0, rotary = 0;
  /// Ours is the stored value plus this (Gemma stores how far norms are from one).
  float added = 0;

  /// The row of the file, counted without unused rows, that is row `row` of ours.
  int64_t stored_row(int64_t row) const;
  /// Of the file's tensor, for a parameter of this shape.
  Shape shape_for(const Shape& parameter) const;
};

/// Names a parameter as a file does. In names '#' stands for the number of a layer and '*' for "weight" or
/// "bias"; '|' separates the tensors of one parameter: query, key and value, or gate and up.
struct NameRule {
  std::string_view ours, theirs;
  enum Layout { plain, transposed, by_head, positions_from_two, from_one } layout = plain;
};

/// The tensors that make up a parameter, in the order of its rows. `adjacent_pairs`: separate query and key
/// tensors have that order. Throws Error when no rule names the parameter.
std::vector<StoredTensor> stored_tensors(std::span<const NameRule> rules, const ModelConfig& config,
                                         bool adjacent_pairs, const Parameter& parameter);

}  // namespace megalith
