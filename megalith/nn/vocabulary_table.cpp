#include "megalith/nn/vocabulary_table.h"

#include <algorithm>

namespace megalith {

VocabularyShare::VocabularyShare(int64_t vocabulary, int64_t padded_vocabulary, const TensorParallel& tensor)
    : rows((padded_vocabulary + tensor.size() - 1) / tensor.size()) {
  part.first = tensor.rank() * rows;
  part.vocabulary = vocabulary;
}

namespace {

TensorSlice slice_of(const VocabularyShare& share, const TensorParallel& tensor) {
  if (tensor.size() == 1) return {};
  const int64_t begin = std::min(share.part.first, share.part.vocabulary);
  return {0, {{begin, begin + share.part.counted(share.rows)}}};
}

}  // namespace

Parameter make_vocabulary_table(const std::string& name, const VocabularyShare& share, int64_t hidden,
                                float standard_deviation, const TensorParallel& tensor) {
  Parameter table =
      make_parameter(name, {share.part.vocabulary, hidden},
                     {Initialization::Kind::normal, standard_deviation}, true, slice_of(share, tensor));
  table.allocated_rows = share.rows;
  return table;
}

Parameter make_vocabulary_bias(const std::string& name, const VocabularyShare& share,
                               const TensorParallel& tensor) {
  Parameter bias = make_parameter(name, {share.part.vocabulary}, {}, false, slice_of(share, tensor));
  bias.allocated_rows = share.rows;
  return bias;
}

}  // namespace megalith
