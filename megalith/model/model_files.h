// Models on disk: a Megalith checkpoint, a run directory (its newest complete checkpoint), a Hugging Face
// directory, or a GGUF file.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megalith/formats/checkpoint_directory.h"
#include "megalith/model/encoded_weights.h"
#include "megalith/model/gguf_model.h"
#include "megalith/model/transformer.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

/// Files of a checkpoint that belong to the model and that training does not change: the template that makes
/// a prompt of a conversation, and which tokens end a text.
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
inline constexpr const char* kGenerationConfigFile = "generation_config.json";
inline constexpr std::array<const char*, 2> kModelSideFiles = {kChatTemplateFile, kGenerationConfigFile};

class HuggingFaceWeights;

enum class ModelFileKind { checkpoint, hugging_face, gguf };

/// What a path is as a model, without its weights.
struct ModelDescription {
  ModelFileKind kind = ModelFileKind::checkpoint;
  std::filesystem::path directory;  // of the checkpoint or the Hugging Face files; the GGUF file itself
  ModelConfig config;
  /// Text of tokenizer.json; empty when there is none.
  std::string tokenizer_json;
  /// A tokenizer of another form: inside a GGUF file, or a SentencePiece model.
  std::optional<Tokenizer> tokenizer;
  /// Why that one cannot be read; another one can be given.
  std::string tokenizer_error;
  /// Tokens that end a text, where the files name them; else the tokenizer's end-of-document token does.
  std::vector<int32_t> end_of_text;
  /// Text of generation_config.json; empty when there is none.
  std::string generation_config;
  /// Jinja template that makes a prompt of a conversation; empty when there is none.
  std::string chat_template;
  /// Of a checkpoint.
  int64_t step = 0;

  bool has_tokenizer() const { return !tokenizer_json.empty() || tokenizer.has_value(); }
  /// As a tokenizer.json, whatever form it has; empty when there is none.
  std::string tokenizer_as_json() const { return tokenizer ? tokenizer->to_json() : tokenizer_json; }
  /// Throws InputError when there is none, or saying why it cannot be read.
  Tokenizer open_tokenizer() const;
};

/// Throws InputError that says what the path is not.
ModelDescription describe_model(const std::filesystem::path& path);

/// Whether the weights of a model are copied into memory, or serve as they lie in its mapped files: nothing
/// is read before it is used then, and nothing is held twice, but every product decodes them. For computing
/// in F32.
enum class WeightForm { copied, as_stored };

/// A model ready for inference, computing in `dtype` (F32, BF16 or F16).
class LoadedModel {
 public:
  /// Throws InputError naming the file and tensor when one is missing, of another shape or damaged.
  LoadedModel(const ModelDescription& description, DType dtype, const ExecContext& exec,
              WeightForm form = WeightForm::copied);
  ~LoadedModel();

  /// Keeps a packed form of copied weights beside them, as large as they are: single tokens then run at the
  /// speed of memory, with the same results.
  void pack_weights(const ExecContext& exec);

  Transformer& model() { return *model_; }
  const Transformer& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }
  /// In the order of the walk.
  std::span<const Parameter* const> all_parameters() const { return all_parameters_; }
  /// Of the weights that are copied.
  const ParameterBuffers& parameters() const { return *parameters_; }
  DType dtype() const { return parameters_->values().dtype(); }

 private:
  Arena arena_{"weights"}, packed_{"packed weights"};
  // Mapped files, as long as weights lie in them.
  std::unique_ptr<GgufFile> gguf_;
  std::unique_ptr<HuggingFaceWeights> hugging_face_;
  std::unique_ptr<CheckpointReader> checkpoint_;
  EncodedWeights encoded_;
  std::unique_ptr<Transformer> model_;
  std::vector<const Parameter*> all_parameters_;
  std::unique_ptr<ParameterBuffers> parameters_;
};

/// Writes config.json, model.safetensors (weights in `dtype`), tokenizer.json and tokenizer_config.json (for
/// the chat template) into `directory`, which transformers loads. Throws InputError before anything is
/// written when the form cannot hold the model.
void save_hugging_face(const LoadedModel& model, const ModelExtras& extras, DType dtype,
                       const std::filesystem::path& directory);

/// Writes a Megalith checkpoint without optimizer states: `train --resume` begins from its weights at step 0.
void save_model_checkpoint(const LoadedModel& model, const ModelExtras& extras,
                           const std::filesystem::path& directory, const std::string& state_json);

/// The [model] table as TOML, and back.
std::string model_config_to_toml(ModelConfig config);
ModelConfig read_model_config(const CheckpointReader& reader);

}  // namespace megalith
