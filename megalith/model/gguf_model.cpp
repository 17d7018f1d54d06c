#include "megalith/model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "megalith/base/error.h"
#include "megalith/model/gguf_tokenizer.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKnown = "gpt2 and llama";

// Metadata under the architecture's name.
class Keys {
 public:
  explicit Keys(const GgufFile& file) : file_(file) {
    const auto architecture = file.text("general.architecture");
    check_input(architecture.has_value(), "{}: \"general.architecture\" is missing", file.path().string());
    architecture_ = *architecture;
  }

  const std::string& architecture() const { return architecture_; }
  int64_t required(const char* key) const {
    const auto value = file_.integer(full(key));
    check_input(value.has_value(), "{}: \"{}\" is missing", file_.path().string(), full(key));
    check_input(*value > 0 && *value < (int64_t{1} << 31), "{}: \"{}\" = {} is out of range",
                file_.path().string(), full(key), *value);
    return *value;
  }
  int64_t optional(const char* key, int64_t otherwise) const {
    return file_.find(full(key)) == nullptr ? otherwise : required(key);
  }
  double real(const char* key, double otherwise) const { return file_.real(full(key)).value_or(otherwise); }
  double required_real(const char* key) const {
    const auto value = file_.real(full(key));
    check_input(value.has_value(), "{}: \"{}\" is missing", file_.path().string(), full(key));
    return *value;
  }

  // Every other key of the architecture could change the numbers.
  void refuse_unknown(const std::set<std::string_view>& known) const {
    for (const auto& [key, value] : file_.metadata()) {
      if (!key.starts_with(architecture_ + ".")) continue;
      const std::string_view inner = key.substr(architecture_.size() + 1);
      if (known.contains(inner)) continue;
      if (inner == "rope.scaling.type" && file_.text(key) == "none") continue;
      fail_input("{}: \"{}\" = {} is not understood and could change the numbers", file_.path().string(), key,
                 describe(value));
    }
  }

 private:
  std::string full(const char* key) const { return architecture_ + "." + key; }

  const GgufFile& file_;
  std::string architecture_;
};

// Rows of a parameter that one tensor holds.
struct Part {
  std::string name;
  int64_t rows;
  /// Heads whose rows are stored with the two halves that rotate together interleaved, as llama.cpp's LLaMA
  /// has them; 0 for rows in our order.
  int64_t interleaved_heads = 0;
};

std::vector<Part> parts_of(const ModelConfig& config, const std::string& parameter, int64_t rows) {
  if (parameter == "embedding.token.weight") return {{"token_embd.weight", rows}};
  if (parameter == "embedding.position.weight") return {{"position_embd.weight", rows}};
  if (parameter == "head.weight") return {{"output.weight", rows}};
  const size_t last_dot = parameter.rfind('.');
  const std::string kind = parameter.substr(last_dot);  // .weight or .bias
  if (parameter.starts_with("final_norm")) return {{"output_norm" + kind, rows}};
  const size_t layer_end = parameter.find('.', 7);  // after "layers."
  const std::string layer = "blk." + parameter.substr(7, layer_end - 7) + ".";
  const std::string inner = parameter.substr(layer_end + 1, last_dot - layer_end - 1);
  if (inner == "attention_norm") return {{layer + "attn_norm" + kind, rows}};
  if (inner == "feed_forward_norm") return {{layer + "ffn_norm" + kind, rows}};
  if (inner == "attention.query_key_value") {
    if (config.form == ModelForm::gpt2) return {{layer + "attn_qkv" + kind, rows}};
    const int64_t query = config.num_heads * config.head_size, key = config.num_kv_heads * config.head_size;
    return {{layer + "attn_q" + kind, query, config.num_heads},
            {layer + "attn_k" + kind, key, config.num_kv_heads},
            {layer + "attn_v" + kind, key}};
  }
  if (inner == "attention.output") return {{layer + "attn_output" + kind, rows}};
  if (inner == "feed_forward.up") {
    if (!is_gated(config.activation)) return {{layer + "ffn_up" + kind, rows}};
    return {{layer + "ffn_gate" + kind, rows / 2}, {layer + "ffn_up" + kind, rows / 2}};
  }
  return {{layer + "ffn_down" + kind, rows}};
}

// Our row of a part for its row r in the file: of a head with D rows, row 2 i + j there is row j D/2 + i
// here.
int64_t our_row(const Part& part, int64_t r) {
  if (part.interleaved_heads == 0) return r;
  const int64_t size = part.rows / part.interleaved_heads, within = r % size;
  return r - within + within % 2 * (size / 2) + within / 2;
}

