#include "megalith/train/run_log.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace megalith {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Tags of the numbers that TensorBoard shows.
constexpr std::pair<const char*, const char*> kTags[] = {{"loss", "train/loss"},
                                                         {"learning_rate", "train/learning_rate"},
                                                         {"gradient_norm", "train/gradient_norm"},
                                                         {"loss_scale", "train/loss_scale"},
                                                         {"tokens_per_second", "speed/tokens_per_second"},
                                                         {"peak_memory_bytes", "memory/peak_bytes"},
                                                         {"validation_loss", "validation/loss"}};

// Zero where a damaged line has something else.
template <class T>
T number(const Json& line, const char* key) {
  return line.contains(key) && line[key].is_number() ? line[key].get<T>() : T{0};
}

void write_events(EventFile& events, const Json& line) {
  for (const auto& [key, tag] : kTags) {
    if (!line.contains(key) || !line[key].is_number()) continue;
    events.scalar(number<double>(line, "time"), number<int64_t>(line, "step"), tag, line[key].get<float>());
  }
}

}  // namespace

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

RunLog::RunLog(const fs::path& run, int64_t resume_step) {
  const fs::path path = run / "log.jsonl";
  std::string kept;
  std::vector<Json> records;
  if (fs::exists(path)) {
    std::istringstream lines(read_file(path));
    std::string text;
    while (std::getline(lines, text)) {
      Json record = Json::parse(text, nullptr, false);
      // A line that was cut by a kill is dropped with the lost steps.
      if (record.is_discarded() || !record.is_object() || number<int64_t>(record, "step") > resume_step)
        continue;
      kept += text + '\n';
      records.push_back(std::move(record));
    }
    write_file_atomic(path, kept);
  }
  lines_ = std::make_unique<OutputFile>(path, true);
  const fs::path directory = run / "tensorboard";
  std::error_code ignored;
  fs::remove_all(directory, ignored);
  fs::create_directories(directory);
  const double start = now();
  events_ = std::make_unique<EventFile>(
      directory / fmt::format("events.out.tfevents.{}.megalith", static_cast<int64_t>(start)), start);
  for (const Json& record : records) write_events(*events_, record);
  events_->flush();
}

void RunLog::line(const std::string& text) {
  lines_->write(text + "\n");
  write_events(*events_, Json::parse(text));
}

void RunLog::training(const TrainingRecord& r) {
  std::string text = fmt::format(
      "{{\"step\": {}, \"loss\": {}, \"learning_rate\": {}, \"gradient_norm\": {}, \"tokens_per_second\": "
      "{:.1f}, "
      "\"consumed_samples\": {}, \"consumed_tokens\": {}, \"batch\": {}",
      r.step, json_number(r.loss), json_number(r.learning_rate), json_number(r.gradient_norm),
      r.tokens_per_second, r.consumed_samples, r.consumed_tokens, r.batch);
  if (r.loss_scale) text += fmt::format(", \"loss_scale\": {}", json_number(*r.loss_scale));
  if (r.skipped) text += ", \"skipped\": true";
  text += fmt::format(", \"peak_memory_bytes\": {}, \"time\": {:.3f}}}", r.peak_memory_bytes, now());
  line(text);
}

void RunLog::validation(int64_t step, double loss) {
  line(fmt::format("{{\"step\": {}, \"validation_loss\": {}, \"time\": {:.3f}}}", step, json_number(loss),
                   now()));
}

void RunLog::note(const std::string& kind, int64_t step, const std::string& members) {
  line(fmt::format("{{\"kind\": \"{}\", \"step\": {}, {}, \"time\": {:.3f}}}", kind, step, members, now()));
}

void RunLog::flush() {
  lines_->flush();
  events_->flush();
}

}  // namespace megalith
