// megalith bench: figures, each with its ceiling measured in the same run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "megalith/base/cpu.h"
#include "megalith/base/log.h"
#include "megalith/base/random.h"
#include "megalith/cli/bench_parallel.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/measurement.h"
#include "megalith/cli/model_options.h"
#include "megalith/cli/random_dataset.h"
#include "megalith/cli/whole_number.h"
#include "megalith/infer/generator.h"
#include "megalith/model/counts.h"
#include "megalith/ops/machine_peak.h"
#include "megalith/ops/matmul.h"
#include "megalith/train/progress_display.h"
#include "megalith/train/stage_layout.h"
#include "megalith/train/training_step.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Options {
  std::string json_file;
  std::string recipe;
  std::vector<std::string> overrides;
  int64_t steps = 7;
  int64_t rows = 1024, rounds = 3;
  ModelOptions model;
  int64_t prompt_tokens = 512, new_tokens = 64;
};

void write_results(const Options& options, const Json& results) {
  if (options.json_file.empty()) return;
  write_file_atomic(options.json_file, Json{{"machine", cpu_model()},
                                            {"kernel_level", std::string(name(active_isa()))},
                                            {"threads", default_threads()},
                                            {"results", results}}
                                               .dump(2) +
                                           "\n");
}

MachinePeak print_peak(const ExecContext& exec) {
  constexpr double kSeconds = 1.5;
  const MachinePeak peak = measure_machine_peak(exec, kSeconds);
  fmt::print(
      "ceilings, {} threads, level {}: fp32 {:.0f} GFLOP/s, bf16 {:.0f} GFLOP/s, read {:.1f} GB/s, copy "
      "{:.1f} GB/s\n",
      exec.threads, name(active_isa()), peak.fp32_flops / 1e9, peak.bf16_flops / 1e9,
      peak.read_bandwidth / 1e9, peak.copy_bandwidth / 1e9);
  return peak;
}

double peak_flops(const MachinePeak& peak, DType dtype) {
  return dtype == DType::bf16 ? peak.bf16_flops : peak.fp32_flops;
}

// Seconds of the three products of one linear layer, the median of some rounds.
struct ProductTimes {
  double forward = 0, input = 0, weight = 0;
  double sum() const { return forward + input + weight; }
};

ProductTimes time_products(const ExecContext& exec, DType dtype, int64_t n, int64_t c, int64_t f,
                           int rounds) {
  ArenaScope scope(exec.workspace);
  const TensorView x = exec.workspace.allocate(dtype, {n, c}), w = exec.workspace.allocate(dtype, {f, c});
  const TensorView y = exec.workspace.allocate(dtype, {n, f}),
                   dw = exec.workspace.allocate_zero(DType::f32, {f, c});
  for (const TensorView& view : {x, w, y}) {
    dispatch_float(dtype, [&]<class T>(std::type_identity<T>) {
      const RandomStream stream(1, RandomUse::initialization, 7);
      T* data = view.data<T>();
      for (int64_t i = 0; i < view.elements(); ++i) {
        data[i] = static_cast<T>(stream.uniform(static_cast<uint64_t>(i % 4096)) - 0.5f);
      }
    });
  }
  std::vector<double> forward, input, weight;
  for (int round = 0; round < rounds + 1; ++round) {
    const auto time = [&](std::vector<double>& times, auto&& product) {
      const Clock::time_point start = Clock::now();
      product();
      if (round > 0) times.push_back(seconds_since(start));
    };
    time(forward, [&] { linear_forward(exec, x, w, TensorView(), y); });
    time(input, [&] { linear_backward_input(exec, y, w, x); });
    time(weight, [&] { linear_backward_weight(exec, y, x, dw, false); });
  }
  return {median(forward), median(input), median(weight)};
}

struct NamedProduct {
  std::string name;
  int64_t inputs, outputs, count, rows;
};

