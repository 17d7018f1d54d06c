#include "megalith/train/recipe.h"

#include <limits>

#include "megalith/base/error.h"

namespace megalith {

namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
// Times the longest sequence still a 64-bit number of tokens.
constexpr int64_t kMostSamples = int64_t{1} << 31;
constexpr double kAnyReal = std::numeric_limits<double>::infinity();

void make_absolute(std::string& path, const std::filesystem::path& directory) {
  if (!path.empty()) path = std::filesystem::absolute(directory / path).lexically_normal().string();
}

}  // namespace

DType compute_type(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
    case Precision::fp32:
      break;
  }
  return DType::f32;
}

std::string_view name(Unit unit) {
  switch (unit) {
    case Unit::samples:
      return "samples";
    case Unit::tokens:
      return "tokens";
    case Unit::steps:
      break;
  }
  return "steps";
}

void Recipe::describe(ConfigVisitor& v) {
  model.describe(v);

  v.table("data", "Token datasets (megalith data tokenize) and how samples are cut from them.");
  v.text("tokenizer", data.tokenizer,
         "tokenizer.json; gives the vocabulary and is stored with every checkpoint.");
  v.weighted_paths("train", data.train, "Datasets without .bin and .idx, mixed by weight.");
  v.weighted_paths("validation", data.validation,
                   "Datasets for validation; empty takes a part of `train` by `split`.");
  v.weighted_paths(
      "test", data.test,
      "Datasets for the test loss at the end of the run; empty takes a part of `train` by `split`.");
  v.text("split", data.split,
         "Shares of train, validation and test documents; empty uses the train datasets whole.");
  v.integer("sequence_length", data.sequence_length, 0, int64_t{1} << 31, "tokens",
            "Tokens of a sample; 0 means model.max_positions.");
  v.boolean("reset_at_documents", data.reset_at_documents,
            "Positions and attention start anew at every document of a sample.");
  v.real("mask_share", data.mask_share, 1e-6, 1.0, "",
         "Masked language models: share of the tokens that are predicted; most of them are hidden.");
  v.text("mask_token", data.mask_token,
         "Masked language models: the token that hides others; empty finds [MASK] or <mask>.");
  v.boolean("shuffle", data.shuffle,
            "Samples come in an order drawn from train.seed, another one each epoch.");

  v.table("train", "Length, batch and arithmetic of the run.");
  v.integer("steps", train.steps, 0, kUnlimited, "steps",
            "Length of the run; give one of steps, samples and tokens.");
  v.integer("samples", train.samples, 0, kMostSamples, "samples", "Length of the run in samples.");
  v.integer("tokens", train.tokens, 0, kUnlimited, "tokens", "Length of the run in tokens.");
  v.integer("micro_batch", train.micro_batch, 1, 1 << 20, "samples",
            "Samples that go through the model at once.");
  v.integer(
      "global_batch", train.global_batch, 0, kUnlimited, "samples",
      "Samples of an optimizer step; 0 means micro_batch. The last micro-batch of a step may be smaller.");
  v.integer("batch_ramp_start", train.batch_ramp_start, 0, kUnlimited, "samples",
            "Batch at the start of the run; 0 is no ramp.");
  v.integer("batch_ramp_increment", train.batch_ramp_increment, 0, kUnlimited, "samples",
            "Growth of the batch at each stage of the ramp.");
  v.integer("batch_ramp_samples", train.batch_ramp_samples, 0, kUnlimited, "samples", "Length of the ramp.");
  v.integer("batch_ramp_tokens", train.batch_ramp_tokens, 0, kUnlimited, "tokens",
            "Length of the ramp, in tokens instead.");
  v.choice("precision", train.precision, kPrecisionNames,
           "Type of activations and of the weights that products use; master weights, gradients and "
           "optimizer are fp32.");
  v.integer("seed", train.seed, 0, kUnlimited, "", "Of initial weights, dropout and sample order.");
  v.choice("recompute", train.recompute, kRecomputeNames,
           "Activations that the backward pass computes again: none, the attention part of each block, or "
           "whole blocks.");
  v.integer("threads", train.threads, 0, 4096, "", "CPU threads; 0 means all.");
  v.real("loss_scale_start", train.loss_scale_start, 1.0, 4294967296.0, "",
         "fp16: first loss scale; halved on overflow, which skips the step.");
  v.integer("loss_scale_interval", train.loss_scale_interval, 1, kUnlimited, "steps",
            "fp16: clean steps after which the loss scale doubles.");
  v.real("loss_scale_floor", train.loss_scale_floor, 1e-6, 4294967296.0, "", "fp16: smallest loss scale.");
  v.integer("loss_scale_patience", train.loss_scale_patience, 1, kUnlimited, "steps",
            "fp16: overflows in a row at the floor that end the run.");
  v.choice("on_not_finite", train.on_not_finite, kNotFiniteNames,
           "A loss or gradient that is not finite stops the run, or skips the step.");
  v.integer("not_finite_patience", train.not_finite_patience, 1, kUnlimited, "steps",
            "Skipped steps in a row that end the run all the same.");

  v.table("optimizer",
          "How gradients change weights. Weight decay applies to matrices, not to norms and biases.");
  v.choice("type", optimizer.type, kOptimizerNames, "AdamW, SGD with momentum, or LAMB for large batches.");
  v.real("learning_rate", optimizer.learning_rate, 0.0, 1000.0, "", "Largest learning rate of the schedule.");
  v.real("beta1", optimizer.beta1, 0.0, 0.9999999, "", "Decay of the first moment.");
  v.real("beta2", optimizer.beta2, 0.0, 0.9999999, "", "Decay of the second moment.");
  v.real("epsilon", optimizer.epsilon, 1e-20, 1.0, "", "Added to the root of the second moment.");
  v.real("momentum", optimizer.momentum, 0.0, 0.9999999, "", "Of sgd.");
  v.real("weight_decay", optimizer.weight_decay, 0.0, 100.0, "", "Decoupled weight decay (L2 for sgd).");
  v.real("clip_norm", optimizer.clip_norm, 0.0, kAnyReal, "",
         "Gradients are scaled down to this global norm; 0 is off.");
  v.text("offload_directory", optimizer.offload_directory,
         "Directory on a fast local disk for the optimizer states, which then take no memory; empty keeps "
         "them in "
         "memory.");

  v.table("schedule", "Learning rate over the run. Lengths are in the unit of the run's length.");
  v.choice("type", schedule.type, kScheduleNames, "Shape after the linear warm-up.");
  v.integer("warmup_steps", schedule.warmup_steps, 0, kUnlimited, "steps", "Length of the linear warm-up.");
  v.integer("warmup_samples", schedule.warmup_samples, 0, kUnlimited, "samples", "The same in samples.");
  v.integer("warmup_tokens", schedule.warmup_tokens, 0, kUnlimited, "tokens", "The same in tokens.");
  v.integer("decay_steps", schedule.decay_steps, 0, kUnlimited, "steps",
            "Step at which the decay ends (for warmup_stable_decay: length of the final decay); 0 means the "
            "run's end (a tenth of the run).");
  v.integer("decay_samples", schedule.decay_samples, 0, kUnlimited, "samples", "The same in samples.");
  v.integer("decay_tokens", schedule.decay_tokens, 0, kUnlimited, "tokens", "The same in tokens.");
  v.real("min_learning_rate", schedule.min_learning_rate, -1.0, 1000.0, "",
         "Where the decay ends; -1 means a tenth of the learning rate.");

  v.table("checkpoint", "When the state of the run is written.");
  v.integer("every", checkpoint.every, 0, kUnlimited, "steps", "0: only at the end and when interrupted.");
  v.integer("keep_last", checkpoint.keep_last, 1, kUnlimited, "", "Newest checkpoints that stay.");
  v.integer("keep_every", checkpoint.keep_every, 0, kUnlimited, "steps",
            "Checkpoints at multiples of this stay for ever; 0: none.");

  v.table("log", "What is reported when.");
  v.integer("every", log.every, 1, kUnlimited, "steps",
            "Between lines of log.jsonl, TensorBoard points and plain progress lines.");
  v.integer("validate_every", log.validate_every, 0, kUnlimited, "steps", "Between validations; 0 is never.");
  v.integer("validation_samples", log.validation_samples, 1, kUnlimited, "samples",
            "Samples of a validation, and of the test at the end; always the same ones.");

  v.table("parallel",
          "Layout over ranks (mpirun -n N megalith train ...). Data parallel is what the number of ranks "
          "leaves.");
  v.integer("tensor", parallel.tensor, 1, 4096, "ranks",
            "Ranks that share each layer; divides heads, key/value heads and ffn_hidden_size.");
  v.integer("pipeline", parallel.pipeline, 1, 4096, "",
            "Pipeline stages: each holds a part of the layers on ranks of its own.");
  v.integer("virtual_pipeline", parallel.virtual_pipeline, 1, 4096, "",
            "Pieces of layers a stage (interleaved 1F1B): divides the idle time of the pipeline, for more "
            "messages.");
  v.choice("pipeline_schedule", parallel.pipeline_schedule, kPipelineScheduleNames,
           "1f1b keeps at most as many micro-batches alive as there are stages; gpipe keeps all.");
  v.text(
      "layer_split", parallel.layer_split,
      "Layers of each piece: even, cost (the output layer counts as so many layers), or numbers like 3,4,5.");
  v.integer("expert", parallel.expert, 1, 1, "", "Ranks that share experts; only 1 so far.");
  v.boolean("sequence_parallel", parallel.sequence_parallel,
            "Norms, dropout and residuals split over the tensor ranks, which must divide sequence_length.");
  v.integer("zero_stage", parallel.zero_stage, 0, 3, "",
            "ZeRO over the data-parallel ranks: 1 cuts optimizer states (master weights, moments), 2 "
            "gradients too, 3 "
            "weights too.");
  v.integer("zero_persistent_elements", parallel.zero_persistent_elements, 0, kUnlimited, "elements",
            "ZeRO 3: parts of the model below this size stay gathered until an update.");
  v.text("zero_offload_directory", parallel.zero_offload_directory,
         "ZeRO 3: directory on a fast local disk for a rank's parts of weights and gradients, which then "
         "take no "
         "memory; empty keeps them in memory.");
  v.integer(
      "bucket_elements", parallel.bucket_elements, 1, kUnlimited, "elements",
      "ZeRO 0 and 1: gradients are reduced in pieces of at least this size while the backward pass goes on.");
  v.real("hang_seconds", parallel.hang_seconds, 1.0, 1e6, "seconds",
         "A rank that finishes no operation for so long hangs, and ends the job.");
}

