#include "megalith/model/hugging_face.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "megalith/base/error.h"

namespace megalith {

namespace {

using Json = nlohmann::ordered_json;

// Fields of a config.json by what they are to us.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  template <class T>
  T required(const char* key) {
    known_.insert(key);
    check_input(json_.contains(key) && !json_.at(key).is_null(), "{}: \"{}\" is missing", where_, key);
    return get<T>(key);
  }
  template <class T>
  T optional(const char* key, T otherwise) {
    known_.insert(key);
    if (!json_.contains(key) || json_.at(key).is_null()) return otherwise;
    return get<T>(key);
  }
  // A field that must have this value when it is there.
  template <class T>
  void expect(const char* key, T value) {
    if (optional<T>(key, value) == value) return;
    fail_input("{}: \"{}\" is {}; only {} is supported", where_, key, json_.at(key).dump(),
               Json(value).dump());
  }
  void ignore(std::initializer_list<const char*> keys) { known_.insert(keys.begin(), keys.end()); }
  void refuse_unknown() const {
    for (const auto& [key, value] : json_.items()) {
      if (known_.contains(key)) continue;
      fail_input("{}: \"{}\" = {} is not understood and could change the numbers", where_, key, value.dump());
    }
  }
  const Json* find(const char* key) {
    known_.insert(key);
    return json_.contains(key) && !json_.at(key).is_null() ? &json_.at(key) : nullptr;
  }
  const std::string& where() const { return where_; }

 private:
  template <class T>
  T get(const char* key) {
    try {
      return json_.at(key).get<T>();
    } catch (const Json::exception&) {
      fail_input("{}: \"{}\" has the wrong type: {}", where_, key, json_.at(key).dump());
    }
  }

  const Json& json_;
  std::string where_;
  std::set<std::string> known_;
};

// Bookkeeping that no number depends on.
constexpr std::initializer_list<const char*> kHarmless = {"architectures",
                                                          "model_type",
                                                          "torch_dtype",
                                                          "dtype",
                                                          "transformers_version",
                                                          "use_cache",
                                                          "bos_token_id",
                                                          "eos_token_id",
                                                          "pad_token_id",
                                                          "initializer_range",
                                                          "task_specific_params",
                                                          "_name_or_path",
                                                          "gradient_checkpointing",
                                                          "output_past",
                                                          "pretraining_tp",
                                                          "summary_activation",
                                                          "summary_first_dropout",
                                                          "summary_proj_to_labels",
                                                          "summary_type",
                                                          "summary_use_proj",
                                                          "n_ctx",
                                                          "reorder_and_upcast_attn",
                                                          "return_dict",
                                                          "output_hidden_states",
                                                          "output_attentions",
                                                          "is_decoder",
                                                          "is_encoder_decoder",
                                                          "id2label",
                                                          "label2id",
                                                          "problem_type",
                                                          "torchscript",
                                                          "chunk_size_feed_forward",
                                                          "attn_implementation",
                                                          "_attn_implementation_autoset"};

Activation activation_from(const std::string& name, bool gated, const std::string& where) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh")
    return gated ? Activation::geglu_tanh : Activation::gelu_tanh;
  if (name == "gelu") return gated ? Activation::geglu_erf : Activation::gelu_erf;
  if (name == "silu" || name == "swish") return gated ? Activation::swiglu : Activation::silu;
  if (name == "relu" && !gated) return Activation::relu;
  fail_input("{}: the activation \"{}\" is not supported", where, name);
}

std::string activation_name(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
    case Activation::geglu_tanh:
      return "gelu_pytorch_tanh";
    case Activation::gelu_erf:
    case Activation::geglu_erf:
      return "gelu";
    case Activation::silu:
    case Activation::swiglu:
      return "silu";
    case Activation::relu:
      break;
  }
  return "relu";
}

ModelConfig read_gpt2(ConfigReader& reader) {
  ModelConfig config = ModelConfig::defaults(ModelForm::gpt2);
  config.vocab_size = reader.required<int64_t>("vocab_size");
  config.hidden_size = reader.required<int64_t>("n_embd");
  config.num_layers = reader.required<int64_t>("n_layer");
  config.num_heads = reader.required<int64_t>("n_head");
  config.max_positions = reader.required<int64_t>("n_positions");
  config.ffn_hidden_size = reader.optional<int64_t>("n_inner", 0);
  config.norm_epsilon = reader.required<double>("layer_norm_epsilon");
  config.activation =
      activation_from(reader.required<std::string>("activation_function"), false, reader.where());
  config.tied_embeddings = reader.optional<bool>("tie_word_embeddings", true);
  config.embedding_dropout = reader.optional<double>("embd_pdrop", 0.1);
  config.attention_dropout = reader.optional<double>("attn_pdrop", 0.1);
  config.hidden_dropout = reader.optional<double>("resid_pdrop", 0.1);
  reader.expect("scale_attn_weights", true);
  reader.expect("scale_attn_by_inverse_layer_idx", false);
  reader.expect("add_cross_attention", false);
  return config;
}

