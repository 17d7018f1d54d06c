#include "megalith/model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "megalith/base/error.h"
#include "megalith/model/gguf_family.h"
#include "megalith/model/gguf_tokenizer.h"
#include "megalith/model/stored_copy.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

std::string to_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::vector<int64_t> dimensions(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

// The tensor that holds rows of a parameter, of the right shape and of a type that can be read.
const GgufTensor& find_stored(const GgufFile& file, const Parameter& parameter, const StoredTensor& stored) {
  const std::string path = file.path().string();
  const GgufTensor* tensor = file.find_tensor(stored.name);
  check_input(tensor != nullptr, "{}: there is no tensor {}", path, stored.name);
  const std::vector<int64_t> shape = dimensions(stored.shape_for(parameter.shape));
  check_input(tensor->shape == shape, "{}: tensor {} is {}; the metadata makes it {}", path, stored.name,
              to_text(tensor->shape), to_text(shape));
  check_input(can_dequantize(tensor->type), "{}: tensor {} is of type {}, which cannot be read", path,
              stored.name, name(tensor->type));
  return *tensor;
}

std::vector<StoredTensor> tensors_of(const GgufArchitecture& architecture, const ModelConfig& config,
                                     const Parameter& parameter) {
  return stored_tensors(architecture.names, config, architecture.adjacent_pairs, parameter);
}

// Every tensor has its place, before memory for the weights is asked for.
void check_tensors(const GgufFile& file, const GgufArchitecture& architecture, const ModelConfig& config) {
  Transformer model(config);
  std::set<std::string_view> used;
  model.walk([&](Parameter& parameter) {
    for (const StoredTensor& stored : tensors_of(architecture, config, parameter)) {
      used.insert(find_stored(file, parameter, stored).name);
    }
  });
  for (const GgufTensor& tensor : file.tensors()) {
    check_input(used.contains(tensor.name) || is_config_tensor(tensor.name),
                "{}: tensor {} is not understood and could change the numbers", file.path().string(),
                tensor.name);
  }
}

// What the tensors tell: whether there are biases.
void read_biases(const GgufFile& file, const GgufArchitecture& architecture, ModelConfig& config) {
  if (architecture.biases == GgufBiases::none || architecture.biases == GgufBiases::all) return;
  const auto choice = [&](const char* tensor) {
    return file.find_tensor(tensor) != nullptr ? BiasChoice::yes : BiasChoice::no;
  };
  config.qkv_bias = choice("blk.0.attn_q.bias");
  if (architecture.biases != GgufBiases::optional) return;
  config.attention_output_bias = choice("blk.0.attn_output.bias");
  config.ffn_bias = choice("blk.0.ffn_up.bias");
}

// The configuration that entries make, as far as they tell it: without biases, vocabulary and tied output.
ModelConfig describe_entries(const GgufArchitecture& architecture, GgufConfigEntries entries,
                             const std::string& where) {
  GgufFields fields = GgufFields::reader(std::move(entries), where);
  ModelConfig config = ModelConfig::defaults(architecture.form);
  architecture.describe(fields, config);
  fields.refuse_unknown();
  return config;
}

// What of a model GGUF keeps: embeddings of encoders, no head.
ModelConfig kept_part(ModelConfig config) {
  if (config.form != ModelForm::bert && config.form != ModelForm::roberta) return config;
  config.head = HeadKind::none;
  config.head_bias = config.pooler = false;
  return config;
}

// Why an architecture cannot hold a model, or nothing.
std::vector<std::string> misfit(const GgufArchitecture& architecture, const ModelConfig& config) {
  const ModelConfig kept = kept_part(config);
  std::vector<std::string> reasons;
  try {
    ModelConfig written = kept;
    GgufFields fields = GgufFields::writer(std::string(architecture.name));
    architecture.describe(fields, written);
    ModelConfig back = describe_entries(architecture, fields.entries(), "the file");
    back.vocab_size = kept.vocab_size;
    back.tied_embeddings = architecture.always_tied || kept.tied_embeddings;
    back.token_types = kept.token_types;
    if (architecture.biases == GgufBiases::query_key_value || architecture.biases == GgufBiases::optional) {
      back.qkv_bias = kept.has_bias(kept.qkv_bias) ? BiasChoice::yes : BiasChoice::no;
    }
    if (architecture.biases == GgufBiases::optional) {
      back.attention_output_bias =
          kept.has_bias(kept.attention_output_bias) ? BiasChoice::yes : BiasChoice::no;
      back.ffn_bias = kept.has_bias(kept.ffn_bias) ? BiasChoice::yes : BiasChoice::no;
    }
    back.resolve();
    ModelConfig here = kept;
    // As a file keeps it.
    if (here.rope_scaling == RopeScaling::llama3 && back.rope_scaling == RopeScaling::longrope) {
      here.rope_scaling = back.rope_scaling;
      here.rope_short_factors = here.rope_long_factors = back.rope_long_factors;
      here.rope_attention_factor = 1;
      here.rope_original_positions = back.rope_original_positions;
    }
    reasons = differences(here, back);
  } catch (const InputError& error) {
    reasons.push_back(error.what());
  }
  return reasons;
}

// The architecture that a model is written as: that of its form, or another that holds it.
const GgufArchitecture& architecture_for(const ModelConfig& config) {
  const GgufArchitecture* own = gguf_architecture_of(config.form);
  std::string text;
  if (own != nullptr) {
    const std::vector<std::string> reasons = misfit(*own, config);
    if (reasons.empty()) return *own;
    for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  }
  for (const GgufArchitecture& other : gguf_architectures()) {
    if (misfit(other, config).empty()) return other;
  }
  check_input(own != nullptr, "no architecture of GGUF holds models of the form {}",
              kModelFormNames[static_cast<size_t>(config.form)]);
  fail_input("GGUF's {} architecture cannot hold this model (here and there: {}), nor can another", own->name,
             text);
}

GgufType type_of(const Parameter& parameter, GgufType type) {
  if (parameter.shape.rank() == 1) return GgufType::f32;
  const bool table = parameter.name == "embedding.token.weight" || parameter.name == "head.weight";
  if (type == GgufType::q4_0 && table) return GgufType::q8_0;
  // Read row by row and never multiplied: llama.cpp wants them unquantised.
  if (parameter.name == "embedding.position.weight" || parameter.name == "embedding.token_type.weight") {
    return GgufType::f32;
  }
  return type;
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
  const std::string path = file.path().string();
  GgufConfigEntries entries = read_config_entries(file);
  const GgufArchitecture* architecture = find_gguf_architecture(entries.architecture);
  check_input(architecture != nullptr, "{}: the architecture \"{}\" is not known; known are {}", path,
              entries.architecture, gguf_architecture_names());
  ModelConfig config = describe_entries(*architecture, std::move(entries), path);
  const GgufTensor* table = file.find_tensor("token_embd.weight");
  check_input(table != nullptr && table->shape.size() == 2, "{}: there is no matrix token_embd.weight", path);
  config.vocab_size = table->shape[0];
  config.tied_embeddings = config.head == HeadKind::none || architecture->always_tied ||
                           file.find_tensor("output.weight") == nullptr;
  read_biases(file, *architecture, config);
  if (config.token_types > 0) {
    const GgufTensor* types = file.find_tensor("token_types.weight");
    config.token_types = types == nullptr || types->shape.size() != 2 ? 0 : types->shape[0];
  }
  config.embedding_dropout = config.attention_dropout = config.hidden_dropout = 0;
  check_input(config.num_layers <= static_cast<int64_t>(file.tensors().size()),
              "{}: {} blocks have only {} tensors", path, config.num_layers, file.tensors().size());
  check_input(
      config.num_heads <= (1 << 20) && config.num_kv_heads <= (1 << 20) && config.head_size <= (1 << 20),
      "{}: the number or size of heads is absurd", path);
  check_input(config.norm_epsilon > 0 && config.norm_epsilon < 1,
              "{}: the norm's epsilon, {}, is out of range", path, config.norm_epsilon);
  check_input(config.rope_base >= 1 && config.rope_base < 1e30 && config.rope_window_base >= 0 &&
                  config.rope_window_base < 1e30 && config.rope_factor > 0 && config.attention_softcap >= 0 &&
                  config.logit_softcap >= 0 && config.attention_scale >= 0 &&
                  config.rope_attention_factor >= 0 && config.rope_beta_fast > 0 && config.rope_beta_slow > 0,
              "{}: a number is out of range (rotary bases {} and {}, factor {}, soft-caps {} and {})", path,
              config.rope_base, config.rope_window_base, config.rope_factor, config.attention_softcap,
              config.logit_softcap);
  config.resolve();
  check_tensors(file, *architecture, config);
  return config;
}

void encode_gguf(const GgufFile& file, const ModelConfig& config,
                 const std::function<void(const ParameterVisitor&)>& walk, EncodedWeights& encoded) {
  const GgufArchitecture& architecture = *find_gguf_architecture(*file.text("general.architecture"));
  walk([&](Parameter& parameter) {
    const std::vector<StoredTensor> tensors = tensors_of(architecture, config, parameter);
    if (!EncodedWeights::serves(parameter, tensors)) return;
    EncodedMatrix& matrix = encoded.add(parameter);
    for (const StoredTensor& stored : tensors) {
      const GgufTensor& tensor = find_stored(file, parameter, stored);
      EncodedWeights::append(matrix, stored, file.bytes(tensor).data(), row_code(tensor.type));
    }
    EncodedWeights::finish(matrix, parameter);
  });
}

void load_gguf(const GgufFile& file, const ModelConfig& config, const ParameterBuffers& parameters,
               const ExecContext& exec) {
  const GgufArchitecture& architecture = *find_gguf_architecture(*file.text("general.architecture"));
  for (const ParameterSlot& slot : parameters.slots()) {
    const Parameter& parameter = *slot.parameter;
    int64_t first = 0;
    for (const StoredTensor& part : tensors_of(architecture, config, parameter)) {
      const GgufTensor& tensor = find_stored(file, parameter, part);
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
            dequantize(tensor.type, data + part.stored_row(r) * row_bytes, columns, values.data());
            for (int64_t i = 0; i < columns; ++i) {
              const int64_t from = vector ? part.stored_row(i) : i;
              out[r * columns + i] = static_cast<T>(values[static_cast<size_t>(from)]);
            }
          }
        }
      });
      first += part.rows;
    }
  }
}

