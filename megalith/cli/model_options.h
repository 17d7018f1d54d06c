// Options that commands which load a model share.
#pragma once

#include <memory>
#include <string>

#include "megalith/base/cpu.h"
#include "megalith/model/model_files.h"
#include "megalith/text/tokenizer.h"

namespace CLI {
class App;
}

namespace megalith {

struct ModelOptions {
  std::string model;
  std::string tokenizer;
  std::string dtype = "f32";
  int threads = 0;

  /// Whether weights stay as they lie in the file, to compute in F32.
  bool as_stored() const { return dtype == "stored"; }
};

void add_model_options(CLI::App& command, ModelOptions& options);

/// "f32", "bf16" or "f16"; `others` are what else the option may be, for the error.
DType parse_dtype(const std::string& text, const char* others = "");

/// A model with its tokenizer and what it runs with.
struct OpenModel {
  explicit OpenModel(const ModelOptions& options);

  Arena workspace{"workspace"};
  ExecContext exec;
  ModelDescription description;
  Tokenizer tokenizer;
  LoadedModel model;
};

}  // namespace megalith
