#include "megalith/train/event_file.h"

#include <array>
#include <string>

namespace megalith {

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}

// CRC-32C (Castagnoli), rotated and offset as TFRecord asks.
uint32_t masked_crc(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_bytes(std::string& out, char tag, std::string_view bytes) {
  out.push_back(tag);
  append_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& path, double wall_time) : file_(path) {
  std::string event;
  event.push_back(0x09);  // wall_time
  append_raw(event, wall_time);
  append_bytes(event, 0x1A, "brain.Event:2");  // file_version
  record(event);
  flush();
}

void EventFile::scalar(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string entry;
  append_bytes(entry, 0x0A, tag);
  entry.push_back(0x15);  // simple_value
  append_raw(entry, value);
  std::string summary;
  append_bytes(summary, 0x0A, entry);
  std::string event;
  event.push_back(0x09);
  append_raw(event, wall_time);
  if (step != 0) {
    event.push_back(0x10);
    append_varint(event, static_cast<uint64_t>(step));
  }
  append_bytes(event, 0x2A, summary);
  record(event);
}

void EventFile::record(std::string_view payload) {
  std::string frame;
  append_raw(frame, static_cast<uint64_t>(payload.size()));
  append_raw(frame, masked_crc(frame));
  frame.append(payload);
  append_raw(frame, masked_crc(payload));
  file_.write(frame);
}

}  // namespace megalith
