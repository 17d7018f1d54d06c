// Rotary scalings against transformers: numbers of tests/golden/make_rope_frequencies.py.
#include "megalith/nn/rope_frequencies.h"

#include <gtest/gtest.h>

#include "megalith/nn/alibi.h"

namespace megalith {
namespace {

struct Golden {
  RopeScaling scaling;
  int64_t length;
  double magnitude;
  std::vector<double> every_third;
};

TEST(RopeFrequencies, AreThoseOfTransformers) {
  RopeOptions options;
  options.columns = 32;
  options.original_positions = 512;
  options.factor = 4;
  for (int i = 0; i < 16; ++i) {
    options.short_factors.push_back(1 + 0.1 * i);
    options.long_factors.push_back(1 + 0.5 * i);
  }
  RopeOptions by_eight = options, all_keys = options;
  by_eight.factor = 8;
  all_keys.beta_fast = 16;
  all_keys.beta_slow = 2;
  all_keys.attention_factor = 0.7;
  using enum RopeScaling;
  const std::vector<std::pair<RopeOptions, Golden>> cases = {
      {options, {none, 2000, 1, {1, 0.1778279, 0.03162278, 0.005623413, 0.001, 0.0001778279}}},
      {options, {linear, 512, 1, {0.25, 0.04445698, 0.007905695, 0.001405853, 0.00025, 4.445699e-05}}},
      {options, {linear, 2000, 1, {0.25, 0.04445698, 0.007905695, 0.001405853, 0.00025, 4.445699e-05}}},
      {options, {dynamic, 512, 1, {1, 0.1778279, 0.03162278, 0.005623413, 0.001, 0.0001778279}}},
      {options, {dynamic, 2000, 1, {1, 0.1070912, 0.01146852, 0.001228178, 0.000131527, 1.408538e-05}}},
      {options, {yarn, 2000, 1.138629, {1, 0.1397219, 0.014682, 0.001405853, 0.00025, 4.445699e-05}}},
      {all_keys, {yarn, 512, 0.7, {1, 0.1511537, 0.01264911, 0.001405853, 0.00025, 4.445699e-05}}},
      {by_eight, {llama3, 2000, 1, {1, 0.1778279, 0.01849668, 0.0007029267, 0.000125, 2.222849e-05}}},
      {options,
       {longrope, 512, 1.105542, {1, 0.1367907, 0.01976424, 0.002959691, 0.0004545455, 7.113117e-05}}},
      {options,
       {longrope, 2000, 1.105542, {1, 0.07113118, 0.007905695, 0.001022439, 0.0001428571, 2.092093e-05}}},
  };
  Arena arena("workspace", 1 << 20);
  const ExecContext exec{arena};
  for (auto [settings, want] : cases) {
    settings.scaling = want.scaling;
    const RopeFrequencies frequencies(settings);
    const std::string what =
        std::to_string(static_cast<int>(want.scaling)) + " at " + std::to_string(want.length);
    const RopeAngles angles = frequencies.angles(exec, want.length);
    ASSERT_EQ(angles.inverse_frequency.elements(), 16) << what;
    EXPECT_NEAR(angles.magnitude, want.magnitude, 1e-6) << what;
    for (size_t i = 0; i < want.every_third.size(); ++i) {
      // transformers computes in fp32.
      EXPECT_NEAR(angles.inverse_frequency.data<float>()[3 * i] / want.every_third[i], 1, 1e-6)
          << what << ", " << i;
    }
  }
}

TEST(Alibi, SlopesAreThoseOfThePaper) {
  EXPECT_EQ(alibi_slopes(8),
            (std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f}));
  // Four heads, then the first and third of eight.
  EXPECT_EQ(alibi_slopes(6), (std::vector<float>{0.25f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0.5f, 0.125f}));
}

}  // namespace
}  // namespace megalith
