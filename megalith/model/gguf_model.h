// Models in GGUF files, by the architectures of model/gguf_family.h.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megalith/formats/gguf.h"
#include "megalith/model/encoded_weights.h"
#include "megalith/model/transformer.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

/// The model that a file's metadata describes. Refused (InputError naming file and key): unknown
/// architectures, missing keys, and keys and tensors that would change the numbers in a way that is not
/// supported.
ModelConfig config_from_gguf(const GgufFile& file);

/// Gives every matrix of the file, which must stay open, its encoded form.
void encode_gguf(const GgufFile& file, const ModelConfig& config,
                 const std::function<void(const ParameterVisitor&)>& walk, EncodedWeights& encoded);

/// Fills `parameters` from the file, dequantised. Throws InputError naming the tensor when one is missing, of
/// another shape, of a type that cannot be read, or left over.
void load_gguf(const GgufFile& file, const ModelConfig& config, const ParameterBuffers& parameters,
               const ExecContext& exec);

/// What goes with the weights of a model.
struct ModelExtras {
  std::string tokenizer_json = {};
  std::string chat_template = {};
  /// Tokens that end a text; empty: those that the tokenizer's names tell.
  std::vector<int32_t> end_of_text = {};
  /// Settings of generation as JSON (generation_config.json); empty when there are none.
  std::string generation_config = {};
  /// A tokenizer that was not read from a tokenizer.json, which keeps its scores on the way to GGUF; when
  /// absent, `tokenizer_json` counts.
  std::optional<Tokenizer> tokenizer = std::nullopt;
};

/// Writes a model, whole or not at all, with its matrices in `type` (the token table and the head in Q8_0
/// when that is Q4_0, since they matter most), vectors in F32. Throws InputError when GGUF cannot hold the
/// model, its tokenizer or its numbers.
void save_gguf(const ModelConfig& config, std::span<const Parameter* const> parameters, GgufType type,
               const ModelExtras& extras, const ExecContext& exec, const std::filesystem::path& path);

}  // namespace megalith
