#include "megalith/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "megalith/tensor/arena.h"
#include "megalith/tensor/profiler.h"

namespace megalith {
namespace {

TEST(TensorView, SlicesAndReshapesShareMemory) {
  const Tensor tensor(DType::f32, {4, 3});
  tensor.data<float>()[7] = 5;
  const TensorView row = tensor.view().slice(2, 3);
  EXPECT_EQ(row.shape(), (Shape{1, 3}));
  EXPECT_EQ(row.data<float>()[1], 5);
  EXPECT_EQ(tensor.view().reshape({2, 6}).shape(), (Shape{2, 6}));
  EXPECT_THROW(tensor.view().reshape({5}), Error);
  EXPECT_THROW(tensor.view().slice(3, 5), Error);
  EXPECT_THROW(tensor.data<int32_t>(), Error);
}

TEST(TensorView, ExpectNamesOperationTensorAndShapes) {
  const Tensor tensor(DType::f32, {4, 3});
  try {
    expect(tensor, DType::bf16, {4, 2}, "matmul", "w");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "matmul: w is F32 [4, 3]; expected BF16 [4, 2]");
  }
  EXPECT_THROW(expect(TensorView(), DType::f32, {1}, "matmul", "w"), Error);
}

TEST(Shape, RefusesNegativeAndTooManyDimensions) {
  EXPECT_THROW((Shape{-1}), Error);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), Error);
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ((Shape{3, 0, 2}).elements(), 0);
}

TEST(Arena, IsAStackWithAHighWaterMark) {
  Arena arena("test", 8u << 20);
  const TensorView a = arena.allocate(DType::f32, {10});
  EXPECT_EQ(reinterpret_cast<size_t>(a.raw()) % 64, 0u);
  EXPECT_EQ(arena.used(), 64u);
  {
    ArenaScope scope(arena);
    arena.allocate(1000);
    EXPECT_EQ(arena.used(), 64u + 1024u);
  }
  EXPECT_EQ(arena.used(), 64u);
  EXPECT_EQ(arena.high_water(), 64u + 1024u);
  arena.reset_high_water();
  EXPECT_EQ(arena.high_water(), 64u);
}

TEST(Arena, RefusesMoreThanItsCapacityAndStaysUsable) {
  Arena arena("test", 4u << 20);
  EXPECT_THROW(arena.allocate(size_t{1} << 40), Error);
  EXPECT_THROW(arena.allocate(~size_t{0} - 10), Error);
  const size_t mark = arena.mark();
  std::memset(arena.allocate(4u << 20), 1, 4u << 20);
  EXPECT_THROW(arena.allocate(64), Error);
  arena.rewind(mark);
  EXPECT_NO_THROW(arena.allocate(64));
}

TEST(Profiler, AddsUpByPart) {
  Profiler profiler;
  profiler.add("matmul", 1, 10);
  profiler.add("norm", 2, 0);
  profiler.add("matmul", 3, 30);
  ASSERT_EQ(profiler.entries().size(), 2u);
  EXPECT_EQ(profiler.entries()[0].seconds, 4);
  EXPECT_EQ(profiler.entries()[0].calls, 2u);
  EXPECT_EQ(profiler.entries()[0].flops, 40);
}

}  // namespace
}  // namespace megalith