std::vector<int64_t> shape_of(const Parameter& parameter, const Part& part) {
  if (parameter.shape.rank() == 1) return {part.rows};
  return {part.rows, parameter.shape[1]};
}

std::string to_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

template <class T>
void store(const float* from, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

// The tensor of a part, of the right shape and of a type that can be read.
const GgufTensor& find_part(const GgufFile& file, const Parameter& parameter, const Part& part) {
  const std::string path = file.path().string();
  const GgufTensor* tensor = file.find_tensor(part.name);
  check_input(tensor != nullptr, "{}: there is no tensor {}", path, part.name);
  const std::vector<int64_t> shape = shape_of(parameter, part);
  check_input(tensor->shape == shape, "{}: tensor {} is {}; the metadata makes it {}", path, part.name,
              to_text(tensor->shape), to_text(shape));
  check_input(can_dequantize(tensor->type), "{}: tensor {} is of type {}, which cannot be read", path,
              part.name, name(tensor->type));
  return *tensor;
}

// Every tensor has its place, before memory for the weights is asked for.
void check_tensors(const GgufFile& file, const ModelConfig& config) {
  Transformer model(config);
  std::set<std::string_view> used;
  model.walk([&](Parameter& parameter) {
    for (const Part& part : parts_of(config, parameter.name, parameter.shape[0])) {
      used.insert(find_part(file, parameter, part).name);
    }
  });
  for (const GgufTensor& tensor : file.tensors()) {
    check_input(used.contains(tensor.name), "{}: tensor {} is not understood and could change the numbers",
                file.path().string(), tensor.name);
  }
}

// What both architectures have.
void read_sizes(const Keys& keys, ModelConfig& config) {
  config.num_layers = keys.required("block_count");
  config.max_positions = keys.required("context_length");
  config.hidden_size = keys.required("embedding_length");
  config.ffn_hidden_size = keys.required("feed_forward_length");
  config.num_heads = keys.required("attention.head_count");
}

ModelConfig read_llama(const GgufFile& file, const Keys& keys) {
  ModelConfig config = ModelConfig::defaults(ModelForm::llama);
  keys.refuse_unknown({"block_count", "context_length", "embedding_length", "feed_forward_length",
                       "attention.head_count", "attention.head_count_kv", "attention.key_length",
                       "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.freq_base",
                       "rope.dimension_count", "vocab_size"});
  read_sizes(keys, config);
  config.num_kv_heads = keys.optional("attention.head_count_kv", config.num_heads);
  config.head_size = keys.optional("attention.key_length", config.hidden_size / config.num_heads);
  config.norm_epsilon = keys.required_real("attention.layer_norm_rms_epsilon");
  config.rope_base = keys.real("rope.freq_base", 10000.0);
  const std::string path = file.path().string();
  check_input(keys.optional("attention.value_length", config.head_size) == config.head_size,
              "{}: keys and values of different sizes are not supported", path);
  check_input(keys.optional("rope.dimension_count", config.head_size) == config.head_size,
              "{}: \"llama.rope.dimension_count\" is not the head's size, {}", path, config.head_size);
  check_input(file.find_tensor("rope_freqs.weight") == nullptr,
              "{}: tensor rope_freqs.weight scales the rotary embedding, which is not supported", path);
  config.bias = file.find_tensor("blk.0.attn_q.bias") != nullptr;
  return config;
}

ModelConfig read_gpt2(const Keys& keys) {
  ModelConfig config = ModelConfig::defaults(ModelForm::gpt2);
  keys.refuse_unknown({"block_count", "context_length", "embedding_length", "feed_forward_length",
                       "attention.head_count", "attention.layer_norm_epsilon"});
  read_sizes(keys, config);
  config.norm_epsilon = keys.required_real("attention.layer_norm_epsilon");
  return config;
}

// Why GGUF cannot hold a model, or nothing.
std::string misfit(const ModelConfig& config) {
  if (config.form == ModelForm::gpt2) {
    if (config.positions != PositionKind::learned) return "its positions are not learned";
    if (config.norm != NormKind::layer) return "its norm is not layernorm";
    if (!config.bias) return "it has no biases";
    if (config.activation != Activation::gelu_tanh) return "its activation is not gelu_tanh";
    if (config.num_kv_heads != config.num_heads) return "it has grouped key/value heads";
    if (config.head_size * config.num_heads != config.hidden_size)
      return "num_heads x head_size is not hidden_size";
    return {};
  }
  if (config.positions != PositionKind::rope) return "its positions are not rotary";
  if (config.rope_fraction != 1) return "only a part of each head rotates";
  if (config.norm != NormKind::rms) return "its norm is not rmsnorm";
  if (config.activation != Activation::swiglu) return "its activation is not swiglu";
  return {};
}

GgufType type_of(const Parameter& parameter, GgufType type) {
  if (parameter.shape.rank() == 1) return GgufType::f32;
  const bool table = parameter.name == "embedding.token.weight" || parameter.name == "head.weight";
  if (type == GgufType::q4_0 && table) return GgufType::q8_0;
  // Read row by row and never multiplied: llama.cpp wants it unquantised.
  if (parameter.name == "embedding.position.weight") return GgufType::f32;
  return type;
}

void write_config(GgufWriter& writer, const ModelConfig& config) {
  const bool gpt2 = config.form == ModelForm::gpt2;
  const std::string prefix = gpt2 ? "gpt2." : "llama.";
  const auto add = [&](const char* key, int64_t value) {
    writer.add(prefix + key, static_cast<uint32_t>(value));
  };
  writer.add("general.architecture", gpt2 ? "gpt2" : "llama");
  add("block_count", config.num_layers);
  add("context_length", config.max_positions);
  add("embedding_length", config.hidden_size);
  add("feed_forward_length", config.ffn_hidden_size);
  add("attention.head_count", config.num_heads);
  const float epsilon = static_cast<float>(config.norm_epsilon);
  if (gpt2) {
    writer.add(prefix + "attention.layer_norm_epsilon", epsilon);
    return;
  }
  add("attention.head_count_kv", config.num_kv_heads);
  add("attention.key_length", config.head_size);
  add("attention.value_length", config.head_size);
  add("rope.dimension_count", config.head_size);
  add("vocab_size", config.vocab_size);
  writer.add(prefix + "attention.layer_norm_rms_epsilon", epsilon);
  writer.add(prefix + "rope.freq_base", static_cast<float>(config.rope_base));
}

// general.file_type, which tools show.
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q4_0:
      return 2;
    case GgufType::q8_0:
      return 7;
    default:
      return 32;  // BF16
  }
}

}  // namespace

