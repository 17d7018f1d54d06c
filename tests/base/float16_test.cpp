#include "megalith/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace megalith {
namespace {

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f)), 1.0f);
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1p-8f)), 1.0f);              // tie to even
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1.8p-8f)), 1.0f + 0x1p-7f);  // above the tie
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1.8p-7f)), 1.0f + 0x1p-6f);  // tie to even, upwards
  EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(BFloat16, EveryValueSurvivesTheWayThroughFp32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (!std::isnan(wide)) {
      ASSERT_EQ(BFloat16(wide).bits, value.bits);
    }
  }
}

TEST(Float16, EveryValueSurvivesTheWayThroughFp32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (!std::isnan(wide)) {
      ASSERT_EQ(Float16(wide).bits, value.bits);
    }
  }
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520.0f))));
  EXPECT_EQ(static_cast<float>(Float16(65519.0f)), 65504.0f);
}

}  // namespace
}  // namespace megalith
