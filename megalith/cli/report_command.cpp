// megalith report: a run directory as one self-contained HTML page.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megalith/base/cpu.h"
#include "megalith/base/log.h"
#include "megalith/cli/commands.h"
#include "megalith/cli/model_options.h"
#include "megalith/cli/svg_chart.h"
#include "megalith/infer/generator.h"
#include "megalith/model/counts.h"
#include "megalith/train/progress_display.h"
#include "megalith/train/recipe.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kStyle = R"(
:root { --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --page: #ffffff; --panel: #f6f8fa;
        --c0: #2166c2; --c1: #c9542a; --c2: #2c8a57; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b4; --line: #313a46; --page: #12161c;
        --panel: #1a2029; --c0: #6ea8ff; --c1: #ff9166; --c2: #66c796; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1180px;
       margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.soft { color: var(--soft); } .grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
.figures { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; margin: 1rem 0; } .figures b { display: block; font-size: 1.25rem; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .title { font-weight: 600; font-size: 13px; } svg .tick { fill: var(--soft); font-size: 11px; }
svg line.grid { stroke: var(--line); } svg .line { fill: none; stroke-width: 1.6; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
svg .f0 { fill: var(--c0); } svg .f1 { fill: var(--c1); } svg .f2 { fill: var(--c2); }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
      padding: .8rem; font-size: 13px; }
)";

struct Options {
  std::string run, output;
  std::vector<std::string> prompts;
  bool no_samples = false;
};

struct RunData {
  std::vector<Json> training, validation;
  Json profile;
};

// What the page uses of a line has the type that a run writes, so that nothing below need ask. `place` is the
// line's, for messages.
void check_types(const Json& line, std::string_view place) {
  const auto demand = [&](bool holds, std::string_view member, std::string_view what) {
    check_input(holds, "{}: \"{}\" must be {}", place, member, what);
  };
  const auto whole = [&](const Json& object, const char* key, const std::string& prefix = {}) {
    if (!object.contains(key)) return;
    demand(object[key].is_number_unsigned(), prefix + key, "a whole number, not negative");
  };
  for (const char* key : {"step", "consumed_tokens", "peak_memory_bytes"}) whole(line, key);
  for (const char* key : {"loss", "learning_rate", "gradient_norm", "loss_scale", "validation_loss"}) {
    // null stands for what is not finite.
    demand(!line.contains(key) || line[key].is_number() || line[key].is_null(), key, "a number or null");
  }
  if (line.contains("tokens_per_second"))
    demand(line["tokens_per_second"].is_number(), "tokens_per_second", "a number");
  if (line.contains("kind")) demand(line["kind"].is_string(), "kind", "a string");
  for (const char* key : {"seconds", "memory"}) {
    if (!line.contains(key)) continue;
    demand(line[key].is_object(), key, "an object");
    for (const auto& [part, value] : line[key].items()) {
      const std::string member = fmt::format("{}.{}", key, part);
      if (std::string_view(key) == "seconds") {
        demand(value.is_number(), member, "a number");
      } else {
        demand(value.is_object(), member, "an object");
        for (const char* side : {"predicted", "measured"}) whole(value, side, member + ".");
      }
    }
  }
}

RunData read_log(const fs::path& run) {
  RunData data;
  const fs::path path = run / "log.jsonl";
  std::istringstream lines(read_file(path));
  int number = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;  // A line that was cut by a kill.
    check_types(line, fmt::format("{}:{}", path.string(), number));
    if (line.contains("validation_loss")) {
      data.validation.push_back(std::move(line));
    } else if (line.value("kind", "") == "profile") {
      data.profile = std::move(line);
    } else if (line.contains("loss")) {
      data.training.push_back(std::move(line));
    }
  }
  return data;
}

ChartSeries series(const std::vector<Json>& lines, const char* key, const char* name, int color,
                   bool marked = false) {
  ChartSeries result{name, {}, color, marked};
  for (const Json& line : lines) {
    if (line.contains(key) && line[key].is_number()) {
      result.points.emplace_back(line.value("step", 0.0), line[key].get<double>());
    }
  }
  return result;
}