ModelConfig config_from_gguf(const GgufFile& file) {
  const Keys keys(file);
  const std::string path = file.path().string();
  check_input(keys.architecture() == "llama" || keys.architecture() == "gpt2",
              "{}: the architecture \"{}\" is not known; known are {}", path, keys.architecture(), kKnown);
  ModelConfig config = keys.architecture() == "llama" ? read_llama(file, keys) : read_gpt2(keys);
  const GgufTensor* table = file.find_tensor("token_embd.weight");
  check_input(table != nullptr && table->shape.size() == 2, "{}: there is no matrix token_embd.weight", path);
  config.vocab_size = table->shape[0];
  config.tied_embeddings = file.find_tensor("output.weight") == nullptr;
  config.embedding_dropout = config.attention_dropout = config.hidden_dropout = 0;
  check_input(config.num_layers <= static_cast<int64_t>(file.tensors().size()),
              "{}: {} blocks have only {} tensors", path, config.num_layers, file.tensors().size());
  check_input(
      config.num_heads <= (1 << 20) && config.num_kv_heads <= (1 << 20) && config.head_size <= (1 << 20),
      "{}: the number or size of heads is absurd", path);
  check_input(config.norm_epsilon > 0 && config.norm_epsilon < 1,
              "{}: the norm's epsilon, {}, is out of range", path, config.norm_epsilon);
  check_input(config.rope_base >= 1 && config.rope_base < 1e30, "{}: \"rope.freq_base\" = {} is out of range",
              path, config.rope_base);
  config.resolve();
  check_tensors(file, config);
  return config;
}

void load_gguf(const GgufFile& file, const ModelConfig& config, const ParameterBuffers& parameters,
               const ExecContext& exec) {
  for (const ParameterSlot& slot : parameters.slots()) {
    const Parameter& parameter = *slot.parameter;
    int64_t first = 0;
    for (const Part& part : parts_of(config, parameter.name, parameter.shape[0])) {
      const GgufTensor& tensor = find_part(file, parameter, part);
      const bool vector = tensor.shape.size() == 1;
      const int64_t rows = vector ? 1 : part.rows, columns = tensor.shape.back();
      const std::byte* data = file.bytes(tensor).data();
      const GgufBlock& block = gguf_block(tensor.type);
      const int64_t row_bytes = columns / block.elements * block.bytes;
      const TensorView to = parameter.value.slice(first, first + part.rows);
      dispatch_float(to.dtype(), [&]<class T>(std::type_identity<T>) {
        T* out = to.data<T>();
#pragma omp parallel num_threads(exec.threads)
        {
          std::vector<float> values(static_cast<size_t>(columns));
#pragma omp for schedule(static)
          for (int64_t r = 0; r < rows; ++r) {
            dequantize(tensor.type, data + r * row_bytes, columns, values.data());
            if (vector) {
              for (int64_t i = 0; i < columns; ++i) {
                out[our_row(part, i)] = static_cast<T>(values[static_cast<size_t>(i)]);
              }
            } else {
              store(values.data(), columns, out + our_row(part, r) * columns);
            }
          }
        }
      });
      first += part.rows;
    }
  }
}