namespace {

struct StoredParameter {
  const Parameter* parameter;
  std::vector<StoredTensor> tensors;
};

// Parts of a model that GGUF does not keep.
bool is_left_out(const std::string& parameter, const ModelConfig& config, const ModelConfig& written) {
  return (config.pooler && !written.pooler && parameter.starts_with("pooler.")) ||
         (config.head != written.head && parameter.starts_with("head."));
}

// Writes the weights, which fit the file's plan.
void write_weights(const std::vector<StoredParameter>& stored_parameters, GgufType type,
                   const ExecContext& exec, GgufWriter& writer) {
  std::vector<std::byte> bytes;
  for (const StoredParameter& stored : stored_parameters) {
    const Parameter& parameter = *stored.parameter;
    int64_t first = 0;
    for (const StoredTensor& part : stored.tensors) {
      const GgufType to = type_of(parameter, type);
      const GgufBlock& block = gguf_block(to);
      const StoredRows rows(parameter, first, part);
      const int64_t columns = rows.columns(), row_bytes = columns / block.elements * block.bytes;
      const float most = largest_quantizable(to);
      for_each_run(exec, rows, [&](int64_t count, const float* values) {
        bytes.resize(static_cast<size_t>(count * row_bytes));
        bool fits = true;
#pragma omp parallel for num_threads(exec.threads) schedule(static) reduction(&& : fits)
        for (int64_t row = 0; row < count; ++row) {
          const float* from = values + row * columns;
          const bool row_fits =
              std::all_of(from, from + columns, [&](float value) { return std::fabs(value) <= most; });
          if (row_fits) quantize(to, from, columns, bytes.data() + row * row_bytes);
          fits = fits && row_fits;
        }
        check_input(fits, "tensor {} holds a number that is not finite or too large for {}", part.name,
                    name(to));
        writer.write(part.name, bytes.data(), bytes.size());
      });
      first += part.rows;
    }
  }
}

}  // namespace