std::string panel(const std::string& content) {
  return "<div class=\"panel\">" + content + "</div>\n";
}

std::string figure(const std::string& name, const std::string& value) {
  return fmt::format("<div><span class=\"soft\">{}</span><b>{}</b></div>", escape_html(name),
                     escape_html(value));
}

std::string key_figures(const RunData& data, const Recipe& recipe) {
  std::string html = "<div class=\"figures\">";
  html += figure("parameters", format_count(count_parameters(recipe.model)));
  if (!data.training.empty()) {
    const Json& last = data.training.back();
    html += figure("steps", format_count(last.value("step", int64_t{0})));
    html += figure("tokens", format_count(last.value("consumed_tokens", int64_t{0})));
    if (last["loss"].is_number())
      html += figure("last loss", fmt::format("{:.4f}", last["loss"].get<double>()));
    html += figure("tokens/s", format_count(static_cast<int64_t>(last.value("tokens_per_second", 0.0))));
    html += figure("peak memory", format_bytes(last.value("peak_memory_bytes", uint64_t{0})));
  }
  if (!data.validation.empty() && data.validation.back()["validation_loss"].is_number()) {
    const double loss = data.validation.back()["validation_loss"].get<double>();
    html += figure("validation loss", fmt::format("{:.4f}", loss));
    html += figure("validation perplexity", fmt::format("{:.2f}", std::exp(loss)));
  }
  return html + "</div>\n";
}

std::string curves(const RunData& data) {
  std::string html = "<div class=\"grid\">\n";
  html += panel(line_chart({series(data.training, "loss", "training", 0),
                            series(data.validation, "validation_loss", "validation", 1, true)},
                           {"Loss (nats a token)", "step"}));
  html += panel(line_chart({series(data.training, "learning_rate", "learning rate", 0)},
                           {"Learning rate", "step", true}));
  html += panel(line_chart({series(data.training, "gradient_norm", "gradient norm", 0)},
                           {"Gradient norm, before clipping (log scale)", "step", false, true}));
  html += panel(line_chart({series(data.training, "tokens_per_second", "tokens/s", 2)},
                           {"Tokens per second", "step", true}));
  const ChartSeries scale = series(data.training, "loss_scale", "loss scale", 1);
  if (!scale.points.empty())
    html += panel(line_chart({scale}, {"Loss scale (log scale)", "step", false, true}));
  return html + "</div>\n";
}

std::string parts_table(const Recipe& recipe) {
  const auto parts = count_parts(recipe.model);
  const double total = static_cast<double>(count_parameters(recipe.model));
  std::string html = "<table><tr><th>part</th><th class=\"n\">parameters</th><th class=\"n\">share</th></tr>";
  for (const PartCount& part : parts) {
    html += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1f}%</td></tr>", part.part,
                        format_count(part.parameters), 100.0 * static_cast<double>(part.parameters) / total);
  }
  return html + fmt::format("<tr><td><b>all</b></td><td class=\"n\"><b>{}</b></td><td></td></tr></table>",
                            format_count(static_cast<int64_t>(total)));
}