void read_rope(ConfigReader& reader, ModelConfig& config) {
  check_input(reader.find("rope_scaling") == nullptr, "{}: \"rope_scaling\" is not supported",
              reader.where());
  if (const Json* parameters = reader.find("rope_parameters")) {
    check_input(parameters->is_object(), "{}: \"rope_parameters\" must be an object", reader.where());
    ConfigReader rope(*parameters, reader.where() + ": rope_parameters");
    config.rope_base = rope.required<double>("rope_theta");
    rope.expect("rope_type", std::string("default"));
    config.rope_fraction = rope.optional<double>("partial_rotary_factor", 1.0);
    rope.refuse_unknown();
    reader.ignore({"rope_theta"});
  } else {
    config.rope_base = reader.optional<double>("rope_theta", 10000.0);  // what transformers takes
  }
}

ModelConfig read_llama(ConfigReader& reader) {
  ModelConfig config = ModelConfig::defaults(ModelForm::llama);
  config.vocab_size = reader.required<int64_t>("vocab_size");
  config.hidden_size = reader.required<int64_t>("hidden_size");
  config.num_layers = reader.required<int64_t>("num_hidden_layers");
  config.num_heads = reader.required<int64_t>("num_attention_heads");
  config.num_kv_heads = reader.optional<int64_t>("num_key_value_heads", 0);
  config.head_size = reader.optional<int64_t>("head_dim", 0);
  config.ffn_hidden_size = reader.required<int64_t>("intermediate_size");
  config.max_positions = reader.required<int64_t>("max_position_embeddings");
  config.norm_epsilon = reader.required<double>("rms_norm_eps");
  config.activation = activation_from(reader.required<std::string>("hidden_act"), true, reader.where());
  config.tied_embeddings = reader.optional<bool>("tie_word_embeddings", false);
  config.attention_dropout = reader.optional<double>("attention_dropout", 0.0);
  const bool attention_bias = reader.optional<bool>("attention_bias", false);
  const bool mlp_bias = reader.optional<bool>("mlp_bias", false);
  check_input(attention_bias == mlp_bias,
              "{}: \"attention_bias\" and \"mlp_bias\" differ; only both or neither are supported",
              reader.where());
  config.bias = attention_bias;
  reader.expect("rope_interleaved", false);
  reader.ignore({"is_llama_config", "transformers.js_config"});
  read_rope(reader, config);
  return config;
}

std::vector<HuggingFaceTensor> gpt2_tensors(const std::string& parameter, int64_t rows) {
  if (parameter == "embedding.token.weight") return {{"transformer.wte.weight", rows}};
  if (parameter == "embedding.position.weight") return {{"transformer.wpe.weight", rows}};
  if (parameter == "head.weight") return {{"lm_head.weight", rows}};
  const size_t last_dot = parameter.rfind('.');
  const std::string kind = parameter.substr(last_dot);  // .weight or .bias
  if (parameter.starts_with("final_norm")) return {{"transformer.ln_f" + kind, rows}};
  const size_t layer_end = parameter.find('.', 7);  // after "layers."
  const std::string layer = "transformer.h." + parameter.substr(7, layer_end - 7);
  const std::string inner = parameter.substr(layer_end + 1, last_dot - layer_end - 1);
  const bool transposed = kind == ".weight";
  if (inner == "attention_norm") return {{layer + ".ln_1" + kind, rows}};
  if (inner == "feed_forward_norm") return {{layer + ".ln_2" + kind, rows}};
  if (inner == "attention.query_key_value") return {{layer + ".attn.c_attn" + kind, rows, transposed}};
  if (inner == "attention.output") return {{layer + ".attn.c_proj" + kind, rows, transposed}};
  if (inner == "feed_forward.up") return {{layer + ".mlp.c_fc" + kind, rows, transposed}};
  return {{layer + ".mlp.c_proj" + kind, rows, transposed}};
}

std::vector<HuggingFaceTensor> llama_tensors(const ModelConfig& config, const std::string& parameter,
                                             int64_t rows) {
  if (parameter == "embedding.token.weight") return {{"model.embed_tokens.weight", rows}};
  if (parameter == "head.weight") return {{"lm_head.weight", rows}};
  const size_t last_dot = parameter.rfind('.');
  const std::string kind = parameter.substr(last_dot);
  if (parameter.starts_with("final_norm")) return {{"model.norm" + kind, rows}};
  const size_t layer_end = parameter.find('.', 7);
  const std::string layer = "model.layers." + parameter.substr(7, layer_end - 7);
  const std::string inner = parameter.substr(layer_end + 1, last_dot - layer_end - 1);
  if (inner == "attention_norm") return {{layer + ".input_layernorm" + kind, rows}};
  if (inner == "feed_forward_norm") return {{layer + ".post_attention_layernorm" + kind, rows}};
  if (inner == "attention.query_key_value") {
    const int64_t query = config.num_heads * config.head_size, key = config.num_kv_heads * config.head_size;
    return {{layer + ".self_attn.q_proj" + kind, query},
            {layer + ".self_attn.k_proj" + kind, key},
            {layer + ".self_attn.v_proj" + kind, key}};
  }
  if (inner == "attention.output") return {{layer + ".self_attn.o_proj" + kind, rows}};
  if (inner == "feed_forward.up") {
    return {{layer + ".mlp.gate_proj" + kind, rows / 2}, {layer + ".mlp.up_proj" + kind, rows / 2}};
  }
  return {{layer + ".mlp.down_proj" + kind, rows}};
}

}  // namespace

