#include "megalith/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/comm/agreement.h"
#include "megalith/data/dataset_tokenizer.h"
#include "megalith/model/counts.h"
#include "megalith/model/model_files.h"
#include "megalith/ops/machine_peak.h"
#include "megalith/text/tokenizer.h"
#include "megalith/train/checkpoint.h"
#include "megalith/train/progress_display.h"
#include "megalith/train/recipe_changes.h"
#include "megalith/train/resume_check.h"
#include "megalith/train/run_directory.h"
#include "megalith/train/run_log.h"
#include "megalith/train/run_plan.h"
#include "megalith/train/schedule.h"
#include "megalith/train/stop_signal.h"
#include "megalith/train/training_step.h"

namespace megalith {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<DatasetEntry> entries(const std::vector<WeightedPath>& paths) {
  std::vector<DatasetEntry> result;
  for (const WeightedPath& path : paths) result.push_back({path.path, path.weight});
  return result;
}

std::string resolve_vocabulary(Communicator& ranks, Recipe& recipe) {
  std::string tokenizer_json;
  agree(ranks, [&] { tokenizer_json = resolve_vocabulary(recipe); });
  return tokenizer_json;
}

// A run in progress, on one rank.
class Run {
 public:
  Run(Recipe recipe, const TrainOptions& options, Communicator& ranks)
      : ranks_(ranks),
        tokenizer_json_(resolve_vocabulary(ranks, recipe)),
        recipe_(std::move(recipe)),
        directory_(options.output),
        trace_file_(options.trace),
        exec_{arenas_.workspace,
              recipe_.train.threads > 0 ? static_cast<int>(recipe_.train.threads) : default_threads(),
              &profiler_},
        ramp_(recipe_),
        schedule_(recipe_),
        scaler_({recipe_.train.loss_scale_start, recipe_.train.loss_scale_floor,
                 recipe_.train.loss_scale_interval, recipe_.train.loss_scale_patience}) {
    ranks_.set_hang_seconds(recipe_.parallel.hang_seconds);
    profiler_.set_progress(&ranks_.progress().changes);
    if (!options.trace.empty()) profiler_.set_trace(&trace_);
    agree(ranks_, [this] { check_layout(recipe_, ranks_.size()); });
    reserve_memory();
    agree(ranks_, [this] { open_data(); });
    check_same_everywhere();
    groups_.emplace(ranks_, static_cast<int>(recipe_.parallel.pipeline),
                    static_cast<int>(recipe_.parallel.tensor));
    {
      const UntimedWork untimed(ranks_);  // clearing memory for the first time may take long
      step_.emplace(recipe_, arenas_, exec_, *groups_);
    }
    start(options.resume);
  }

  TrainOutcome train(const StopSignal& signal);

