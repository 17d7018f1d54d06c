#include "megalith/train/resume_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/model/model_files.h"

namespace megalith {

void check_same_model(const CheckpointReader& checkpoint, const ModelConfig& wanted) {
  const ModelConfig stored = read_model_config(checkpoint);
  if (stored == wanted) return;
  // Name the first line that differs.
  const std::string a = model_config_to_toml(stored), b = model_config_to_toml(wanted);
  size_t at = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const size_t begin = a.rfind('\n', at == 0 ? 0 : at - 1) + 1;
  const auto line = [&](const std::string& s) { return s.substr(begin, s.find('\n', begin) - begin); };
  fail_input("{} has another model: it says {}, the recipe {}", checkpoint.directory().string(), line(a),
             line(b));
}

void check_same_tokenizer(const std::string& stored, const std::string& wanted,
                          const std::string& checkpoint) {
  if (stored.empty() || wanted.empty() || stored == wanted) return;
  // The same content may be laid out otherwise.
  check_input(nlohmann::json::parse(stored) == nlohmann::json::parse(wanted),
              "{} was trained with another tokenizer than data.tokenizer", checkpoint);
}

}  // namespace megalith
