#include "megalith/formats/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include "megalith/base/error.h"
#include "megalith/formats/safetensors.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

class Gguf : public ::testing::Test {
 protected:
  Gguf() : path_(fs::path(::testing::TempDir()) / fmt::format("gguf-{}.gguf", ::getpid())) {}
  ~Gguf() override { fs::remove(path_); }

  static fs::path golden(const std::string& file) {
    return fs::path(std::getenv("MEGALITH_TEST_DATA")) / "golden" / file;
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string error_of(const std::string& bytes) const {
    write(bytes);
    try {
      const GgufFile file(path_);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path path_;
};

std::vector<float> numbers(const SafetensorsFile& file, const std::string& name) {
  const auto bytes = file.bytes(*file.find(name));
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST_F(Gguf, EveryTypeHasTheBitsOfTheGgufPackage) {
  const GgufFile file(golden("gguf_types.gguf"));
  const SafetensorsFile expected(golden("gguf_types.safetensors"));
  EXPECT_EQ(file.tensors().size(), 16u);
  for (const GgufTensor& tensor : file.tensors()) {
    EXPECT_EQ(name(tensor.type), tensor.name);
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{3, 256}));
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    dequantize(tensor.type, file.bytes(tensor).data(), tensor.elements(), values.data());
    const std::vector<float> wanted = numbers(expected, tensor.name);
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(wanted[i]))
          << tensor.name << " " << i;
    }
  }
}

TEST_F(Gguf, QuantisesToTheBlocksOfTheGgufPackage) {
  const SafetensorsFile expected(golden("gguf_types.safetensors"));
  const std::vector<float> x = numbers(expected, "quantize.input");
  for (const GgufType type : {GgufType::f16, GgufType::bf16, GgufType::q8_0, GgufType::q4_0}) {
    const auto wanted = expected.bytes(*expected.find(fmt::format("quantize.{}", name(type))));
    std::vector<std::byte> blocks(wanted.size());
    quantize(type, x.data(), static_cast<int64_t>(x.size()), blocks.data());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), blocks.begin())) << name(type);
  }
  EXPECT_THROW(quantize(GgufType::q6_k, x.data(), 256, nullptr), InputError);
}

