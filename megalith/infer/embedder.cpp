#include "megalith/infer/embedder.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/base/json_depth.h"
#include "megalith/infer/generator.h"
#include "megalith/ops/elementwise.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

// Tokens that go through the model at once.
constexpr size_t kPackTokens = 1024;

nlohmann::json read_json(const fs::path& path) {
  if (!fs::exists(path)) return {};
  const std::string text = read_file(path);
  check_json_depth(text, path.string());
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  check_input(!json.is_discarded(), "{}: not JSON", path.string());
  return json;
}

}  // namespace

EmbedOptions embed_options_of(const fs::path& directory) {
  EmbedOptions options;
  const nlohmann::json modules = read_json(directory / "modules.json");
  if (modules.is_array()) {
    options.normalize = false;
    for (const auto& module : modules) {
      const bool typed = module.is_object() && module.contains("type") && module["type"].is_string();
      const std::string type = typed ? module["type"].get<std::string>() : "";
      if (type.ends_with("Normalize")) {
        options.normalize = true;
      } else {
        check_input(type.ends_with("Transformer") || type.ends_with("Pooling"),
                    "{}: the module \"{}\" is not supported", (directory / "modules.json").string(), type);
      }
    }
  }
  const fs::path pooling_path = directory / "1_Pooling" / "config.json";
  const nlohmann::json pooling = read_json(pooling_path);
  if (pooling.is_object()) {
    const auto is_on = [&](const char* mode) {
      const std::string key = std::string("pooling_mode_") + mode;
      if (!pooling.contains(key)) return false;
      check_input(pooling[key].is_boolean(), "{}: \"{}\" must be true or false", pooling_path.string(), key);
      return pooling[key].get<bool>();
    };
    const bool first = is_on("cls_token"), mean = is_on("mean_tokens"), last = is_on("lasttoken");
    check_input(
        first + mean + last == 1,
        "{}: exactly one of pooling_mode_cls_token, pooling_mode_mean_tokens and pooling_mode_lasttoken "
        "must be on",
        pooling_path.string());
    options.pooling = first ? Pooling::first : mean ? Pooling::mean : Pooling::last;
  }
  const nlohmann::json sentence = read_json(directory / "sentence_bert_config.json");
  if (sentence.is_object() && sentence.contains("max_seq_length") && sentence["max_seq_length"].is_number()) {
    options.max_tokens = sentence["max_seq_length"].get<int64_t>();
  }
  return options;
}

Embedder::Embedder(const LoadedModel& model, const Tokenizer& tokenizer, const ExecContext& exec,
                   const EmbedOptions& options)
    : model_(model), tokenizer_(tokenizer), exec_(exec), options_(options) {
  check_tokenizer_fits(model, tokenizer);
  const ModelConfig& config = model.config();
  if (options_.max_tokens == 0) options_.max_tokens = config.max_positions;
  check_input(options_.max_tokens > 0 && options_.max_tokens <= config.max_positions,
              "max-tokens {} is out of range; the model's context holds {}", options_.max_tokens,
              config.max_positions);
  check_input(options_.pooling != Pooling::pooler || config.pooler,
              "pooling = pooler: the model has no pooler; choose mean, first or last");
}

std::vector<int32_t> Embedder::tokens_of(const std::string& text) {
  EncodeOptions encode;
  encode.add_special = true;
  std::vector<int32_t> ids = tokenizer_.encode(text, encode);
  if (ids.size() <= static_cast<size_t>(options_.max_tokens)) return ids;
  ++cut_;
  encode.max_tokens = static_cast<size_t>(options_.max_tokens);
  return tokenizer_.encode(text, encode);
}

std::vector<float> Embedder::embed(const std::vector<std::string>& texts) {
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < texts.size(); ++i) {
    ids.push_back(tokens_of(texts[i]));
    check_input(!ids.back().empty(), "text {} is empty and the tokenizer adds no token to it", i);
  }
  std::vector<float> vectors(texts.size() * static_cast<size_t>(size()));
  for (size_t first = 0; first < ids.size();) {
    size_t end = first, tokens = 0;
    while (end < ids.size() && (end == first || tokens + ids[end].size() <= kPackTokens)) {
      tokens += ids[end++].size();
    }
    embed_pack(ids, first, end, vectors.data() + first * static_cast<size_t>(size()));
    first = end;
  }
  return vectors;
}

void Embedder::embed_pack(const std::vector<std::vector<int32_t>>& ids, size_t first, size_t end,
                          float* vectors) const {
  std::vector<int32_t> tokens, positions, starts;
  for (size_t text = first; text < end; ++text) {
    const int32_t start = static_cast<int32_t>(tokens.size());
    for (size_t i = 0; i < ids[text].size(); ++i) {
      tokens.push_back(ids[text][i]);
      positions.push_back(static_cast<int32_t>(i));
      starts.push_back(start);
    }
  }
  const int64_t n = static_cast<int64_t>(tokens.size()), columns = size();
  ArenaScope scope(exec_.workspace);
  TokenBatch batch;
  batch.batch = 1;
  batch.tokens = n;
  batch.token_ids = {tokens.data(), DType::i32, {n}};
  batch.positions = {positions.data(), DType::i32, {n}};
  batch.document_starts = {starts.data(), DType::i32, {1, n}};
  const TensorView hidden = exec_.workspace.allocate(model_.dtype(), {n, columns});
  model_.model().encode(exec_, batch, hidden);
  const TensorView states = exec_.workspace.allocate(DType::f32, {n, columns});
  convert(exec_, hidden, states);

  int64_t start = 0;
  for (size_t text = first; text < end; ++text) {
    const int64_t length = static_cast<int64_t>(ids[text].size());
    float* vector = vectors + static_cast<int64_t>(text - first) * columns;
    const float* of_text = states.data<float>() + start * columns;
    if (options_.pooling == Pooling::pooler) {
      const TensorView pooled = exec_.workspace.allocate(model_.dtype(), {1, columns});
      model_.model().pool(exec_, hidden.slice(start, start + 1), pooled);
      convert(exec_, pooled, TensorView(vector, DType::f32, {1, columns}));
    }
    double squares = 0;
    for (int64_t c = 0; c < columns; ++c) {
      if (options_.pooling == Pooling::mean) {
        double sum = 0;
        for (int64_t t = 0; t < length; ++t) sum += of_text[t * columns + c];
        vector[c] = static_cast<float>(sum / static_cast<double>(length));
      } else if (options_.pooling != Pooling::pooler) {
        vector[c] = of_text[(options_.pooling == Pooling::first ? 0 : length - 1) * columns + c];
      }
      squares += static_cast<double>(vector[c]) * vector[c];
    }
    if (options_.normalize && squares > 0) {
      const double inverse = 1 / std::sqrt(squares);
      for (int64_t c = 0; c < columns; ++c) vector[c] = static_cast<float>(vector[c] * inverse);
    }
    start += length;
  }
}

}  // namespace megalith