ModelConfig config_from_hugging_face(const std::string& text, const std::string& where) {
  const Json json = Json::parse(text, nullptr, false);
  check_input(json.is_object(), "{}: not a JSON object", where);
  ConfigReader reader(json, where);
  const std::string type = reader.required<std::string>("model_type");
  reader.ignore(kHarmless);
  ModelConfig config;
  if (type == "gpt2") {
    config = read_gpt2(reader);
  } else if (type == "llama") {
    config = read_llama(reader);
  } else {
    fail_input("{}: model_type \"{}\" is not known; known are gpt2 and llama", where, type);
  }
  reader.refuse_unknown();
  const bool sane =
      config.vocab_size > 0 && config.hidden_size > 0 && config.num_layers > 0 && config.num_heads > 0 &&
      config.max_positions > 0 && config.num_kv_heads >= 0 && config.head_size >= 0 &&
      config.ffn_hidden_size >= 0 && config.num_layers < 100000 &&
      std::max({config.vocab_size, config.hidden_size, config.num_heads, config.ffn_hidden_size,
                config.num_kv_heads, config.head_size, config.max_positions}) < (int64_t{1} << 31);
  check_input(sane, "{}: a size is zero, negative or absurd", where);
  config.resolve();
  return config;
}

ModelForm hugging_face_form(const ModelConfig& config) {
  return config.positions == PositionKind::learned ? ModelForm::gpt2 : ModelForm::llama;
}

std::string config_to_hugging_face(const ModelConfig& config, DType dtype, const SpecialTokenIds& ids) {
  const auto refuse = [](const char* what, const char* form) {
    fail_input("transformers' {} form cannot hold this model: {}", form, what);
  };
  Json json;
  const auto id = [](int64_t value) { return value < 0 ? Json() : Json(value); };
  const std::string dtype_name = dtype == DType::f32    ? "float32"
                                 : dtype == DType::bf16 ? "bfloat16"
                                                        : "float16";
  if (hugging_face_form(config) == ModelForm::gpt2) {
    if (config.norm != NormKind::layer) refuse("model.norm is not layernorm", "GPT-2");
    if (!config.bias) refuse("it has no biases", "GPT-2");
    if (is_gated(config.activation)) refuse("its activation is gated", "GPT-2");
    if (config.num_kv_heads != config.num_heads) refuse("it has grouped key/value heads", "GPT-2");
    if (config.head_size * config.num_heads != config.hidden_size) {
      refuse("num_heads x head_size is not hidden_size", "GPT-2");
    }
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", config.vocab_size},
            {"n_positions", config.max_positions},
            {"n_embd", config.hidden_size},
            {"n_layer", config.num_layers},
            {"n_head", config.num_heads},
            {"n_inner", config.ffn_hidden_size},
            {"activation_function",
             config.activation == Activation::gelu_tanh ? "gelu_new" : activation_name(config.activation)},
            {"layer_norm_epsilon", config.norm_epsilon},
            {"resid_pdrop", config.hidden_dropout},
            {"embd_pdrop", config.embedding_dropout},
            {"attn_pdrop", config.attention_dropout},
            {"scale_attn_weights", true}};
  } else {
    if (config.norm != NormKind::rms) refuse("model.norm is not rmsnorm", "LLaMA");
    if (!is_gated(config.activation)) refuse("its activation is not gated", "LLaMA");
    if (config.rope_fraction != 1) refuse("only a part of each head rotates", "LLaMA");
    json = {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"vocab_size", config.vocab_size},
            {"hidden_size", config.hidden_size},
            {"intermediate_size", config.ffn_hidden_size},
            {"num_hidden_layers", config.num_layers},
            {"num_attention_heads", config.num_heads},
            {"num_key_value_heads", config.num_kv_heads},
            {"head_dim", config.head_size},
            {"hidden_act", activation_name(config.activation)},
            {"max_position_embeddings", config.max_positions},
            {"rms_norm_eps", config.norm_epsilon},
            {"rope_theta", config.rope_base},
            {"rope_scaling", nullptr},
            {"attention_bias", config.bias},
            {"mlp_bias", config.bias},
            {"attention_dropout", config.attention_dropout}};
  }
  json["tie_word_embeddings"] = config.tied_embeddings;
  json["initializer_range"] = config.init_std;
  json["bos_token_id"] = id(ids.beginning_of_text);
  json["eos_token_id"] = id(ids.end_of_text);
  json["torch_dtype"] = dtype_name;
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& config, const std::string& parameter,
                                                    int64_t rows) {
  return hugging_face_form(config) == ModelForm::gpt2 ? gpt2_tensors(parameter, rows)
                                                      : llama_tensors(config, parameter, rows);
}

}  // namespace megalith