// The matrix products of a training step on `rows` rows.
std::vector<NamedProduct> products_of(const ModelConfig& model, int64_t rows) {
  const int64_t attention = model.num_heads * model.head_size;
  const int64_t packed = attention + 2 * model.num_kv_heads * model.head_size;
  const int64_t up = is_gated(model.activation) ? 2 * model.ffn_hidden_size : model.ffn_hidden_size;
  std::vector<NamedProduct> products = {
      {"query_key_value", model.hidden_size, packed, model.num_layers, rows},
      {"attention.output", attention, model.hidden_size, model.num_layers, rows},
      {"feed_forward.up", model.hidden_size, up, model.num_layers, rows},
      {"feed_forward.down", model.ffn_hidden_size, model.hidden_size, model.num_layers, rows}};
  const int64_t chunk = LanguageModelHead::kChunkRows;
  if (rows >= chunk)
    products.push_back({"head", model.hidden_size, model.padded_vocabulary(), rows / chunk, chunk});
  if (rows % chunk != 0)
    products.push_back({"head (rest)", model.hidden_size, model.padded_vocabulary(), 1, rows % chunk});
  return products;
}

void bench_gemm(const Options& options) {
  Arena workspace("workspace");
  const ExecContext exec{workspace, default_threads()};
  const MachinePeak peak = print_peak(exec);
  const ModelConfig gpt2 = [] {
    ModelConfig config;
    config.vocab_size = 50257;
    config.resolve();
    return config;
  }();
  Json results = Json::array();
  fmt::print("{:<20}{:>6}{:>22}{:>22}{:>22}\n", "GPT-2 124M", "type", "forward", "input gradient",
             "weight gradient");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const NamedProduct& product : products_of(gpt2, options.rows)) {
      const ProductTimes times = time_products(exec, dtype, product.rows, product.inputs, product.outputs, 5);
      const double flops = 2.0 * static_cast<double>(product.rows * product.inputs * product.outputs);
      const auto text = [&](double seconds) {
        return fmt::format("{:.0f} GFLOP/s ({:.2f})", flops / seconds / 1e9,
                           flops / seconds / peak_flops(peak, dtype));
      };
      fmt::print("{:<20}{:>6}{:>22}{:>22}{:>22}\n", product.name, name(dtype), text(times.forward),
                 text(times.input), text(times.weight));
      results.push_back({{"product", product.name},
                         {"dtype", std::string(name(dtype))},
                         {"rows", product.rows},
                         {"forward_share_of_peak", flops / times.forward / peak_flops(peak, dtype)},
                         {"input_share_of_peak", flops / times.input / peak_flops(peak, dtype)},
                         {"weight_share_of_peak", flops / times.weight / peak_flops(peak, dtype)}});
    }
  }
  write_results(options, results);
}

void bench_memory(const Options& options) {
  Arena workspace("workspace");
  const ExecContext exec{workspace, default_threads()};
  const MachinePeak peak = print_peak(exec);
  write_results(options, Json::array({{{"read_bytes_per_second", peak.read_bandwidth},
                                       {"copy_bytes_per_second", peak.copy_bandwidth}}}));
}

