// Golden values that transformers computed in float64 (tests/golden/README.md): logits, loss, all gradients,
// ten AdamW steps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "megalith/formats/safetensors.h"
#include "megalith/model/hugging_face.h"
#include "megalith/model/model_files.h"
#include "megalith/train/optimizer.h"
#include "tests/model/whole_model.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path golden() {
  return fs::path(std::getenv("MEGALITH_TEST_DATA")) / "golden";
}

// Values of a parameter of ours from the Hugging Face tensors under `prefix`.
std::vector<float> expected_values(const SafetensorsFile& file, const ModelConfig& config,
                                   const Parameter& parameter, const std::string& prefix) {
  std::vector<float> values;
  const int64_t columns = parameter.shape.rank() == 2 ? parameter.shape[1] : 1;
  for (const StoredTensor& tensor : hugging_face_tensors(family(config.form), config, parameter)) {
    const SafetensorsEntry* entry = file.find(prefix + tensor.name);
    if (entry == nullptr) return {};
    const TensorView view = file.view(*entry);
    const float* data = static_cast<const float*>(view.raw());
    for (int64_t r = 0; r < tensor.rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        values.push_back(tensor.transposed ? data[c * tensor.rows + r] : data[r * columns + c]);
      }
    }
  }
  return values;
}

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, static_cast<double>(std::abs(value)));
  return most;
}

// The key part of GPT-2's attention bias has a true gradient of zero (softmax does not see it), which Adam
// turns into noise.
bool is_key_bias(const ModelConfig& config, const Parameter& parameter, size_t element) {
  const size_t c = static_cast<size_t>(config.num_heads * config.head_size);
  return parameter.name.ends_with("query_key_value.bias") && element >= c &&
         element < c + static_cast<size_t>(config.num_kv_heads * config.head_size);
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, LossGradientsAndAdamWAreThoseOfTransformers) {
  const SafetensorsFile file(golden() / (std::string(GetParam()) + ".safetensors"));
  const ModelDescription description = describe_model(golden() / GetParam());
  const ModelConfig config = description.config;
  Arena workspace("workspace", 256u << 20), weights("weights", 64u << 20), gradients("gradients", 64u << 20),
      states("optimizer", 64u << 20), activations("activations", 256u << 20);
  const ExecContext exec{workspace, 2};
  Transformer model(config);
  ParameterBuffers buffers([&](const ParameterVisitor& visitor) { model.walk(visitor); }, DType::f32, weights,
                           &gradients);
  const LoadedModel loaded(description, DType::f32, exec);
  for (size_t i = 0; i < buffers.slots().size(); ++i) {
    const TensorView from = loaded.parameters().slots()[i].parameter->value;
    std::copy_n(from.data<float>(), from.elements(), buffers.slots()[i].parameter->value.data<float>());
  }
  OptimizerConfig settings;
  settings.learning_rate = 1e-2;
  settings.beta1 = 0.9;
  settings.beta2 = 0.95;
  settings.epsilon = 1e-8;
  settings.weight_decay = 0.1;
  Optimizer optimizer(settings, buffers, states, {0, buffers.elements()});

  const TensorView tokens = file.view(*file.find("tokens"));
  const int32_t* ids = static_cast<const int32_t*>(tokens.raw());
  const int64_t batch = 2, length = 16, n = 32;
  std::vector<int32_t> inputs, targets, positions;
  std::vector<float> loss_weights(32, 1.0f / 32);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < length; ++t) {
      inputs.push_back(ids[b * 17 + t]);
      targets.push_back(ids[b * 17 + t + 1]);
      positions.push_back(static_cast<int32_t>(t));
    }
  }
  TokenBatch tokens_view;
  tokens_view.batch = batch;
  tokens_view.tokens = length;
  tokens_view.token_ids = {inputs.data(), DType::i32, {n}};
  tokens_view.positions = {positions.data(), DType::i32, {n}};
  tokens_view.targets = {targets.data(), DType::i32, {n}};
  tokens_view.loss_weights = {loss_weights.data(), DType::f32, {n}};

  // Logits of both rows.
  const TensorView golden_logits = file.view(*file.find("logits"));
  const float* want_logits = static_cast<const float*>(golden_logits.raw());
  Tensor logits(DType::f32, {length, config.padded_vocabulary()});
  double scale = 0, error = 0;
  for (int64_t b = 0; b < batch; ++b) {
    Arena arena("cache", 16u << 20);
    ModelCache cache = make_cache(config, DType::f32, length, arena);
    loaded.model().forward_cached(exec, TensorView(inputs.data() + b * length, DType::i32, {length}), cache,
                                  logits);
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t v = 0; v < config.vocab_size; ++v) {
        const double want = want_logits[(b * length + t) * config.vocab_size + v];
        scale = std::max(scale, std::abs(want));
        error = std::max(error, std::abs(want - logits.data<float>()[t * config.padded_vocabulary() + v]));
      }
    }
  }
  EXPECT_LT(error / scale, 5e-6);  // transformers itself comes to 8e-7 in fp32

  Saved saved(activations);
  const float* want_losses = static_cast<const float*>(file.view(*file.find("adamw_losses")).raw());
  std::vector<float> losses(32);
  for (int step = 1; step <= 10; ++step) {
    buffers.forget_gradients();
    loss_and_gradient(model, Pass{exec, tokens_view, saved}, DType::f32,
                      TensorView(losses.data(), DType::f32, {n}));
    double loss = 0;
    for (const float value : losses) loss += value / 32;
    EXPECT_NEAR(loss, want_losses[step - 1], 3e-6 * want_losses[step - 1]) << "step " << step;
    if (step == 1) {
      for (const ParameterSlot& slot : buffers.slots()) {
        const auto want = expected_values(file, config, *slot.parameter, "gradients/");
        ASSERT_FALSE(want.empty()) << slot.parameter->name;
        const float* got = slot.parameter->gradient.data<float>();
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], 1e-5 * largest(want)) << slot.parameter->name << "[" << i << "]";
        }
      }
    }
    optimizer.step(exec, settings.learning_rate, step, 1.0);
  }
  for (const ParameterSlot& slot : buffers.slots()) {
    const auto want = expected_values(file, config, *slot.parameter, "final/");
    ASSERT_FALSE(want.empty()) << slot.parameter->name;
    const float* got = slot.parameter->value.data<float>();
    for (size_t i = 0; i < want.size(); ++i) {
      if (is_key_bias(config, *slot.parameter, i)) continue;
      ASSERT_NEAR(got[i], want[i], 1e-4 * largest(want)) << slot.parameter->name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Golden, ::testing::Values("gpt2_tiny", "llama_tiny"));

}  // namespace
}  // namespace megalith
