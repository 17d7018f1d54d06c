#include "megalith/model/hugging_face.h"

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/json_depth.h"

namespace megalith {

namespace {

using Json = ConfigFields::Json;

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
                                                          "sep_token_id",
                                                          "cls_token_id",
                                                          "initializer_range",
                                                          "task_specific_params",
                                                          "_name_or_path",
                                                          "gradient_checkpointing",
                                                          "output_past",
                                                          "pretraining_tp",
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

ModelConfig read(Json json, const std::string& where) {
  check_input(json.is_object(), "{}: not a JSON object", where);
  ConfigFields fields = ConfigFields::reader(std::move(json), where);
  std::string type;
  fields.required("model_type", type);
  const Family* family = find_family(type);
  check_input(family != nullptr, "{}: model_type \"{}\" is not known; known are {}", where, type,
              family_names());
  fields.ignore(kHarmless);
  ModelConfig config = ModelConfig::defaults(family->form);
  family->describe(fields, config);
  fields.refuse_unknown();
  const bool sane = config.vocab_size > 0 && config.hidden_size > 0 && config.num_layers > 0 &&
                    config.num_heads > 0 && config.max_positions > 0 && config.num_kv_heads >= 0 &&
                    config.head_size >= 0 && config.ffn_hidden_size >= 0 && config.num_layers < 100000 &&
                    config.window >= 0 && config.window_period >= 0 && config.window_first_layer >= 0 &&
                    config.token_types >= 0 && config.rope_original_positions >= 0 &&
                    std::max({config.vocab_size, config.hidden_size, config.num_heads, config.ffn_hidden_size,
                              config.num_kv_heads, config.head_size, config.max_positions,
                              config.token_types}) < (int64_t{1} << 31);
  check_input(sane, "{}: a size is zero, negative or absurd", where);
  const bool sound = config.norm_epsilon > 0 && config.norm_epsilon < 1 && config.rope_base >= 1 &&
                     config.rope_base < 1e30 && config.rope_fraction >= 0 && config.rope_fraction <= 1 &&
                     config.attention_softcap >= 0 && config.logit_softcap >= 0 && config.rope_factor > 0;
  check_input(sound,
              "{}: a number is out of range (norm epsilon {}, rotary base {}, fraction {} and factor {}, "
              "soft-caps {} and {})",
              where, config.norm_epsilon, config.rope_base, config.rope_fraction, config.rope_factor,
              config.attention_softcap, config.logit_softcap);
  config.resolve();
  return config;
}

Json write(const Family& family, ModelConfig config) {
  ConfigFields fields = ConfigFields::writer();
  if (!family.architecture.empty()) {
    fields.put("architectures", std::vector<std::string>{std::string(family.architecture)});
  }
  fields.put("model_type", family.model_type);
  family.describe(fields, config);
  return fields.json();
}

// What comes back otherwise when the model is written as this family: nothing when it is held.
std::vector<std::string> misfit(const Family& family, const ModelConfig& config) {
  try {
    ModelConfig back = read(write(family, config), "config.json");
    if (back.head == HeadKind::none) back.pooler = config.pooler;  // the tensors tell
    return differences(config, back);
  } catch (const InputError& error) {
    return {error.what()};
  }
}

}  // namespace

ModelConfig config_from_hugging_face(const std::string& text, const std::string& where) {
  check_json_depth(text, where);
  return read(Json::parse(text, nullptr, false), where);
}

const Family& hugging_face_family(const ModelConfig& config) {
  const Family& own = family(config.form);
  const std::vector<std::string> reasons = misfit(own, config);
  if (reasons.empty()) return own;
  for (const Family& other : families()) {
    if (misfit(other, config).empty()) return other;
  }
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  fail_input("transformers' {} cannot hold this model (here and there: {}), nor can another family",
             own.model_type, text);
}

std::string config_to_hugging_face(const ModelConfig& config, DType dtype, const SpecialTokenIds& ids) {
  Json json = write(hugging_face_family(config), config);
  const auto id = [](int64_t value) { return value < 0 ? Json() : Json(value); };
  json["initializer_range"] = config.init_std;
  json["bos_token_id"] = id(ids.beginning_of_text);
  json["eos_token_id"] = id(ids.end_of_text);
  // Some classes have one of a larger vocabulary by default.
  if (!json.contains("pad_token_id")) json["pad_token_id"] = nullptr;
  json["torch_dtype"] = dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
  json["use_cache"] = true;
  return json.dump(2) + "\n";
}

std::vector<StoredTensor> hugging_face_tensors(const Family& family, const ModelConfig& config,
                                               const Parameter& parameter) {
  std::vector<StoredTensor> tensors = stored_tensors(family.names, config, family.adjacent_pairs, parameter);
  if (config.head != HeadKind::none) return tensors;
  for (StoredTensor& tensor : tensors) {
    if (tensor.name.starts_with(family.prefix)) tensor.name.erase(0, family.prefix.size());
  }
  return tensors;
}

}  // namespace megalith
