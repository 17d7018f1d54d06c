#include "tests/fuzz/parsers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <string>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/data/record_parser.h"
#include "megalith/formats/checkpoint_directory.h"
#include "megalith/formats/gguf.h"
#include "megalith/formats/indexed_dataset.h"
#include "megalith/formats/safetensors.h"
#include "megalith/infer/embedder.h"
#include "megalith/model/gguf_model.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/model/hugging_face.h"
#include "megalith/model/model_files.h"
#include "megalith/text/sentencepiece_file.h"
#include "megalith/text/tiktoken_file.h"
#include "megalith/text/tokenizer.h"
#include "megalith/train/recipe.h"
#include "megalith/train/run_log.h"

namespace megalith::fuzz {

namespace {

namespace fs = std::filesystem;

using Bytes = std::span<const std::byte>;

fs::path scratch_directory;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void put(int descriptor, Bytes bytes) {
  check(::ftruncate(descriptor, 0) == 0, "cannot empty a scratch file");
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t done = ::pwrite(descriptor, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    check(done > 0, "cannot write a scratch file");
    at += static_cast<size_t>(done);
  }
}

void put(const fs::path& path, Bytes bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  check(descriptor >= 0, "cannot create {}", path.string());
  put(descriptor, bytes);
  ::close(descriptor);
}

// The bytes as a file without a name.
fs::path as_file(Bytes bytes) {
  static const int descriptor = ::memfd_create("input", MFD_CLOEXEC);
  static const fs::path path = "/proc/self/fd/" + std::to_string(descriptor);
  put(descriptor, bytes);
  return path;
}

// Reads every byte, so that one outside of the map is found.
void touch(Bytes bytes) {
  volatile unsigned sum = 0;
  for (const std::byte byte : bytes) sum = sum + static_cast<unsigned>(byte);
}

void use(const Tokenizer& tokenizer) {
  constexpr std::string_view text =
      " the lo<sep> don't  12345 \xC3\xA9\n\nx<a>b \xFF\xC3 \xE5\xAD\x97\xE3\x81\xA7\xE3\x81\x99 "
      "\xE2\x96\x81y\xC2\xA0\xEF\xAC\x83 e\xCC\x81 \xF0\x9F\x98\x80\r\n\taaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
  const std::vector<int32_t> ids = tokenizer.encode(text, {.parse_special = true, .add_special = true});
  tokenizer.decode(ids);
  tokenizer.decode(ids, true);
  StreamingDecoder stream(tokenizer);
  for (const int32_t id : ids) {
    if (!tokenizer.has_id(id)) throw std::logic_error("encode gives an id that no token has");
    tokenizer.token_bytes(id);
    stream.push(id);
  }
  stream.flush();
  for (const TokenSpan& span : tokenizer.encode_with_offsets(text, {.truncate = true, .pad = true})) {
    if (span.byte_begin > span.byte_end || span.byte_end > text.size()) {
      throw std::logic_error("encode_with_offsets gives a token outside of the text");
    }
  }
}

}  // namespace

void parse_safetensors(Bytes bytes) {
  const SafetensorsFile file(as_file(bytes));
  for (const SafetensorsEntry& entry : file.entries()) {
    if (file.find(entry.name) != &entry) throw std::logic_error("a tensor is not found by its name");
    touch(file.bytes(entry));
    if (static_cast<uint64_t>(entry.elements()) * size_of(entry.dtype) != entry.bytes()) {
      throw std::logic_error("the shape of a tensor does not fit its bytes");
    }
    if (entry.shape.size() <= Shape::kMaxRank) file.view(entry);
  }
}

void parse_gguf(Bytes bytes) {
  const GgufFile file(as_file(bytes));
  for (const auto& [key, value] : file.metadata()) describe(value);
  for (const GgufTensor& tensor : file.tensors()) touch(file.bytes(tensor));
  // One may be refused where the other is not.
  try {
    config_from_gguf(file);
  } catch (const InputError&) {
  }
  end_of_text_ids(file);
  const std::optional<Tokenizer> tokenizer = tokenizer_from_gguf(file);
  if (!tokenizer) return;
  use(*tokenizer);
  tokenizer->to_json();
}

void parse_config_json(Bytes bytes) {
  const ModelConfig config = config_from_hugging_face(std::string(text_of(bytes)), "config.json");
  config.rope_options(false);
  config.resolved_attention_scale();
}

void parse_tokenizer_json(Bytes bytes) {
  use(Tokenizer::from_json(text_of(bytes), "tokenizer.json"));
}

void parse_sentencepiece(Bytes bytes) {
  const Tokenizer tokenizer =
      Tokenizer::from_description(read_sentencepiece_model(text_of(bytes), "tokenizer.model"));
  use(tokenizer);
  tokenizer.to_json();
}

void parse_tiktoken(Bytes bytes) {
  if (!is_tiktoken_file(text_of(bytes))) fail_input("not a rank file");
  std::deque<std::string> storage;
  const Tokenizer tokenizer =
      Tokenizer::from_description(read_tiktoken_file(text_of(bytes), "cl100k", "x.tiktoken", storage));
  use(tokenizer);
  tokenizer.to_json();
}

void parse_index(Bytes bytes) {
  const fs::path prefix = scratch() / "tokens";
  static const bool written = [&] {
    const std::string tokens(kTokenBytes, '\2');
    put(bin_path(prefix), std::as_bytes(std::span(tokens)));
    return true;
  }();
  (void)written;
  put(idx_path(prefix), bytes);
  const IndexedDataset dataset(prefix);
  for (uint64_t i = 0; i < dataset.documents(); ++i) {
    if (dataset.document(i).size() != dataset.document_length(i)) throw std::logic_error("document_length");
  }
  for (uint64_t i = 0; i < dataset.sequences(); ++i) {
    dataset.sequence(i);
    if (dataset.has_modes()) dataset.sequence_mode(i);
  }
}

std::string write_checkpoint_around() {
  const fs::path path = scratch() / "step";
  const Tensor a(DType::f32, {3, 2}), b(DType::bf16, {5}), c(DType::f32, {4}), d(DType::f32, {3});
  std::iota(a.data<float>(), a.data<float>() + 6, 1.0f);
  CheckpointWriter writer(path);
  writer.write_tensors("model.safetensors", {{"a", a},
                                             {"b", b},
                                             {"c", c, {4, 2}, TensorSlice{0, {{0, 1}, {2, 3}}}, 0},
                                             {"e", d, {6}, TensorSlice{}, 0}});
  writer.write_tensors(
      "optimizer.safetensors",
      {{"m/a", a}, {"c", c, {4, 2}, TensorSlice{0, {{1, 2}, {3, 4}}}, 0}, {"e", d, {6}, TensorSlice{}, 3}});
  writer.write_file("note.txt", "hello");
  writer.commit(1, "{\"x\": 1}");
  return read_file(path / "manifest.json");
}

void parse_manifest(Bytes bytes) {
  if (static bool there = fs::exists(scratch() / "step"); !there) {
    write_checkpoint_around();
    there = true;
  }
  put(scratch() / "step" / "manifest.json", bytes);
  const CheckpointReader reader(scratch() / "step");
  reader.plain_files();
  for (const std::string& name : reader.tensor_names()) {
    reader.shape(name);
    reader.files_of(name);
    touch({static_cast<const std::byte*>(reader.tensor(name).raw()),
           static_cast<size_t>(reader.shape(name).elements()) * size_of(reader.dtype(name))});
  }
  reader.verify();
}

void parse_recipe(Bytes bytes) {
  const ConfigSource source = ConfigSource::from_text(text_of(bytes), "recipe.toml");
  const Recipe recipe = Recipe::from_source(source, "/");
  const Recipe back = Recipe::from_source(ConfigSource::from_text(recipe.to_toml(), "again.toml"), "/");
  if (back != recipe) throw std::logic_error("the recipe that is written back is another one");
}

void parse_side_files(Bytes bytes) {
  const fs::path directory = scratch() / "model";
  if (static bool there = false; !there) {
    fs::create_directories(directory / "1_Pooling");
    ModelConfig config = ModelConfig::defaults(ModelForm::gpt2);
    config.vocab_size = 10;
    config.resolve();
    const std::string json = config_to_hugging_face(config, DType::f32, {});
    put(directory / "config.json", std::as_bytes(std::span(json)));
    SafetensorsWriter(directory / "model.safetensors", {}).finish();
    there = true;
  }
  if (text_of(bytes).starts_with('[')) {
    put(directory / "modules.json", bytes);
  } else {
    for (const char* name : {"generation_config.json", "tokenizer_config.json", "1_Pooling/config.json",
                             "sentence_bert_config.json", "model.safetensors.index.json"}) {
      put(directory / name, bytes);
    }
  }
  // One may be refused where the other is not.
  try {
    embed_options_of(directory);
  } catch (const InputError&) {
  }
  describe_model(directory);
}

void parse_run_log(Bytes bytes) {
  const fs::path directory = scratch() / "run";
  fs::create_directories(directory);
  put(directory / "log.jsonl", bytes);
  RunLog(directory, 20).validation(21, 1.5);
}

void parse_records(Bytes bytes) {
  RecordReader reader({{as_file(bytes).string(), true}}, {.maximum_record_bytes = 1 << 20});
  RecordParser parser({"text", "title"});
  RejectLog log("", false);
  RawRecord record;
  ParsedRecord parsed;
  while (reader.next(record)) {
    parser.parse(record, parsed);
    if (parsed.reject) {
      log.reject("records", record, *parsed.reject);
    } else {
      log.keep();
    }
  }
  log.summary();
}

std::span<const Parser> parsers() {
  constexpr size_t kMiB = 1 << 20;
  static constexpr std::array<Parser, 12> all = {{
      {"safetensors", parse_safetensors, 1 * kMiB},
      {"gguf", parse_gguf, 64 * kMiB},
      {"config_json", parse_config_json, 1 * kMiB},
      {"tokenizer_json", parse_tokenizer_json, 64 * kMiB, true},
      {"sentencepiece", parse_sentencepiece, 16 * kMiB},
      {"tiktoken", parse_tiktoken, 64 * kMiB},
      {"index", parse_index, 1 * kMiB},
      {"manifest", parse_manifest, 4 * kMiB},
      {"recipe", parse_recipe, 1 * kMiB},
      {"side_files", parse_side_files, 8 * kMiB},
      {"run_log", parse_run_log, 16 * kMiB},
      {"records", parse_records, 16 * kMiB},
  }};
  return all;
}

void set_scratch(const fs::path& directory) {
  scratch_directory = directory;
}

const fs::path& scratch() {
  return scratch_directory;
}

}  // namespace megalith::fuzz
