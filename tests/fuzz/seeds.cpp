#include "tests/fuzz/seeds.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/formats/gguf.h"
#include "megalith/formats/safetensors.h"
#include "megalith/model/gguf_model.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/model/transformer.h"
#include "megalith/train/recipe.h"
#include "tests/fuzz/parsers.h"

namespace megalith::fuzz {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<fs::path> sorted_files(const fs::path& directory, std::string_view ending) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().string().ends_with(ending)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  check(!found.empty(), "{}: no files *{}", directory.string(), ending);
  return found;
}

std::string safetensors_file(const std::vector<std::pair<std::string, Shape>>& tensors, DType dtype,
                             bool note) {
  const fs::path path = scratch() / "seed.safetensors";
  SafetensorsPlan plan;
  if (note) plan.metadata["note"] = "\u00e9 \"quoted\"";
  for (const auto& [name, shape] : tensors) plan.add(name, dtype, shape);
  SafetensorsWriter writer(path, plan);
  for (const SafetensorsEntry& entry : plan.entries) {
    writer.write(entry.name, std::string(entry.bytes(), '\1').data(), entry.bytes());
  }
  writer.finish();
  return read_file(path);
}

// A whole model of few bytes with a byte-level tokenizer.
std::string gguf_model(ModelForm form, const std::string& tokenizer_json) {
  ModelConfig config = ModelConfig::defaults(form);
  config.vocab_size = 300;
  config.num_layers = 1;
  config.hidden_size = 2;
  config.num_heads = config.num_kv_heads = 1;
  config.head_size = 2;
  config.ffn_hidden_size = 2;
  config.max_positions = 4;
  config.resolve();
  Transformer model(config);
  Arena arena("weights"), workspace("workspace", 1u << 20);
  const ParameterBuffers parameters([&](const ParameterVisitor& visitor) { model.walk(visitor); }, DType::f32,
                                    arena, nullptr);
  std::vector<const Parameter*> all;
  for (const ParameterSlot& slot : parameters.slots()) all.push_back(slot.parameter);
  const fs::path path = scratch() / "seed.gguf";
  save_gguf(config, all, GgufType::f32, {.tokenizer_json = tokenizer_json}, ExecContext{workspace, 1}, path);
  return read_file(path);
}