namespace {

// Writes the weights, which fit the file's plan.
void write_weights(const ModelConfig& config, const ParameterBuffers& parameters, GgufType type,
                   const ExecContext& exec, GgufWriter& writer) {
  for (const ParameterSlot& slot : parameters.slots()) {
    const Parameter& parameter = *slot.parameter;
    int64_t first = 0;
    for (const Part& part : parts_of(config, parameter.name, parameter.shape[0])) {
      const std::vector<int64_t> shape = shape_of(parameter, part);
      const bool vector = shape.size() == 1;
      const int64_t rows = vector ? 1 : part.rows, columns = shape.back();
      const GgufType stored = type_of(parameter, type);
      const GgufBlock& block = gguf_block(stored);
      const int64_t row_bytes = columns / block.elements * block.bytes;
      std::vector<std::byte> bytes(static_cast<size_t>(rows * row_bytes));
      const TensorView from = parameter.value.slice(first, first + part.rows);
      const float most = largest_quantizable(stored);
      bool fits = true;
      dispatch_float(from.dtype(), [&]<class T>(std::type_identity<T>) {
        const T* in = from.data<T>();
#pragma omp parallel num_threads(exec.threads) reduction(&& : fits)
        {
          std::vector<float> values(static_cast<size_t>(columns));
#pragma omp for schedule(static)
          for (int64_t r = 0; r < rows; ++r) {
            bool row_fits = true;
            for (int64_t i = 0; i < columns; ++i) {
              const float value =
                  static_cast<float>(vector ? in[our_row(part, i)] : in[our_row(part, r) * columns + i]);
              values[static_cast<size_t>(i)] = value;
              row_fits = row_fits && std::fabs(value) <= most;
            }
            fits = fits && row_fits;
            if (row_fits) quantize(stored, values.data(), columns, bytes.data() + r * row_bytes);
          }
        }
      });
      check_input(fits, "tensor {} holds a number that is not finite or too large for {}", part.name,
                  name(stored));
      writer.write(part.name, bytes.data(), bytes.size());
      first += part.rows;
    }
  }
}

}  // namespace

void save_gguf(const ModelConfig& config, const ParameterBuffers& parameters, GgufType type,
               const ModelExtras& extras, const ExecContext& exec, const fs::path& path) {
  const std::string reason = misfit(config);
  check_input(reason.empty(), "GGUF's {} architecture cannot hold this model: {}",
              config.form == ModelForm::gpt2 ? "gpt2" : "llama", reason);
  check_input(can_quantize(type), "GGUF type {} cannot be written", name(type));
  for (const ParameterSlot& slot : parameters.slots()) {
    const GgufBlock& block = gguf_block(type_of(*slot.parameter, type));
    const int64_t columns = slot.parameter->shape[slot.parameter->shape.rank() - 1];
    check_input(columns % block.elements == 0,
                "{}: rows of {} elements are not whole blocks of {}; choose f16, bf16 or f32",
                slot.parameter->name, columns, block.name);
  }
  const fs::path partial = path.string() + ".partial";
  try {
    std::error_code code;
    if (path.has_parent_path()) fs::create_directories(path.parent_path(), code);
    GgufWriter writer(partial);
    write_config(writer, config);
    writer.add("general.file_type", file_type(type));
    writer.add("general.quantization_version", uint32_t{2});
    if (!extras.tokenizer_json.empty()) {
      add_tokenizer_to_gguf(extras.tokenizer_json, config.vocab_size, extras.end_of_text, writer);
    }
    if (!extras.chat_template.empty()) writer.add("tokenizer.chat_template", extras.chat_template);
    for (const ParameterSlot& slot : parameters.slots()) {
      for (const Part& part : parts_of(config, slot.parameter->name, slot.parameter->shape[0])) {
        writer.plan(part.name, type_of(*slot.parameter, type), shape_of(*slot.parameter, part));
      }
    }
    write_weights(config, parameters, type, exec, writer);
    writer.finish();
    fs::rename(partial, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw;
  }
}

}  // namespace megalith