 private:
  void open_data() {
    check_input(!recipe_.data.train.empty(), "data.train is empty: name at least one dataset");
    if (!tokenizer_json_.empty()) {
      const DatasetTokenizer tokenizer = describe_tokenizer(tokenizer_json_);
      for (const auto* paths : {&recipe_.data.train, &recipe_.data.validation, &recipe_.data.test}) {
        for (const WeightedPath& path : *paths) check_dataset_tokenizer(path.path, tokenizer);
      }
    }
    BatchSourceOptions source_options;
    source_options.sequence_length = recipe_.data.sequence_length;
    source_options.seed = static_cast<uint64_t>(recipe_.train.seed);
    source_options.shuffle = recipe_.data.shuffle;
    source_options.reset_at_documents = recipe_.data.reset_at_documents;
    if (recipe_.model.head == HeadKind::masked_language_model) {
      check_input(!tokenizer_json_.empty(),
                  "a masked language model needs data.tokenizer, which has the token that hides others");
      source_options.masking = std::make_shared<TokenMasking>(
          Tokenizer::from_json(tokenizer_json_, recipe_.data.tokenizer), recipe_.data.mask_token,
          recipe_.data.mask_share, source_options.seed);
    }
    sources_ = open_batch_sources(entries(recipe_.data.train), entries(recipe_.data.validation),
                                  entries(recipe_.data.test), recipe_.data.split, source_options);
    for (const auto& source : {sources_.train, sources_.validation, sources_.test}) {
      if (source != nullptr) source->require_vocabulary(recipe_.model.vocab_size);
    }
  }
  // Better a word before the run than a kill in the middle of it; the same for the disk.
  void reserve_memory() {
    const ProcessGrid grid = process_grid(recipe_, ranks_.size());
    uint64_t predicted = 0;
    agree(ranks_, [&] {
      const std::vector<MemoryLine> memory = predict_memory(recipe_, grid, grid.place(ranks_.rank()));
      for (const MemoryLine& line : memory) predicted += line.in_memory() ? line.predicted : 0;
      arenas_.prepare(memory);
    });
    // The ranks of a host share its memory.
    const std::string host = host_name() + " ";
    uint64_t on_host = 0;
    int ranks_on_host = 0;
    for (const std::string& text : ranks_.gather_texts(host + std::to_string(predicted))) {
      if (!text.starts_with(host)) continue;
      on_host += std::stoull(text.substr(host.size()));
      ++ranks_on_host;
    }
    agree(ranks_, [&] {
      check_input(
          on_host <= total_memory_bytes(),
          "the {} of {} need {} of memory (megalith train --dry-run says for what); it has {}: use a smaller "
          "train.micro_batch, train.recompute = \"full\", optimizer.offload_directory, with zero_stage = 3 "
          "parallel.zero_offload_directory, or a smaller model",
          ranks_on_host == 1 ? "run" : fmt::format("{} ranks", ranks_on_host), host_name(),
          format_bytes(on_host), format_bytes(total_memory_bytes()));
    });
  }
  void check_same_everywhere();
  void start(const std::string& resume);
  bool stop_asked(const StopSignal& signal);
  void message(const std::string& text) {
    if (first_) display_.message(text);
  }
  void tell_changes(const CheckpointReader& checkpoint) const;
  void load(const fs::path& checkpoint);
  void save();
  double measure(const BatchSource& source);
  void validate();
  void test();
  void log_memory_and_time();
  void write_trace();
  TrainingRecord one_step();
  void judge(const StepResult& result);