std::string gguf_tokenizer(bool word_piece, bool user_defined_in_text = false) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "\u2581a", "<turn>"};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 4};
  std::vector<int32_t> scores(9, std::bit_cast<int32_t>(-2.5f));
  for (int byte = 0; byte < 64; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte * 4));
    types.push_back(6);
    scores.push_back(0);
  }
  if (word_piece) tokens[6] = "\u2581the";  // The mark alone would leave no text.
  const fs::path path = scratch() / "seed.gguf";
  {
    GgufWriter writer(path);
    writer.add("general.architecture", word_piece ? "bert" : "llama");
    writer.add("general.name", "Phi-3");
    writer.add("tokenizer.ggml.model", word_piece ? "bert" : "llama");
    writer.add("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
    writer.add("tokenizer.ggml.scores", std::span<const int32_t>(scores));
    writer.add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
    writer.add("tokenizer.ggml.unknown_token_id", uint32_t{0});
    writer.add(word_piece ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", uint32_t{1});
    writer.add("tokenizer.ggml.seperator_token_id", uint32_t{2});
    writer.add("tokenizer.ggml.eos_token_id", uint32_t{2});
    writer.add("tokenizer.ggml.add_space_prefix", true);
    if (user_defined_in_text) writer.add(kGgufUserDefinedInTextKey, true);
    writer.finish();
  }
  // The writer has no arrays of floating-point numbers: their bits are there, and the type is set here.
  std::string bytes = read_file(path);
  constexpr std::string_view key = "tokenizer.ggml.scores";
  bytes[bytes.find(key) + key.size() + 4] = static_cast<char>(GgufValueType::f32);
  return bytes;
}

// Arrays of arrays, every type of number, tensors of several types.
std::string gguf_of_everything() {
  std::string bytes = "GGUF";
  const auto number = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto text = [&](std::string_view value) {
    number(uint64_t{value.size()});
    bytes += value;
  };
  number(uint32_t{3});
  number(uint64_t{3});
  number(uint64_t{15});
  text("general.alignment");
  number(uint32_t{4});
  number(uint32_t{8});
  constexpr size_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  for (uint32_t type = 0; type < 13; ++type) {
    if (type == 9) continue;
    text("key." + std::to_string(type));
    number(type);
    if (type == 8) {
      text("a text");
    } else {
      bytes.append(widths[type], '\1');
    }
  }
  text("nested");
  number(uint32_t{9});
  number(uint32_t{9});
  number(uint64_t{3});
  for (int i = 0; i < 3; ++i) {
    number(uint32_t{i == 2 ? 8u : 5u});
    number(uint64_t{1});
    if (i == 2) {
      text("x");
    } else {
      number(int32_t{7});
    }
  }
  text("empty");
  number(uint32_t{9});
  number(uint32_t{6});
  number(uint64_t{0});
  uint64_t offset = 0;
  for (const auto& [type, block] : {std::pair(0u, 4u), std::pair(8u, 34u), std::pair(30u, 2u)}) {
    text("tensor." + std::to_string(type));
    number(uint32_t{2});
    number(uint64_t{32});
    number(uint64_t{2});
    number(type);
    number(offset);
    offset += (2u * (type == 8 ? 1 : 32) * block + 7) / 8 * 8;
  }
  bytes.resize((bytes.size() + 7) / 8 * 8 + offset, '\2');
  return bytes;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  check(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
  std::string out(text.size() + 200, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  check(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string first_lines(const std::string& text, int lines) {
  size_t end = 0;
  for (; lines > 0 && end != std::string::npos; --lines) end = text.find('\n', end + 1);
  return text.substr(0, end == std::string::npos ? end : end + 1);
}

// All steps of a pipeline over the smallest model that it goes with.
std::vector<std::string> pipelines(const fs::path& fixtures) {
  std::ifstream lines(fixtures / "pipelines.jsonl");
  std::vector<std::string> files;
  Json models;
  for (std::string line; std::getline(lines, line);) {
    Json row = Json::parse(line);
    if (row.is_object() && row.contains("bpe")) models = row;
    if (!row.is_object() || !row.contains("tokenizer")) continue;
    Json& tokenizer = row["tokenizer"];
    if (tokenizer.contains("model") && tokenizer["model"].is_string()) {
      tokenizer["model"] = models.at(tokenizer["model"].get<std::string>());
    }
    Json& model = tokenizer["model"];
    // Long vocabularies cost time and say nothing new: the merges and the pieces behind the first ones go.
    constexpr size_t kMost = 60;
    if (model.contains("merges")) {
      model["merges"].get_ref<Json::array_t&>().resize(std::min<size_t>(3, model["merges"].size()));
    }
    if (model.contains("vocab") && model["vocab"].is_array() && model["vocab"].size() > kMost) {
      model["vocab"].get_ref<Json::array_t&>().resize(kMost);
    }
    files.push_back(tokenizer.dump());
  }
  check(!files.empty(), "no pipelines");
  return files;
}

}  // namespace

SeedFiles seed_files(std::string_view parser, const fs::path& tests) {
  const fs::path fixtures = tests / "text" / "fixtures", golden = tests / "golden";
  SeedFiles seeds;
  auto& files = seeds.files;
  if (parser == "safetensors") {
    seeds.kind = FileKind::safetensors;
    files.push_back(
        safetensors_file({{"a", {2, 3}}, {"b/\u00fc\U0001F600", {}}, {"empty", {0, 4}}}, DType::f32, true));
    files.push_back(safetensors_file({{"model.layers.0.self_attn.q_proj.weight", {4, 4}},
                                      {"model.layers.0.self_attn.k_proj.weight", {2, 4}},
                                      {"model.layers.0.input_layernorm.weight", {4}},
                                      {"model.embed_tokens.weight", {8, 4}},
                                      {"lm_head.weight", {1, 2, 2, 2}}},
                                     DType::bf16, false));
    files.push_back(safetensors_file({}, DType::f32, true));
  } else if (parser == "gguf") {
    const std::string bytes_json = read_file(fixtures / "bl_added_alphabet.json");
    files = {gguf_tokenizer(false),
             gguf_tokenizer(false, true),
             gguf_tokenizer(true),
             gguf_of_everything(),
             read_file(golden / "gguf_types.gguf"),
             gguf_model(ModelForm::llama, bytes_json),
             gguf_model(ModelForm::gpt2, bytes_json)};
  } else if (parser == "config_json") {
    seeds.kind = FileKind::json;
    for (const fs::path& path : sorted_files(golden, "/config.json")) files.push_back(read_file(path));
  } else if (parser == "tokenizer_json") {
    seeds.kind = FileKind::json;
    files = pipelines(fixtures);
    for (const fs::path& path : sorted_files(fixtures, ".json")) {
      if (fs::file_size(path) < 4000) files.push_back(read_file(path));
    }
  } else if (parser == "sentencepiece") {
    seeds.kind = FileKind::protobuf;
    for (const fs::path& path : sorted_files(fixtures, ".model")) files.push_back(read_file(path));
  } else if (parser == "tiktoken") {
    seeds.kind = FileKind::text;
    const std::string all = read_file(fixtures / "ranks.tiktoken");
    files = {first_lines(all, 270), first_lines(all, 10)};
  } else if (parser == "index") {
    for (const fs::path& path : sorted_files(tests / "formats" / "golden", ".idx"))
      files.push_back(read_file(path));
  } else if (parser == "manifest") {
    seeds.kind = FileKind::json;
    files.push_back(write_checkpoint_around());
  } else if (parser == "recipe") {
    seeds.kind = FileKind::text;
    for (const fs::path& path : sorted_files(tests.parent_path() / "recipes", ".toml")) {
      files.push_back(read_file(path));
      files.push_back(
          Recipe::from_source(ConfigSource::from_text(files.back(), path.string()), "/").to_toml());
    }
  } else if (parser == "side_files") {
    seeds.kind = FileKind::json;
    files = {
        "{\"eos_token_id\": [1, 2], \"chat_template\": \"x\", \"pooling_mode_cls_token\": true, "
        "\"pooling_mode_mean_tokens\": false, \"max_seq_length\": 7, \"weight_map\": {\"a\": "
        "\"model.safetensors\", \"b\": \"model.safetensors\"}}",
        "[{\"idx\": 0, \"type\": \"sentence_transformers.models.Transformer\"}, {\"type\": "
        "\"sentence_transformers.models.Normalize\"}]"};
  } else if (parser == "run_log") {
    seeds.kind = FileKind::text;
    files = {
        "{\"step\": 10, \"loss\": 2.5, \"learning_rate\": 0.001, \"batch\": 4, \"time\": 17.5}\n"
        "{\"step\": 20, \"validation_loss\": null, \"time\": 18}\n{\"kind\": \"profile\", \"step\": 20, "
        "\"memory\": {\"weights\": [1, 2]}}\n{\"step\": 30, \"loss\": 1}\n{\"st"};
  } else if (parser == "records") {
    const std::string lines =
        "{\"text\": \"the lo \\u00e9 \\ud83d\\ude00\", \"title\": \"x\", \"n\": [1, 2.5e3, null, true]}\n"
        "{\"text\": \"second\"}\r\n\n{\"title\": {\"text\": \"deep\"}}\n[1]\n{\"text\": \"\", \"text\": 7}\n";
    files = {lines, "\xEF\xBB\xBF" + lines, gzip(lines), zstandard(lines), gzip(lines) + gzip(lines)};
  } else {
    fail_input("there is no parser \"{}\"", parser);
  }
  return seeds;
}

}  // namespace megalith::fuzz
