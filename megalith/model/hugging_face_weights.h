// The weights of a Hugging Face directory, mapped.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "megalith/formats/safetensors.h"
#include "megalith/model/encoded_weights.h"
#include "megalith/model/hugging_face.h"

namespace megalith {

class HuggingFaceWeights {
 public:
  /// Opens model.safetensors, or the shards that model.safetensors.index.json names. Throws InputError when
  /// they are missing or damaged, or when a tensor is in two of them.
  HuggingFaceWeights(const std::filesystem::path& directory, const ModelConfig& config);

  /// Tensors by type, and their bytes.
  struct Summary {
    std::map<std::string_view, int64_t> tensors;
    uint64_t bytes = 0;
    /// Tensors that are left out: computed buffers, heads for other tasks, a tied output projection.
    std::vector<std::string> ignored;
  };
  Summary summary() const;
  /// Whether the tensors of a parameter are there.
  bool has(const Parameter& parameter) const;
  /// Gives every matrix that can serve as it lies in the files its encoded form.
  void encode(const std::function<void(const ParameterVisitor&)>& walk, EncodedWeights& encoded);
  /// Fills the other parameters. Throws InputError naming the tensor when one is missing, of another shape,
  /// or left over.
  void load(const ParameterBuffers& parameters, const ExecContext& exec);

 private:
  using Entries =
      std::map<std::string, std::pair<const SafetensorsFile*, const SafetensorsEntry*>, std::less<>>;

  std::vector<StoredTensor> tensors_of(const Parameter& parameter) const;
  Entries::const_iterator find(const std::string& name) const;
  // The tensor, of the right shape and a type that weights can have; it counts as used.
  TensorView take(const Parameter& parameter, const StoredTensor& stored);
  bool is_left_out(const std::string& name) const;
  void refuse_unused() const;

  std::filesystem::path directory_;
  ModelConfig config_;
  const Family& family_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  Entries entries_;
  std::set<std::string_view> used_;
};

}  // namespace megalith
