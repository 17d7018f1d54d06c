// megalith inspect
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "megalith/base/cpu.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/model_options.h"
#include "megalith/formats/gguf.h"
#include "megalith/formats/indexed_dataset.h"
#include "megalith/formats/safetensors.h"
#include "megalith/model/counts.h"
#include "megalith/model/hugging_face_weights.h"
#include "megalith/ops/machine_peak.h"
#include "megalith/train/progress_display.h"
#include "megalith/train/recipe.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string path;
  bool machine = false, verify = false;
};

void inspect_machine() {
  Arena workspace("workspace");
  const ExecContext exec{workspace, default_threads()};
  fmt::print("processor           {}\n", cpu_model());
  fmt::print("threads             {}\n", exec.threads);
  fmt::print("memory              {}\n", format_bytes(total_memory_bytes()));
  fmt::print("kernel level        {} (this machine's best: {}; MEGALITH_ISA lowers it)\n", name(active_isa()),
             name(detected_isa()));
  constexpr double kSeconds = 2;
  const MachinePeak peak = measure_machine_peak(exec, kSeconds);
  fmt::print("fp32 peak           {:.0f} GFLOP/s\n", peak.fp32_flops / 1e9);
  fmt::print("bf16 peak           {:.0f} GFLOP/s\n", peak.bf16_flops / 1e9);
  if (peak.amx_flops > 0) fmt::print("AMX bf16 peak       {:.0f} GFLOP/s\n", peak.amx_flops / 1e9);
  fmt::print("memory read         {:.1f} GB/s\n", peak.read_bandwidth / 1e9);
  fmt::print("memory copy         {:.1f} GB/s (read and written bytes)\n", peak.copy_bandwidth / 1e9);
}

void print_shape(const std::vector<int64_t>& shape) {
  fmt::print("[");
  for (size_t i = 0; i < shape.size(); ++i) fmt::print("{}{}", i == 0 ? "" : ", ", shape[i]);
  fmt::print("]");
}

void inspect_safetensors(const fs::path& path) {
  const SafetensorsFile file(path);
  uint64_t bytes = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    fmt::print("{:<56} {:<5} ", entry.name, name(entry.dtype));
    print_shape(entry.shape);
    fmt::print("\n");
    bytes += entry.bytes();
  }
  for (const auto& [key, value] : file.metadata()) fmt::print("metadata {}: {}\n", key, value);
  fmt::print("safetensors: {} tensors, {}\n", file.entries().size(), format_bytes(bytes));
}

// What every model has, whatever its files.
void print_model(const ModelDescription& description) {
  fmt::print("parameters            {}\n", format_count(count_parameters(description.config)));
  for (const PartCount& part : count_parts(description.config)) {
    fmt::print("  {:<20}  {}\n", part.part, format_count(part.parameters));
  }
  if (!description.tokenizer_error.empty()) {
    fmt::print("tokenizer             cannot be read: {}\n", description.tokenizer_error);
  } else if (description.has_tokenizer()) {
    fmt::print("tokenizer             {} tokens\n", description.open_tokenizer().vocab_size());
  } else {
    fmt::print("tokenizer             none\n");
  }
  fmt::print("chat template         {}\n", description.chat_template.empty() ? "none" : "yes");
  std::string ends;
  for (const int32_t id : description.end_of_text) ends += fmt::format("{}{}", ends.empty() ? "" : ", ", id);
  fmt::print("ends of text          {}\n", ends.empty() ? "what the tokenizer says" : ends);
  fmt::print("{}", model_config_to_toml(description.config));
}

void inspect_gguf(const fs::path& path) {
  const GgufFile file(path);
  for (const auto& [key, value] : file.metadata()) fmt::print("{:<44} {}\n", key, describe(value));
  std::map<std::string_view, int> types;
  uint64_t bytes = 0;
  int64_t elements = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    fmt::print("{:<44} {:<7} ", tensor.name, name(tensor.type));
    print_shape(tensor.shape);
    fmt::print("{}\n", can_dequantize(tensor.type) ? "" : "  (this type cannot be read)");
    types[name(tensor.type)] += 1;
    bytes += tensor.bytes;
    elements += tensor.elements();
  }
  fmt::print("GGUF version {}: {} tensors (", file.version(), file.tensors().size());
  bool first = true;
  for (const auto& [type, count] : types) {
    fmt::print("{}{} {}", first ? "" : ", ", count, type);
    first = false;
  }
  fmt::print("), {} parameters, {}\n", format_count(elements), format_bytes(bytes));
  try {
    print_model(describe_model(path));
  } catch (const InputError& error) {
    fmt::print("cannot be used as a model: {}\n", error.what());
  }
}

