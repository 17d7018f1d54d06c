// Embeddings of texts: one vector a text, pooled from the hidden states of a model (as
// sentence-transformers does).
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/model_files.h"
#include "megalith/text/tokenizer.h"

namespace megalith {

/// The mean over all tokens, the first token, the last one, or the model's pooler over the first.
enum class Pooling { mean, first, last, pooler };
inline constexpr std::array<std::string_view, 4> kPoolingNames = {"mean", "first", "last", "pooler"};

struct EmbedOptions {
  Pooling pooling = Pooling::mean;
  /// Divides each vector by its length.
  bool normalize = true;
  /// Texts are cut to this many tokens, special ones included; 0 takes the model's context.
  int64_t max_tokens = 0;
};

/// What the files that sentence-transformers puts beside a model say (modules.json, 1_Pooling/config.json,
/// sentence_bert_config.json); the defaults where there are none. Throws InputError for a way of pooling that
/// is not known.
EmbedOptions embed_options_of(const std::filesystem::path& directory);

class Embedder {
 public:
  /// Throws InputError when the model and its options do not fit: more tokens than positions, a pooler that
  /// is not there, a tokenizer of another vocabulary.
  Embedder(const LoadedModel& model, const Tokenizer& tokenizer, const ExecContext& exec,
           const EmbedOptions& options);

  /// Vectors [texts, C], one after the other. A text's vector does not depend on the others. Throws
  /// InputError naming the text (from 0) that has no tokens.
  std::vector<float> embed(const std::vector<std::string>& texts);
  /// Texts that were cut so far.
  int64_t cut() const { return cut_; }
  int64_t size() const { return model_.config().hidden_size; }

 private:
  std::vector<int32_t> tokens_of(const std::string& text);
  // Texts first .. end-1 as documents of one sequence.
  void embed_pack(const std::vector<std::vector<int32_t>>& ids, size_t first, size_t end,
                  float* vectors) const;

  const LoadedModel& model_;
  const Tokenizer& tokenizer_;
  const ExecContext& exec_;
  EmbedOptions options_;
  int64_t cut_ = 0;
};

}  // namespace megalith