void bench_train(const Options& options) {
  Recipe recipe = Recipe::load(options.recipe, options.overrides);
  recipe.model.resolve();
  check_layout(recipe, 1);
  check_input(
      recipe.optimizer.offload_directory.empty() && recipe.parallel.zero_offload_directory.empty(),
      "optimizer.offload_directory and parallel.zero_offload_directory: bench train times a step whose "
      "states are in memory");
  const int64_t batch_tokens = recipe.train.global_batch * recipe.data.sequence_length;
  const RandomDataset dataset(recipe.model.vocab_size, batch_tokens * 4 + 1);
  BatchSourceOptions source_options;
  source_options.sequence_length = recipe.data.sequence_length;
  const BatchSources sources = open_batch_sources({{dataset.prefix(), 1.0}}, {}, {}, "", source_options);

  TrainingArenas arenas;
  Profiler profiler;
  const ExecContext exec{
      arenas.workspace, recipe.train.threads > 0 ? static_cast<int>(recipe.train.threads) : default_threads(),
      &profiler};
  const auto self = make_self_communicator();
  ParallelGroups groups(*self, 1, 1);
  TrainingStep step(recipe, arenas, exec, groups);
  step.initialize();
  const DType dtype = compute_type(recipe.train.precision);
  MachinePeak peak;
  double product_seconds = 0;
  {
    Arena scratch("bench workspace");
    const ExecContext bench{scratch, exec.threads};
    peak = print_peak(bench);
    const int64_t rows =
        std::min(recipe.train.micro_batch, recipe.train.global_batch) * recipe.data.sequence_length;
    for (const NamedProduct& product : products_of(recipe.model, rows)) {
      product_seconds += static_cast<double>(product.count) *
                         time_products(bench, dtype, product.rows, product.inputs, product.outputs, 5).sum();
    }
    product_seconds *= static_cast<double>(batch_tokens) / static_cast<double>(rows);
  }
  TrainingState state;
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.steps + 1; ++i) {
    if (i == 1) profiler.clear();
    const Clock::time_point start = Clock::now();
    const StepResult result = step.run(*sources.train, state, recipe.train.global_batch,
                                       recipe.optimizer.learning_rate, dtype == DType::f16 ? 128.0 : 1.0);
    check(result.not_finite.empty(), "{} is not finite", result.not_finite);
    if (i > 0) seconds.push_back(seconds_since(start));  // The first step faults the memory in.
    state.step += 1;
    state.updates += 1;
    state.consumed_samples += recipe.train.global_batch;
  }
  const double step_seconds = median(seconds);
  const double tokens_per_second = static_cast<double>(batch_tokens) / step_seconds;
  const double flops =
      3 * forward_flops_per_token(recipe.model, recipe.data.sequence_length) * tokens_per_second;
  const double share = flops / peak_flops(peak, dtype);
  uint64_t predicted = 0, measured = 0;
  const auto memory = measure_memory(predict_memory(recipe, groups.grid, groups.place), arenas);
  fmt::print("{} B{} T{}: {:.0f} tokens/s (median of {}, best {:.0f}), {:.0f} GFLOP/s = {:.2f} of the peak\n",
             kPrecisionNames[static_cast<size_t>(recipe.train.precision)], recipe.train.global_batch,
             recipe.data.sequence_length, tokens_per_second, options.steps,
             static_cast<double>(batch_tokens) / *std::min_element(seconds.begin(), seconds.end()),
             flops / 1e9, share);
  fmt::print("a step takes {:.3f} s = {:.2f} times its matrix products alone ({:.3f} s)\n", step_seconds,
             step_seconds / product_seconds, product_seconds);
  double total = 0, booked = 0;
  for (const double s : seconds) total += s;
  fmt::print("{:<16}{:>12}{:>8}\n", "part", "ms a step", "share");
  Json parts = Json::object();
  for (const ProfileEntry& entry : profiler.entries()) {
    fmt::print("{:<16}{:>12.1f}{:>8.3f}\n", entry.part,
               1e3 * entry.seconds / static_cast<double>(options.steps), entry.seconds / total);
    parts[std::string(entry.part)] = entry.seconds / static_cast<double>(options.steps);
    booked += entry.seconds;
  }
  fmt::print("{:<16}{:>12.1f}{:>8.3f}\n", "other",
             1e3 * (total - booked) / static_cast<double>(options.steps), (total - booked) / total);
  fmt::print("{:<18}{:>14}{:>14}\n", "memory", "predicted", "measured");
  for (const MemoryLine& line : memory) {
    fmt::print("{:<18}{:>14}{:>14}\n", line.kind, format_bytes(line.predicted), format_bytes(line.measured));
    predicted += line.predicted;
    measured += line.measured;
  }
  fmt::print("{:<18}{:>14}{:>14}; peak resident {}\n", "sum", format_bytes(predicted), format_bytes(measured),
             format_bytes(peak_resident_bytes()));
  write_results(
      options,
      Json::array({{{"precision", std::string(kPrecisionNames[static_cast<size_t>(recipe.train.precision)])},
                    {"batch", recipe.train.global_batch},
                    {"tokens", recipe.data.sequence_length},
                    {"tokens_per_second", tokens_per_second},
                    {"share_of_peak", share},
                    {"step_seconds", step_seconds},
                    {"matrix_product_seconds", product_seconds},
                    {"peak_resident_bytes", peak_resident_bytes()},
                    {"predicted_bytes", predicted},
                    {"part_seconds", parts}}}));
}