Recipe Recipe::load(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return from_source(ConfigSource::from_file(path, overrides), path.parent_path());
}

Recipe Recipe::from_source(const ConfigSource& source, const std::filesystem::path& directory) {
  Recipe recipe;
  if (const auto form = source.find_text("model", "form")) {
    // An unknown form is refused below.
    const auto known = std::find(kModelFormNames.begin(), kModelFormNames.end(), *form);
    if (known != kModelFormNames.end()) {
      recipe.model = ModelConfig::defaults(static_cast<ModelForm>(known - kModelFormNames.begin()));
    }
  }
  source.read([&](ConfigVisitor& visitor) { recipe.describe(visitor); });
  make_absolute(recipe.data.tokenizer, directory);
  make_absolute(recipe.optimizer.offload_directory, directory);
  make_absolute(recipe.parallel.zero_offload_directory, directory);
  for (auto* list : {&recipe.data.train, &recipe.data.validation, &recipe.data.test}) {
    for (WeightedPath& entry : *list) make_absolute(entry.path, directory);
  }
  recipe.resolve();
  return recipe;
}

void Recipe::resolve() {
  if (data.sequence_length == 0) data.sequence_length = model.max_positions;
  check_input(data.sequence_length <= model.max_positions || model.positions == PositionKind::rope,
              "data.sequence_length = {} exceeds model.max_positions = {}", data.sequence_length,
              model.max_positions);
  const int given = (train.steps > 0) + (train.samples > 0) + (train.tokens > 0);
  check_input(given <= 1, "give one of train.steps, train.samples and train.tokens, not {}", given);
  check_input(given == 1, "the run has no length: set train.steps, train.samples or train.tokens");
  if (train.global_batch == 0) train.global_batch = train.micro_batch;
  if (train.batch_ramp_start > 0) {
    check_input(train.batch_ramp_start <= train.global_batch,
                "train.batch_ramp_start = {} exceeds train.global_batch = {}", train.batch_ramp_start,
                train.global_batch);
    check_input(train.batch_ramp_increment > 0 &&
                    (train.global_batch - train.batch_ramp_start) % train.batch_ramp_increment == 0,
                "train.batch_ramp_increment = {} must divide global_batch - batch_ramp_start = {}",
                train.batch_ramp_increment, train.global_batch - train.batch_ramp_start);
    check_input((train.batch_ramp_samples > 0) != (train.batch_ramp_tokens > 0),
                "a batch ramp needs its length: one of train.batch_ramp_samples and train.batch_ramp_tokens");
  }
  const auto one_unit = [&](const char* what, int64_t steps, int64_t samples, int64_t tokens) {
    const bool fits = (steps == 0 || unit() == Unit::steps) && (samples == 0 || unit() == Unit::samples) &&
                      (tokens == 0 || unit() == Unit::tokens);
    check_input(fits, "schedule.{}_* must be given in {}, as the run's length is", what, name(unit()));
  };
  one_unit("warmup", schedule.warmup_steps, schedule.warmup_samples, schedule.warmup_tokens);
  one_unit("decay", schedule.decay_steps, schedule.decay_samples, schedule.decay_tokens);
  check_input(schedule.min_learning_rate >= 0 || schedule.min_learning_rate == -1,
              "schedule.min_learning_rate = {} is out of range; allowed is 0 or more, or -1 for a tenth of "
              "the learning rate",
              schedule.min_learning_rate);
  if (schedule.min_learning_rate < 0) schedule.min_learning_rate = optimizer.learning_rate * 0.1;
  check_input(train.loss_scale_start >= train.loss_scale_floor,
              "train.loss_scale_start = {} is below train.loss_scale_floor = {}", train.loss_scale_start,
              train.loss_scale_floor);
  check_input(schedule.min_learning_rate <= optimizer.learning_rate,
              "schedule.min_learning_rate = {} exceeds optimizer.learning_rate = {}",
              schedule.min_learning_rate, optimizer.learning_rate);
  check_input(
      parallel.zero_stage == 0 || optimizer.type != OptimizerType::lamb,
      "parallel.zero_stage above 0 cuts tensors over ranks, but optimizer.type = \"lamb\" needs the norm "
      "of whole tensors");
  check_input(
      parallel.zero_stage < 2 || parallel.pipeline == 1,
      "parallel.zero_stage = {} exchanges gradients or weights for every micro-batch, which pipeline stages "
      "do at different times: with parallel.pipeline = {} use zero_stage 0 or 1",
      parallel.zero_stage, parallel.pipeline);
  check_input(
      parallel.zero_offload_directory.empty() || parallel.zero_stage == 3,
      "parallel.zero_offload_directory needs parallel.zero_stage = 3, which holds whole weights only while "
      "they are used; with zero_stage = {} they are in use all the time",
      parallel.zero_stage);
  check_input(parallel.virtual_pipeline == 1 || parallel.pipeline > 1,
              "parallel.virtual_pipeline = {} needs parallel.pipeline above 1", parallel.virtual_pipeline);
  check_input(
      parallel.virtual_pipeline == 1 || parallel.pipeline_schedule != PipelineSchedule::gpipe,
      "parallel.virtual_pipeline = {} interleaves pieces, which parallel.pipeline_schedule = \"gpipe\" "
      "does not",
      parallel.virtual_pipeline);
  split_layers(parallel.layer_split, model.num_layers,
               static_cast<int>(parallel.pipeline * parallel.virtual_pipeline), 0.0, 0.0);
  check_input(model.head != HeadKind::none,
              "model.head = \"none\" predicts nothing that training could compare with text");
  check_input(
      model.causal == (model.head == HeadKind::language_model),
      "model.causal = {} does not go with model.head = \"{}\": the next token is predicted from those "
      "before it alone, a masked one from those around it",
      model.causal, kHeadKindNames[static_cast<size_t>(model.head)]);
  check_input(parallel.tensor == 1 || optimizer.type != OptimizerType::lamb,
              "parallel.tensor = {} cuts tensors over ranks, but optimizer.type = \"lamb\" needs the norm of "
              "whole tensors",
              parallel.tensor);
  check_input(!parallel.sequence_parallel || parallel.tensor > 1,
              "parallel.sequence_parallel splits over tensor ranks: it needs parallel.tensor above 1");
}

std::string Recipe::to_toml() const {
  Recipe copy = *this;  // Visitors take fields by reference; writing changes none.
  return config_to_toml([&](ConfigVisitor& visitor) { copy.describe(visitor); });
}

Unit Recipe::unit() const {
  if (train.tokens > 0) return Unit::tokens;
  return train.samples > 0 ? Unit::samples : Unit::steps;
}

int64_t Recipe::length() const {
  switch (unit()) {
    case Unit::tokens:
      return train.tokens;
    case Unit::samples:
      return train.samples;
    case Unit::steps:
      break;
  }
  return train.steps;
}

}  // namespace megalith
