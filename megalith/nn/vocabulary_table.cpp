#include "megalith/nn/vocabulary_table.h"

#include <algorithm>

namespace megalith {

VocabularyShare::VocabularyShare(int64_t vocabulary, int64_t padded_vocabulary, const TensorParallel& tensor)
    : rows((padded_vocabulary + tensor.size() - 1) / tensor.size()) {
  part.first = tensor.rank() * rows;
  part.vocabulary = vocabulary;
}

Parameter make_vocabulary_table(const std::string& name, const VocabularyShare& share, int64_t hidden,
                                float standard_deviation, const TensorParallel& tensor) {
  const int64_t vocabulary = share.part.vocabulary;
  TensorSlice slice;
  if (tensor.size() > 1) {
    const int64_t begin = std::min(share.part.first, vocabulary);
    slice = {0, {{begin, begin + share.part.counted(share.rows)}}};
  }
  Parameter table = make_parameter(name, {vocabulary, hidden},
                                   {Initialization::Kind::normal, standard_deviation}, true, slice);
  table.allocated_rows = share.rows;
  return table;
}

}  // namespace megalith