void save_gguf(const ModelConfig& config, std::span<const Parameter* const> parameters, GgufType type,
               const ModelExtras& extras, const ExecContext& exec, const fs::path& path) {
  const GgufArchitecture& architecture = architecture_for(config);
  check_input(can_quantize(type), "GGUF type {} cannot be written", name(type));
  ModelConfig written = kept_part(config);
  GgufFields fields = GgufFields::writer(std::string(architecture.name));
  architecture.describe(fields, written);
  std::vector<StoredParameter> stored_parameters;
  for (const Parameter* parameter : parameters) {
    if (is_left_out(parameter->name, config, written)) continue;
    stored_parameters.push_back({parameter, tensors_of(architecture, config, *parameter)});
    const GgufBlock& block = gguf_block(type_of(*parameter, type));
    const int64_t columns = parameter->shape[parameter->shape.rank() - 1];
    check_input(columns % block.elements == 0,
                "{}: rows of {} elements are not whole blocks of {}; choose f16, bf16 or f32",
                parameter->name, columns, block.name);
  }
  const fs::path partial = path.string() + ".partial";
  try {
    std::error_code code;
    if (path.has_parent_path()) fs::create_directories(path.parent_path(), code);
    GgufWriter writer(partial);
    write_config_keys(fields.entries(), writer);
    if (config.token_types > 0) {
      writer.add("tokenizer.ggml.token_type_count", static_cast<uint32_t>(config.token_types));
    }
    writer.add("general.file_type", file_type(type));
    writer.add("general.quantization_version", uint32_t{2});
    if (extras.tokenizer || !extras.tokenizer_json.empty()) {
      const Tokenizer tokenizer =
          extras.tokenizer ? *extras.tokenizer : Tokenizer::from_json(extras.tokenizer_json);
      add_tokenizer_to_gguf(tokenizer, config.vocab_size, extras.end_of_text, writer);
    }
    if (!extras.chat_template.empty()) writer.add("tokenizer.chat_template", extras.chat_template);
    for (const auto& [name, values] : fields.entries().tensors) {
      const int64_t size = static_cast<int64_t>(values.size());
      writer.plan(name, GgufType::f32, {&size, 1});
    }
    for (const StoredParameter& stored : stored_parameters) {
      for (const StoredTensor& part : stored.tensors) {
        writer.plan(part.name, type_of(*stored.parameter, type),
                    dimensions(part.shape_for(stored.parameter->shape)));
      }
    }
    for (const auto& [name, values] : fields.entries().tensors) {
      writer.write(name, values.data(), values.size() * sizeof(float));
    }
    write_weights(stored_parameters, type, exec, writer);
    writer.finish();
    fs::rename(partial, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw;
  }
}

}  // namespace megalith