void inspect_model(const fs::path& path, bool verify) {
  const ModelDescription description = describe_model(path);
  if (description.kind == ModelFileKind::checkpoint) {
    const CheckpointReader reader(description.directory);
    bool has_moments = false;
    for (const std::string& tensor : reader.tensor_names())
      has_moments = has_moments || tensor.starts_with("first_moment/");
    fmt::print("Megalith checkpoint {} (step {})\n", description.directory.string(), description.step);
    fmt::print("optimizer states      {}\n", has_moments ? "yes" : "no");
    if (verify) {
      reader.verify();
      fmt::print("checksums             all correct\n");
    }
  } else {
    fmt::print("Hugging Face directory {}\n", description.directory.string());
    const HuggingFaceWeights weights(description.directory, description.config);
    const HuggingFaceWeights::Summary summary = weights.summary();
    std::string types;
    for (const auto& [type, count] : summary.tensors) {
      types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count, type);
    }
    fmt::print("tensors               {}, {}\n", types, format_bytes(summary.bytes));
    for (const std::string& name : summary.ignored) fmt::print("ignored               {}\n", name);
  }
  print_model(description);
}

void inspect_tokenizer(const fs::path& path) {
  const Tokenizer tokenizer = Tokenizer::load(path);
  fmt::print("tokenizer.json: {} tokens\n", tokenizer.vocab_size());
  if (const auto end = tokenizer.end_of_document()) {
    fmt::print("end of document     {} \"{}\"\n", *end, tokenizer.token_bytes(*end));
  }
}

void inspect_dataset(const fs::path& prefix) {
  const IndexedDataset dataset(prefix);
  fmt::print("token dataset: {} documents, {} sequences, {} tokens of type {}\n",
             format_count(static_cast<int64_t>(dataset.documents())),
             format_count(static_cast<int64_t>(dataset.sequences())),
             format_count(static_cast<int64_t>(dataset.tokens())), name(dataset.type()));
}

void inspect_recipe(const fs::path& path) {
  const Recipe recipe = Recipe::load(path, {});
  fmt::print("recipe: {} {} (megalith train --dry-run says what it would do)\n",
             format_count(recipe.length()), name(recipe.unit()));
  fmt::print("{}", recipe.to_toml());
}

void run(const Options& options) {
  if (options.machine) {
    inspect_machine();
    return;
  }
  check_input(!options.path.empty(), "give a path, or --machine");
  const fs::path path = options.path;
  const std::string extension = path.extension().string();
  fs::path prefix = path;
  if (extension == ".idx" || extension == ".bin") prefix.replace_extension();
  fs::path index = prefix;
  index += ".idx";
  if (fs::is_directory(path)) return inspect_model(path, options.verify);
  if (fs::exists(index)) return inspect_dataset(prefix);
  check_input(fs::exists(path), "{}: there is no such file or directory", options.path);
  if (extension == ".safetensors") return inspect_safetensors(path);
  if (is_gguf(path)) return inspect_gguf(path);
  if (extension == ".json") return inspect_tokenizer(path);
  if (extension == ".bin" || extension == ".pt" || extension == ".pth") return inspect_model(path, false);
  if (extension == ".toml") return inspect_recipe(path);
  fail_input(
      "{}: not something that can be inspected: a run, checkpoint or Hugging Face directory, .safetensors, "
      ".gguf, "
      ".idx, tokenizer.json or recipe",
      options.path);
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "Say what a file or directory, or this machine, is");
  command
      ->add_option(
          "path", options->path,
          "Run, checkpoint, Hugging Face directory, .gguf,\n.safetensors, dataset, tokenizer or recipe")
      ->option_text("PATH");
  command->add_flag("--machine", options->machine, "Kernels and measured ceilings of this machine");
  command->add_flag("--verify", options->verify, "Check every checksum of a checkpoint");
  command->callback([options] { run(*options); });
}

}  // namespace megalith