TEST_F(Gguf, EveryKindOfMetadata) {
  const GgufFile file(golden("gguf_types.gguf"));
  EXPECT_EQ(file.text("general.architecture"), "golden");
  EXPECT_EQ(file.integer("number.u8"), 200);
  EXPECT_EQ(file.integer("number.i8"), -100);
  EXPECT_EQ(file.integer("number.u16"), 60000);
  EXPECT_EQ(file.integer("number.i16"), -30000);
  EXPECT_EQ(file.integer("number.u32"), 4000000000);
  EXPECT_EQ(file.integer("number.i32"), -2000000000);
  EXPECT_EQ(file.integer("number.i64"), -(int64_t{1} << 62));
  EXPECT_THROW(file.integer("number.u64"), InputError);  // does not fit
  EXPECT_EQ(file.real("number.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(file.real("number.f64"), 0.1);
  EXPECT_EQ(file.boolean("flag"), true);
  EXPECT_EQ(file.text("text"), "Grüße, 世界");
  const auto texts = file.strings("list.text");
  ASSERT_TRUE(texts && texts->size() == 3);
  EXPECT_EQ((*texts)[2], "ž");
  EXPECT_EQ(file.integers("list.i32"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(describe(*file.find("list.f32")), "2 float32 [0.5, -1.5]");
  EXPECT_EQ(describe(*file.find("list.list")), "2 array [2 int32 [1, 2], 1 int32 [3]]");
  EXPECT_FALSE(file.text("absent").has_value());
  EXPECT_THROW(file.text("flag"), InputError);
  EXPECT_THROW(file.integers("list.text"), InputError);
}

// What is written is read the same: values, tables and bytes.
TEST_F(Gguf, WhatIsWrittenIsRead) {
  const GgufFile original(golden("gguf_types.gguf"));
  const std::vector<std::string> texts = {"a", "", "ž"};
  const std::vector<int32_t> numbers = {1, -2, 3};
  {
    GgufWriter writer(path_);
    writer.add("text", "Grüße, 世界");
    writer.add("number.u32", uint32_t{4000000000});
    writer.add("number.f32", 0.1f);
    writer.add("flag", true);
    writer.add("list.text", std::span<const std::string>(texts));
    writer.add("list.i32", std::span<const int32_t>(numbers));
    for (const GgufTensor& tensor : original.tensors()) writer.plan(tensor.name, tensor.type, tensor.shape);
    for (const GgufTensor& tensor : original.tensors()) {
      writer.write(tensor.name, original.bytes(tensor).data(), tensor.bytes);
    }
    writer.finish();
  }
  EXPECT_TRUE(is_gguf(path_));
  const GgufFile copy(path_);
  ASSERT_EQ(copy.metadata().size(), 6u);
  for (const auto& [key, value] : copy.metadata()) {
    EXPECT_EQ(describe(value), describe(*original.find(key))) << key;
  }
  ASSERT_EQ(copy.tensors().size(), original.tensors().size());
  for (const GgufTensor& tensor : original.tensors()) {
    const GgufTensor* found = copy.find_tensor(tensor.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->shape, tensor.shape);
    const auto a = copy.bytes(*found), b = original.bytes(tensor);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

// Builds files by hand, right or wrong.
struct Bytes {
  std::string data;
  template <class T>
  Bytes& number(T value) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& text(const std::string& value) {
    number(static_cast<uint64_t>(value.size()));
    data += value;
    return *this;
  }
  Bytes& header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    data += "GGUF";
    return number(version).number(tensors).number(keys);
  }
  Bytes& tensor(const std::string& name, std::vector<uint64_t> dimensions, uint32_t type, uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t size : dimensions) number(size);
    return number(type).number(offset);
  }
  Bytes& data_of(size_t bytes) {
    data.append((32 - data.size() % 32) % 32 + bytes, '\0');
    return *this;
  }
};

TEST_F(Gguf, FaultsAreNamed) {
  const auto expect = [&](const Bytes& bytes, const std::string& text) {
    const std::string error = error_of(bytes.data);
    EXPECT_NE(error.find(text), std::string::npos) << error << "\nwanted: " << text;
  };
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  expect(Bytes{"GGU"}, "cut?");
  expect(Bytes{"GGML    "}, "does not begin with");
  expect(Bytes{}.header(0, 0, 1), "version 1");
  expect(Bytes{}.header(0, 0, 0x03000000), "big-endian");
  expect(Bytes{}.header(kHuge, 0), "tensors do not fit");
  expect(Bytes{}.header(0, kHuge), "keys do not fit");
  expect(Bytes{}.header(0, 1).number(kHuge).number(kHuge), "cut?");
  expect(Bytes{}.header(0, 1).text("key").number(uint32_t{13}).number(uint64_t{0}), "13 is no type");
  expect(Bytes{}.header(0, 1).text("key").number(uint32_t{9}).number(uint32_t{0}).number(kHuge),
         "elements do not fit");
  expect(Bytes{}.header(0, 1).text("key").number(uint32_t{9}).number(uint32_t{8}).number(kHuge),
         "elements do not fit");
  expect(Bytes{}.header(0, 1).text("flag").number(uint32_t{7}).number(uint8_t{2}), "neither true");
  Bytes nested = Bytes{}.header(0, 1).text("key").number(uint32_t{9});
  for (int i = 0; i < 100; ++i) nested.number(uint32_t{9}).number(uint64_t{1});
  expect(nested, "nested more than");
  Bytes twice = Bytes{}.header(0, 2);
  for (int i = 0; i < 2; ++i) twice.text("key").number(uint32_t{4}).number(uint32_t{1});
  expect(twice, "\"key\" appears twice");
  expect(Bytes{}.header(0, 1).text("general.alignment").number(uint32_t{4}).number(uint32_t{24}),
         "not a power of two");
  expect(Bytes{}.header(0, 1).text("general.alignment").number(uint32_t{4}).number(uint32_t{0}),
         "not a power of two");
  expect(Bytes{}.header(1, 0).tensor("x", {1, 1, 1, 1, 1}, 0, 0).data_of(64), "5 dimensions");
  expect(Bytes{}.header(1, 0).tensor("x", {4, 0}, 0, 0).data_of(64), "a dimension is zero");
  expect(Bytes{}.header(1, 0).tensor("x", {0, kHuge, kHuge}, 0, 0).data_of(64), "a dimension is zero");
  expect(Bytes{}.header(1, 0).tensor("x", {32}, 99, 0).data_of(64), "type 99");
  expect(Bytes{}.header(1, 0).tensor("x", {31}, 2, 0).data_of(64), "not whole blocks of Q4_0");
  expect(Bytes{}.header(1, 0).tensor("x", {kHuge, 4}, 0, 0).data_of(64), "overflows");
  expect(Bytes{}.header(1, 0).tensor("x", {kHuge - 1}, 28, 0).data_of(64), "overflows");
  expect(Bytes{}.header(1, 0).tensor("x", {16}, 0, 8).data_of(128), "not a multiple of the alignment");
  expect(Bytes{}.header(1, 0).tensor("x", {17}, 0, 0).data_of(64), "outside");
  expect(Bytes{}.header(1, 0).tensor("x", {16}, 0, kHuge).data_of(64), "outside");
  expect(Bytes{}.header(2, 0).tensor("x", {16}, 0, 0).tensor("x", {16}, 0, 64).data_of(128),
         "\"x\" appears twice");
  expect(Bytes{}.header(2, 0).tensor("x", {16}, 0, 0).tensor("y", {16}, 0, 32).data_of(128),
         "\"x\" and \"y\" overlap");
  expect(Bytes{}.header(2, 0).tensor("x", {16}, 0, 0).tensor("y", {8}, 0, 64).data_of(96), "no error");
  expect(Bytes{}.header(0, 0, 2), "no error");
}

TEST_F(Gguf, MutatedFilesGiveInputErrorsOnly) {
  const std::string good = read_file(golden("gguf_types.gguf")).substr(0, 3000);
  std::mt19937 generator(11);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (unsigned edits = 1 + generator() % 4; edits > 0; --edits) {
      const size_t at = generator() % bytes.size();
      switch (generator() % 3) {
        case 0:
          bytes[at] = static_cast<char>(generator());
          break;
        case 1:
          bytes[at] = static_cast<char>(0xff);
          break;
        default:
          bytes.erase(at, 1 + generator() % 9);
      }
    }
    error_of(bytes);  // anything but an InputError ends the test
  }
}

}  // namespace
}  // namespace megalith