std::string time_and_memory(const RunData& data) {
  if (!data.profile.is_object())
    return "<p class=\"soft\">The run has not ended yet, so there is no profile.</p>";
  std::string html = "<div class=\"grid\">\n";
  std::vector<std::pair<std::string, double>> seconds;
  if (data.profile.contains("seconds")) {
    for (const auto& [part, value] : data.profile["seconds"].items())
      seconds.emplace_back(part, value.get<double>());
  }
  std::sort(seconds.begin(), seconds.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  html += panel("<b>Time by part of the step</b>" + bar_chart(seconds, "s"));
  std::string table =
      "<b>Memory by kind</b><table><tr><th>kind</th><th class=\"n\">predicted</th><th "
      "class=\"n\">measured</th></tr>";
  uint64_t predicted = 0, measured = 0;
  if (data.profile.contains("memory")) {
    for (const auto& [kind, value] : data.profile["memory"].items()) {
      const uint64_t p = value.value("predicted", uint64_t{0}), m = value.value("measured", uint64_t{0});
      table += fmt::format("<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                           escape_html(kind), format_bytes(p), format_bytes(m));
      if (kind.ends_with(" on disk")) continue;
      predicted += p;
      measured += m;
    }
  }
  table += fmt::format("<tr><td><b>sum</b></td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr></table>",
                       format_bytes(predicted), format_bytes(measured));
  return html + panel(table) + "</div>\n";
}

std::string samples(const Options& options) {
  if (!describe_model(options.run).has_tokenizer()) {
    return "<p class=\"soft\">The run has no tokenizer, so there are no samples.</p>\n";
  }
  ModelOptions model_options;
  model_options.model = options.run;
  OpenModel open(model_options);
  Generator generator(open.model, open.tokenizer, open.exec);
  GenerateOptions generate;
  generate.max_tokens = 120;
  generate.sampling.temperature = 0.8;
  generate.sampling.top_k = 50;
  std::string html;
  const std::vector<std::string> prompts =
      options.prompts.empty() ? std::vector<std::string>{"", "The "} : options.prompts;
  for (const std::string& prompt : prompts) {
    if (prompt.empty() && !open.tokenizer.end_of_document() && !open.tokenizer.beginning_of_text()) continue;
    const Generation result = generator.generate(prompt, generate);
    html += "<pre><b>" + escape_html(prompt) + "</b>" + escape_html(result.text) + "</pre>\n";
  }
  return html + fmt::format("<p class=\"soft\">From {}; temperature 0.8, top-k 50, seed 0.</p>\n",
                            escape_html(open.description.directory.filename().string()));
}

void run(Options options) {
  const fs::path directory = options.run;
  check_input(fs::exists(directory / "log.jsonl"), "{}: not a run directory (there is no log.jsonl)",
              options.run);
  const Recipe recipe = Recipe::load(directory / "recipe.toml", {});
  const RunData data = read_log(directory);
  const std::string name = fs::absolute(directory).lexically_normal().filename().string();
  std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">";
  html += fmt::format("<title>{}</title><style>{}</style></head><body>\n", escape_html(name), kStyle);
  html += fmt::format("<h1>{}</h1><p class=\"soft\">{} form, {}, on {}</p>\n", escape_html(name),
                      kModelFormNames[static_cast<size_t>(recipe.model.form)],
                      kPrecisionNames[static_cast<size_t>(recipe.train.precision)], escape_html(cpu_model()));
  html += key_figures(data, recipe) + curves(data);
  html += "<h2>Time and memory</h2>\n" + time_and_memory(data);
  html += "<h2>Model</h2>\n" + panel(parts_table(recipe));
  if (!options.no_samples && find_checkpoint(directory)) html += "<h2>Samples</h2>\n" + samples(options);
  html += "<h2>Recipe</h2>\n<pre>" + escape_html(recipe.to_toml()) + "</pre>\n</body></html>\n";
  const fs::path output = options.output.empty() ? directory / "report.html" : fs::path(options.output);
  write_file_atomic(output, html);
  log_info("wrote {}", output.string());
}

}  // namespace

void add_report_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("report", "A run as one HTML page: curves, memory, samples");
  command->add_option("run", options->run, "Run directory")->required()->option_text("RUN");
  command->add_option("--output", options->output, "Default RUN/report.html")->option_text("FILE");
  command->add_option("--prompt", options->prompts, "Prompt of a sample (may be given several times)")
      ->allow_extra_args(false);  // brackets are part of a prompt, not of a list
  command->add_flag("--no-samples", options->no_samples, "Do not generate samples");
  command->callback([options] { run(*options); });
}

}  // namespace megalith
