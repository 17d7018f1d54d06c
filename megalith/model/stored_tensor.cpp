#include "megalith/model/stored_tensor.h"

#include "megalith/base/error.h"

namespace megalith {

namespace {

std::string replaced(std::string_view pattern, std::string_view layer, std::string_view kind) {
  std::string name;
  for (const char c : pattern) {
    if (c == '#') {
      name += layer;
    } else if (c == '*') {
      name += kind;
    } else {
      name += c;
    }
  }
  return name;
}

std::vector<std::string_view> split(std::string_view names) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('|', begin), names.size());
    parts.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Rows of each of the `count` tensors of a parameter.
std::vector<int64_t> shares(const ModelConfig& config, size_t count, int64_t rows) {
  if (count == 3) {
    const int64_t key = config.num_kv_heads * config.head_size;
    return {config.num_heads * config.head_size, key, key};
  }
  return std::vector<int64_t>(count, rows / static_cast<int64_t>(count));
}

}  // namespace

int64_t StoredTensor::stored_row(int64_t row) const {
  if (order == RowOrder::as_ours) return row;
  if (order == RowOrder::query_key_value_by_head) {
    const int64_t size = rows / (3 * heads), part = row / (heads * size), head = row / size % heads;
    return (head * 3 + part) * size + row % size;
  }
  const int64_t size = rows / heads, within = row % size;
  if (within >= rotary) return row;
  const int64_t half = rotary / 2;
  return row - within + 2 * (within % half) + within / half;
}

Shape StoredTensor::shape_for(const Shape& parameter) const {
  if (parameter.rank() == 1) return {rows + unused_rows};
  if (transposed) return {parameter[1], rows + unused_rows};
  return {rows + unused_rows, parameter[1]};
}

std::vector<StoredTensor> stored_tensors(std::span<const NameRule> rules, const ModelConfig& config,
                                         bool adjacent_pairs, const Parameter& parameter) {
  const std::string& name = parameter.name;
  const size_t kind_begin = name.rfind('.') + 1;
  const std::string_view kind = std::string_view(name).substr(kind_begin);
  std::string_view layer;
  if (name.starts_with("layers.")) layer = std::string_view(name).substr(7, name.find('.', 7) - 7);
  const bool matrix = parameter.shape.rank() == 2;
  for (const NameRule& rule : rules) {
    if (replaced(rule.ours, layer, kind) != name) continue;
    const std::vector<std::string_view> theirs = split(rule.theirs);
    const std::vector<int64_t> rows = shares(config, theirs.size(), parameter.shape[0]);
    std::vector<StoredTensor> tensors;
    for (size_t i = 0; i < theirs.size(); ++i) {
      StoredTensor tensor;
      tensor.name = replaced(theirs[i], layer, kind);
      tensor.rows = rows[i];
      tensor.transposed = rule.layout == NameRule::transposed && matrix;
      tensor.unused_rows = rule.layout == NameRule::positions_from_two ? 2 : 0;
      tensor.added = rule.layout == NameRule::from_one ? 1.0f : 0.0f;
      if (rule.layout == NameRule::by_head) {
        tensor.order = RowOrder::query_key_value_by_head;
        tensor.heads = config.num_heads;
      } else if (adjacent_pairs && theirs.size() == 3 && i < 2) {
        tensor.order = RowOrder::adjacent_pairs;
        tensor.heads = i == 0 ? config.num_heads : config.num_kv_heads;
        tensor.rotary = config.rotary_columns();
      }
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }
  fail("no rule names the parameter {}", name);
}

}  // namespace megalith