  Communicator& ranks_;
  bool first_ = ranks_.rank() == 0;
  std::string tokenizer_json_;
  Recipe recipe_;
  RunDirectory directory_;
  fs::path trace_file_;
  TrainingArenas arenas_;
  Trace trace_;
  Profiler profiler_;
  ExecContext exec_;
  BatchRamp ramp_;
  LearningRateSchedule schedule_;
  LossScaler scaler_;
  BatchSources sources_;
  std::optional<ParallelGroups> groups_;
  std::optional<TrainingStep> step_;
  TrainingState state_;
  std::optional<RunLog> log_;  // on the first rank
  ProgressDisplay display_;
  int64_t saved_step_ = -1;
  /// Of the checkpoint that the run went on from: what belongs to the model and training does not change.
  std::map<std::string, std::string> carried_files_;
  int64_t skipped_in_a_row_ = 0;  // because something was not finite, without loss scaling
};

// A rank with another recipe, tokenizer or program would train something else, or wait for ever.
void Run::check_same_everywhere() {
  const std::vector<std::string> recipes = ranks_.gather_texts(recipe_.to_toml() + tokenizer_json_);
  agree(ranks_, [&] {
    for (size_t rank = 1; rank < recipes.size(); ++rank) {
      check_input(recipes[rank] == recipes[0], "rank {} has another recipe or tokenizer than rank 0", rank);
    }
  });
}

void Run::start(const std::string& resume) {
  std::optional<fs::path> from;
  // The first rank decides, so that a directory that changes meanwhile cannot tell ranks apart.
  agree(ranks_, [&] {
    if (first_) from = directory_.prepare(resume);
  });
  const std::string chosen = ranks_.gather_texts(from ? from->string() : std::string())[0];
  if (chosen.empty()) {
    step_->initialize();
  } else {
    agree(ranks_, [&] { load(chosen); });
    bool own = false;
    agree(ranks_, [&] {
      if (first_) own = directory_.set_later_checkpoints_aside(chosen, state_.step);
    });
    // Begun elsewhere, the run has nothing of its own yet; were it interrupted now, it could not go on.
    if (!ranks_.gather_texts(own ? "own" : "")[0].empty()) saved_step_ = state_.step;
    step_->refresh_weights();
    if (first_) log_info("going on from step {} ({})", state_.step, chosen);
  }
  agree(ranks_, [&] {
    if (!first_) return;
    write_file_atomic(directory_.path() / "recipe.toml", recipe_.to_toml());
    log_.emplace(directory_.path(), state_.step);
  });
}

// What may differ between the checkpoint's recipe and this one is the user's wish, and said.
void Run::tell_changes(const CheckpointReader& checkpoint) const {
  if (!checkpoint.has_file("recipe.toml")) return;
  const auto changes = recipe_changes(checkpoint.read_file("recipe.toml"), recipe_.to_toml());
  if (!changes.empty()) {
    log_warning("the recipe is not the checkpoint's any more: {}", fmt::join(changes, "; "));
  }
}

void Run::load(const fs::path& checkpoint) {
  std::optional<CheckpointReader> reader;
  std::string stored_tokenizer;
  directory_.read(checkpoint, [&] {
    reader.emplace(checkpoint);
    if (reader->has_file("tokenizer.json")) stored_tokenizer = reader->read_file("tokenizer.json");
  });
  check_same_model(*reader, recipe_.model);
  check_same_tokenizer(stored_tokenizer, tokenizer_json_, checkpoint.string());
  directory_.read(checkpoint, [&] {
    if (first_) tell_changes(*reader);
    state_ = load_checkpoint(*reader, step_->parameters(), step_->optimizer());
  });
  for (const char* name : kModelSideFiles) {
    if (reader->has_file(name)) carried_files_[name] = reader->read_file(name);
  }
  scaler_.restore(state_.loss_scaler);
}

void Run::save() {
  if (saved_step_ == state_.step) return;
  state_.loss_scaler = scaler_.state();
  if (first_) log_->flush();
  save_checkpoint(directory_.path(), recipe_, step_->parameters(), step_->optimizer(), state_,
                  tokenizer_json_, carried_files_, *groups_);
  saved_step_ = state_.step;
}

void Run::judge(const StepResult& result) {
  if (recipe_.train.precision == Precision::fp16) {
    if (result.not_finite.empty()) {
      scaler_.step_succeeded();
      return;
    }
    const double scale = scaler_.scale();
    if (!scaler_.step_overflowed()) {
      fail(
          "step {}: {} overflowed {} times in a row at the smallest loss scale, {}: the model itself "
          "diverges or a weight is too "
          "large for fp16; lower optimizer.learning_rate or train with precision = \"bf16\"; {}",
          state_.step + 1, result.not_finite, recipe_.train.loss_scale_patience, scale,
          directory_.last_checkpoint());
    }
    message(
        fmt::format("step {}: {} is not finite at loss scale {}; the step is skipped, the scale is now {}",
                    state_.step + 1, result.not_finite, scale, scaler_.scale()));
    return;
  }
  if (result.not_finite.empty()) {
    skipped_in_a_row_ = 0;
    return;
  }
  if (recipe_.train.on_not_finite == NotFinitePolicy::stop) {
    fail("step {}: {} is not finite; the weights are those of step {}; {}", state_.step + 1,
         result.not_finite, state_.step, directory_.last_checkpoint());
  }
  if (++skipped_in_a_row_ >= recipe_.train.not_finite_patience) {
    fail("step {}: {} is not finite, as in the {} steps before; {}", state_.step + 1, result.not_finite,
         skipped_in_a_row_ - 1, directory_.last_checkpoint());
  }
  message(fmt::format("step {}: {} is not finite; the step is skipped", state_.step + 1, result.not_finite));
}

TrainingRecord Run::one_step() {
  const int64_t samples = step_samples(recipe_, ramp_, state_.consumed_samples);
  const double learning_rate = schedule_.at(schedule_position(recipe_, state_, samples));
  const bool scaled = recipe_.train.precision == Precision::fp16;
  TrainingRecord record;
  if (scaled) record.loss_scale = scaler_.scale();
  const StepResult result =
      step_->run(*sources_.train, state_, samples, learning_rate, scaled ? scaler_.scale() : 1.0);
  agree(ranks_, [&] { judge(result); });
  state_.step += 1;
  state_.consumed_samples += samples;
  if (!result.skipped) {
    state_.updates += 1;
    state_.scheduled_samples += samples;
  }
  record.step = state_.step;
  record.loss = result.loss;
  record.learning_rate = learning_rate;
  record.gradient_norm = result.gradient_norm;
  record.consumed_samples = state_.consumed_samples;
  record.consumed_tokens = state_.consumed_samples * recipe_.data.sequence_length;
  record.batch = samples;
  record.skipped = result.skipped;
  record.peak_memory_bytes = peak_resident_bytes();
  return record;
}

// Mean loss over the first samples of a source, at most one pass.
double Run::measure(const BatchSource& source) {
  const int64_t available = static_cast<int64_t>(std::max<uint64_t>(source.samples_per_pass(), 1));
  return step_->validate(source, std::min(recipe_.log.validation_samples, available));
}

void Run::validate() {
  if (sources_.validation == nullptr) return;
  const double loss = measure(*sources_.validation);
  if (!first_) return;
  log_->validation(state_.step, loss);
  message(
      fmt::format("step {}: validation loss {:.4f}, perplexity {:.2f}", state_.step, loss, std::exp(loss)));
}

// The test part is looked at once, at the end.
void Run::test() {
  if (sources_.test == nullptr) return;
  const double loss = measure(*sources_.test);
  if (!first_) return;
  log_->note("test", state_.step, fmt::format("\"test_loss\": {}", json_number(loss)));
  message(fmt::format("test loss {:.4f}, perplexity {:.2f}", loss, std::exp(loss)));
}

void Run::log_memory_and_time() {
  if (!first_) return;
  std::string parts, memory;
  for (const ProfileEntry& entry : profiler_.entries()) {
    parts += fmt::format("{}\"{}\": {:.6f}", parts.empty() ? "" : ", ", entry.part, entry.seconds);
  }
  for (const MemoryLine& line :
       measure_memory(predict_memory(recipe_, groups_->grid, groups_->place), arenas_)) {
    memory += fmt::format("{}\"{}\": {{\"predicted\": {}, \"measured\": {}}}", memory.empty() ? "" : ", ",
                          line.name(), line.predicted, line.measured);
  }
  std::string groups;
  for (const Communicator* group :
       {&ranks_, groups_->pipeline.get(), groups_->data.get(), groups_->tensor.get()}) {
    if (group->size() == 1 && group != &ranks_) continue;
    const CommunicationCounters& exchanged = group->counters();
    groups += fmt::format(
        "{}{{\"group\": \"{}\", \"ranks\": {}, \"calls\": {}, \"bytes\": {}, \"bytes_between_hosts\": {}, "
        "\"seconds\": {:.6f}}}",
        groups.empty() ? "" : ", ", group->name(), group->size(), exchanged.calls, exchanged.bytes,
        exchanged.bytes_between_hosts, exchanged.seconds);
  }
  const CommunicationQueue::Times overlap = step_->communication_times();
  log_->note("profile", state_.step,
             fmt::format("\"seconds\": {{{}}}, \"memory\": {{{}}}, \"communication\": [{}], "
                         "\"hidden_communication\": {{\"seconds\": {:.6f}, \"waited\": {:.6f}}}",
                         parts, memory, groups, overlap.busy, overlap.waited));
  if (overlap.busy > 0) {
    message(fmt::format("{}: {:.0f}% of {:.3f} s hidden behind computation",
                        groups_->grid.data() > 1 ? "data-parallel communication" : "reading from disk",
                        100 * overlap.hidden_share(), overlap.busy));
  }
}

// One file with the time lines of all ranks.
void Run::write_trace() {
  if (profiler_.trace() == nullptr) return;
  const std::vector<std::string> events = ranks_.gather_texts(trace_.to_json(ranks_.rank()));
  agree(ranks_, [&] {
    if (!first_) return;
    std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    for (size_t rank = 0; rank < events.size(); ++rank) text += (rank == 0 ? "" : ",\n") + events[rank];
    write_file_atomic(trace_file_, text + "\n]}\n");
  });
}

// Whether a signal has come to any rank, so that all stop after the same step.
bool Run::stop_asked(const StopSignal& signal) {
  double asked = signal.received() != 0 ? 1 : 0;
  ranks_.sum({&asked, 1});
  return asked > 0;
}

TrainOutcome Run::train(const StopSignal& signal) {
  const int64_t total = count_steps(recipe_);
  TrainOutcome outcome;
  const double flops_per_token = 3 * forward_flops_per_token(recipe_.model, recipe_.data.sequence_length);
  constexpr double kPeakSeconds = 0.03;
  const MachinePeak peak = measure_compute_peak(exec_, kPeakSeconds);
  const double peak_flops = recipe_.train.precision == Precision::bf16 ? peak.bf16_flops : peak.fp32_flops;
  profiler_.clear();

  const Clock::time_point began = Clock::now();
  Clock::time_point window = began;
  int64_t window_tokens = 0, run_tokens = 0;
  double training_seconds = 0;
  bool logged_profile = false;
  while (!is_done(recipe_, state_.step, state_.consumed_samples)) {
    if (stop_asked(signal)) {
      outcome.interrupted = true;
      break;
    }
    const Clock::time_point step_began = Clock::now();
    TrainingRecord record = one_step();
    const double step_seconds = seconds_since(step_began);
    training_seconds += step_seconds;
    const int64_t tokens = record.batch * recipe_.data.sequence_length;
    window_tokens += tokens;
    run_tokens += tokens;
    record.tokens_per_second = static_cast<double>(window_tokens) / seconds_since(window);
    const bool last = is_done(recipe_, state_.step, state_.consumed_samples);
    const bool logged = state_.step % recipe_.log.every == 0 || last;
    if (logged && first_) log_->training(record);
    const double rate = static_cast<double>(run_tokens) / training_seconds;
    const int64_t tokens_left =
        recipe_.unit() == Unit::steps
            ? (recipe_.train.steps - state_.step) * tokens
            : recipe_.length() * (recipe_.unit() == Unit::samples ? recipe_.data.sequence_length : 1) -
                  record.consumed_tokens;
    if (first_)
      display_.step(record, total, record.tokens_per_second * flops_per_token / peak_flops,
                    static_cast<double>(tokens_left) / rate, logged);
    if (logged) {
      window = Clock::now();
      window_tokens = 0;
    }
    outcome.final_loss = record.loss;
    const bool validated =
        recipe_.log.validate_every > 0 && (state_.step % recipe_.log.validate_every == 0 || last);
    if (validated) validate();
    if (last) test();
    if (logged && first_) log_->flush();
    if (last) {
      log_memory_and_time();
      logged_profile = true;
    }
    if ((recipe_.checkpoint.every > 0 && state_.step % recipe_.checkpoint.every == 0) || last) save();
    if (validated) {
      window = Clock::now();
      window_tokens = 0;
    }
  }
  display_.finish();
  if (outcome.interrupted) {
    if (!logged_profile && run_tokens > 0) log_memory_and_time();
    save();
  }
  write_trace();
  if (first_) log_->flush();
  outcome.steps = state_.step;
  return outcome;
}

}  // namespace

TrainOutcome train(Recipe recipe, const TrainOptions& options, Communicator& ranks) {
  const StopSignal signal;  // already while data and weights are read
  return Run(std::move(recipe), options, ranks).train(signal);
}

TrainOutcome train(const Recipe& recipe, const TrainOptions& options) {
  return train(recipe, options, *make_self_communicator());
}

}  // namespace megalith