void bench_inference(const Options& options, bool decode) {
  OpenModel open(options.model);
  open.model.pack_weights(open.exec);
  const MachinePeak peak = print_peak(open.exec);
  const ModelConfig& config = open.model.config();
  const int64_t prompt = std::min(options.prompt_tokens, config.max_positions - options.new_tokens);
  check_input(prompt > 0, "--new-tokens {} leaves no room for a prompt in {} positions", options.new_tokens,
              config.max_positions);
  Arena cache_arena("key/value cache");
  ModelCache cache = make_cache(config, open.model.dtype(), config.max_positions, cache_arena);
  std::vector<int32_t> ids(static_cast<size_t>(prompt), 1);
  ArenaScope scope(open.workspace);
  const TensorView logits = open.workspace.allocate(DType::f32, {1, config.padded_vocabulary()});
  const auto forward = [&](int64_t count) {
    open.model.model().forward_cached(open.exec, TensorView(ids.data(), DType::i32, {count}), cache, logits);
  };
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.steps + 1; ++i) {
    cache.length = 0;
    if (decode) forward(prompt);
    const Clock::time_point start = Clock::now();
    if (decode) {
      for (int64_t t = 0; t < options.new_tokens; ++t) forward(1);
    } else {
      forward(prompt);
    }
    if (i > 0) seconds.push_back(seconds_since(start));
  }
  const double tokens = static_cast<double>(decode ? options.new_tokens : prompt);
  const double rate = tokens / median(seconds);
  double share = 0;
  if (decode) {
    const double bytes = static_cast<double>(open.model.parameters().values().bytes());
    share = rate * bytes / peak.read_bandwidth;
    fmt::print("decode: {:.1f} tokens/s, weights read at {:.1f} GB/s = {:.2f} of the memory's\n", rate,
               rate * bytes / 1e9, share);
  } else {
    const double flops = rate * forward_flops_per_token(config, prompt);
    share = flops / peak_flops(peak, open.model.dtype());
    fmt::print("prefill of {}: {:.1f} tokens/s, {:.0f} GFLOP/s = {:.2f} of the peak\n", prompt, rate,
               flops / 1e9, share);
  }
  write_results(options, Json::array({{{"tokens_per_second", rate}, {"share_of_ceiling", share}}}));
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure speed against this machine's ceilings");
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, const char* what, auto&& run) {
    CLI::App* bench = command->add_subcommand(name, what);
    bench->add_option("--json", options->json_file, "Write the figures to this file")->option_text("FILE");
    bench->callback([options, run] { run(*options); });
    return bench;
  };
  CLI::App* gemm = add("gemm", "Matrix products of GPT-2 124M", bench_gemm);
  gemm->add_option("--rows", options->rows, "Batch times tokens; default 1024")
      ->option_text("N")
      ->check(whole_number(1, 1 << 20));
  add("memory", "Memory bandwidth", bench_memory);
  CLI::App* parallel = add("parallel", "Two ranks against one process; starts mpirun", [](const Options& o) {
    bench_parallel({o.json_file, o.steps, o.rounds});
  });
  parallel
      ->add_option("--rounds", options->rounds,
                   "Times that all layouts take turns; default 3;\n0: only the all-reduce")
      ->option_text("N")
      ->check(whole_number(0, 1000));
  CLI::App* train = add("train", "A training step on random tokens", bench_train);
  train->add_option("--recipe", options->recipe, "Recipe; its data is not read")
      ->required()
      ->option_text("FILE");
  train->add_option("--set", options->overrides, "Override a key of the recipe")->option_text("KEY=VALUE");
  for (CLI::App* bench :
       {train, parallel,
        add("decode", "Generation, one token at a time", [](const Options& o) { bench_inference(o, true); }),
        add("prefill", "A prompt at once", [](const Options& o) { bench_inference(o, false); })}) {
    bench->add_option("--steps", options->steps, "Timed repetitions; default 7")
        ->option_text("N")
        ->check(whole_number(1, 100000));
    if (bench == train || bench == parallel) continue;
    add_model_options(*bench, options->model);
    bench->add_option("--prompt-tokens", options->prompt_tokens, "Default 512")
        ->option_text("N")
        ->check(whole_number(1, 1 << 24));
    bench->add_option("--new-tokens", options->new_tokens, "Default 64")
        ->option_text("N")
        ->check(whole_number(1, 1 << 24));
  }
}

}  // namespace megalith
