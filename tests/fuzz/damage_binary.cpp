// Damage to binary files.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/damage.h"

namespace megalith::fuzz {

namespace {

void set_number(std::string& bytes, size_t at, uint64_t value, size_t width) {
  if (at + width > bytes.size()) return;
  std::memcpy(bytes.data() + at, &value, width);
}

// Protocol buffers: fields at the top, [begin, end).
std::vector<std::pair<size_t, size_t>> find_fields(const std::string& bytes) {
  std::vector<std::pair<size_t, size_t>> fields;
  for (size_t at = 0; at + 2 < bytes.size();) {
    const size_t begin = at;
    if ((bytes[at++] & 7) != 2) break;
    uint64_t length = 0;
    for (int shift = 0; at < bytes.size() && shift < 28; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      length |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) break;
    }
    at = std::min<size_t>(bytes.size(), at + length);
    fields.emplace_back(begin, at);
  }
  return fields;
}

std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
  return text + static_cast<char>(value);
}

}  // namespace

uint64_t number_at(const std::string& bytes, size_t at, size_t width) {
  uint64_t value = 0;
  if (at + width <= bytes.size()) std::memcpy(&value, bytes.data() + at, width);
  return value;
}

void damage_bytes(std::string& bytes, const std::vector<uint32_t>& marks, const std::string& other,
                  Random& random) {
  if (bytes.empty()) return;
  size_t at = random.below(bytes.size());
  if (random.one_in(2)) at = random.below(std::min<size_t>(bytes.size(), 256));  // Headers come first.
  if (!marks.empty() && !random.one_in(3)) at = std::min<size_t>(random.of(marks), bytes.size() - 1);
  constexpr size_t kWidths[] = {1, 2, 4, 8};
  const size_t width = random.of(kWidths);
  switch (random.below(9)) {
    case 0:
      bytes[at] = static_cast<char>(random.word());
      break;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
      break;
    case 2:
    case 3:
      set_number(bytes, at, random.of(odd_numbers()), width);
      break;
    case 4:
      set_number(bytes, at, number_at(bytes, at, width) + random.below(9) - 4, width);
      break;
    case 5:
      if (random.one_in(3)) {
        bytes.resize(at);
      } else {
        bytes.erase(at, 1 + random.below(random.one_in(3) ? 64 : 8));
      }
      break;
    case 6:
      bytes.insert(at, bytes.substr(random.below(bytes.size()), 1 + random.below(64)));
      break;
    case 7:
      bytes.replace(at, 1 + random.below(32), other.substr(random.below(other.size() + 1), random.below(64)));
      break;
    default:
      if (random.one_in(2)) {
        bytes.append(1 + random.below(64), static_cast<char>(random.word()));
      } else {
        bytes.insert(at, random.of(odd_texts()).substr(0, 300));
      }
  }
}

std::vector<uint32_t> find_marks(const std::string& bytes) {
  std::vector<uint32_t> marks;
  for (size_t at = 0; at + 9 < bytes.size(); ++at) {
    const uint64_t length = number_at(bytes, at, 8);
    if (length < 3 || length > 64 || at + 8 + length > bytes.size()) continue;
    const std::string_view text = std::string_view(bytes).substr(at + 8, length);
    if (!std::all_of(text.begin(), text.end(), [](char c) { return c > 32 && c < 127; })) continue;
    // The vocabulary is long, and one of its texts is like the others.
    if (text.find('.') == std::string_view::npos && at % 16 != 0) continue;
    for (const size_t place : {at, at + 8, at + 8 + length, at + 12 + length, at + 16 + length,
                               at + 20 + length, at + 24 + length, at + 28 + length, at + 36 + length}) {
      marks.push_back(static_cast<uint32_t>(place));
    }
  }
  return marks;
}

void damage_protobuf(std::string& bytes, const std::string& other, Random& random) {
  const auto fields = find_fields(bytes), theirs = find_fields(other);
  if (fields.empty() || theirs.empty() || random.one_in(4)) {
    return damage_bytes(bytes, {}, other, random);
  }
  // The last two fields say how; they are few among many pieces.
  const auto pick = [&](const auto& list) {
    const size_t last = list.size() - 1;
    return list[random.one_in(2) ? random.below(list.size()) : last - std::min(last, random.below(2))];
  };
  const auto [begin, end] = pick(fields);
  const auto [from, to] = pick(theirs);
  switch (random.below(5)) {
    case 0:
      bytes.erase(begin, end - begin);
      break;
    case 1:
      bytes.insert(begin, other.substr(from, to - from));
      break;
    case 2:
      bytes.replace(begin, end - begin, other.substr(from, to - from));
      break;
    default: {  // Something inside changes, and the length with it.
      size_t data = begin + 1;
      while (data < end && static_cast<unsigned char>(bytes[data]) >= 128) ++data;
      if (data >= end) break;
      std::string inside = bytes.substr(data + 1, end - data - 1);
      if (random.one_in(3)) {
        const size_t field = 1 + random.below(60), kind = random.below(6);
        std::string value = varint(random.of(odd_numbers()));
        if (kind == 1) value.assign(8, '\x7f');
        if (kind == 5) value.assign(4, '\xff');
        if (kind == 2) value = varint(random.of(odd_texts()).size()) + random.of(odd_texts());
        inside += varint(field << 3 | kind) + value;
      } else {
        damage_bytes(inside, {}, other.substr(from, to - from), random);
      }
      bytes.replace(begin, end - begin, bytes.substr(begin, 1) + varint(inside.size()) + inside);
    }
  }
}

}  // namespace megalith::fuzz
