#include <cstring>
#include <limits>

#include "megalith/base/error.h"
#include "megalith/formats/gguf.h"

namespace megalith {

namespace {

constexpr uint64_t kAlignment = 32;

template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_text(std::string& to, std::string_view text) {
  put(to, static_cast<uint64_t>(text.size()));
  to.append(text);
}

uint64_t padding(uint64_t bytes) {
  return (kAlignment - bytes % kAlignment) % kAlignment;
}

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path) : file_(path) {}

void GgufWriter::begin_key(std::string_view key, GgufValueType type) {
  check(!header_written_, "GGUF: key \"{}\" comes after the first tensor", key);
  put_text(metadata_, key);
  put(metadata_, static_cast<uint32_t>(type));
  ++keys_;
}

void GgufWriter::add(std::string_view key, std::string_view text) {
  begin_key(key, GgufValueType::string);
  put_text(metadata_, text);
}
void GgufWriter::add(std::string_view key, uint32_t number) {
  begin_key(key, GgufValueType::u32);
  put(metadata_, number);
}
void GgufWriter::add(std::string_view key, float number) {
  begin_key(key, GgufValueType::f32);
  put(metadata_, number);
}
void GgufWriter::add(std::string_view key, bool flag) {
  begin_key(key, GgufValueType::boolean);
  put(metadata_, static_cast<uint8_t>(flag ? 1 : 0));
}
void GgufWriter::add(std::string_view key, std::span<const std::string> texts) {
  begin_key(key, GgufValueType::array);
  put(metadata_, static_cast<uint32_t>(GgufValueType::string));
  put(metadata_, static_cast<uint64_t>(texts.size()));
  for (const std::string& text : texts) put_text(metadata_, text);
}
void GgufWriter::add(std::string_view key, std::span<const int32_t> numbers) {
  begin_key(key, GgufValueType::array);
  put(metadata_, static_cast<uint32_t>(GgufValueType::i32));
  put(metadata_, static_cast<uint64_t>(numbers.size()));
  metadata_.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

void GgufWriter::add(std::string_view key, std::span<const float> numbers) {
  begin_key(key, GgufValueType::array);
  put(metadata_, static_cast<uint32_t>(GgufValueType::f32));
  put(metadata_, static_cast<uint64_t>(numbers.size()));
  metadata_.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

void GgufWriter::plan(std::string_view name, GgufType type, std::span<const int64_t> shape) {
  check(!header_written_, "GGUF: tensor \"{}\" is planned after the first was written", name);
  const GgufBlock& block = gguf_block(type);
  put_text(table_, name);
  put(table_, static_cast<uint32_t>(shape.size()));
  uint64_t elements = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    put(table_, static_cast<uint64_t>(shape[i]));
    elements *= static_cast<uint64_t>(shape[i]);
  }
  check(!shape.empty() && shape.back() % block.elements == 0,
        "GGUF: rows of \"{}\" are not whole blocks of {}", name, block.name);
  put(table_, static_cast<uint32_t>(type));
  put(table_, data_bytes_);
  const uint64_t bytes =
      elements / static_cast<uint64_t>(block.elements) * static_cast<uint64_t>(block.bytes);
  planned_.push_back({std::string(name), bytes});
  data_bytes_ += bytes + padding(bytes);
}

void GgufWriter::write_header() {
  std::string header = "GGUF";
  put(header, uint32_t{3});
  put(header, static_cast<uint64_t>(planned_.size()));
  put(header, keys_);
  header += metadata_;
  header += table_;
  header.append(padding(header.size()), '\0');
  file_.write(header);
  header_written_ = true;
}

void GgufWriter::write(std::string_view name, const void* data, uint64_t bytes) {
  if (!header_written_) write_header();
  check(next_ < planned_.size() && planned_[next_].name == name && bytes <= planned_[next_].bytes - written_,
        "GGUF: {} bytes of tensor \"{}\" do not come next in the plan", bytes, name);
  file_.write(data, bytes);
  written_ += bytes;
  if (written_ < planned_[next_].bytes) return;
  file_.write(std::string(padding(written_), '\0'));
  written_ = 0;
  ++next_;
}

void GgufWriter::finish() {
  if (!header_written_) write_header();
  check(next_ == planned_.size(), "GGUF: {} of {} tensors were written", next_, planned_.size());
  file_.sync();
  file_.close();
}

}  // namespace megalith
