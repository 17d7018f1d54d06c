// Remembers the ids of short pieces: text repeats its words.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace megalith {

/// A table with one place for each hash value; a new piece takes the place of the old one. Not for several
/// threads at once.
class WordCache {
 public:
  static constexpr size_t kMaximumBytes = 16;
  static constexpr size_t kMaximumIds = 11;

  /// A piece as two words, zero behind its end. Its length is kept beside it, so zero bytes are told apart.
  struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    uint8_t length = 0;
  };

  struct alignas(64) Slot {
    uint64_t low = 0;
    uint64_t high = 0;
    int32_t ids[kMaximumIds] = {};
    uint8_t length = 0;  // 0 means empty.
    uint8_t count = 0;

    bool holds(const Key& key) const { return low == key.low && high == key.high && length == key.length; }
  };

  WordCache() : slots_(kSlots) {}

  /// `piece` has 1 to 16 bytes; `readable` is how many bytes from its begin on may be read.
  static Key make_key(std::string_view piece, size_t readable) {
    uint64_t words[2] = {0, 0};
    Key key;
    key.length = static_cast<uint8_t>(piece.size());
    if (readable >= kMaximumBytes) [[likely]] {
      std::memcpy(words, piece.data(), kMaximumBytes);
      if (piece.size() < 8) {
        key.low = words[0] & ((uint64_t{1} << (8 * piece.size())) - 1);
      } else {
        key.low = words[0];
        const size_t rest = piece.size() - 8;
        key.high = rest == 8 ? words[1] : words[1] & ((uint64_t{1} << (8 * rest)) - 1);
      }
    } else {
      std::memcpy(words, piece.data(), piece.size());
      key.low = words[0];
      key.high = words[1];
    }
    return key;
  }

  /// The place of a key, whoever holds it now.
  Slot& slot(const Key& key) {
    uint64_t hash = (key.low ^ (key.length * 0xA24BAED4963EE407ull)) * 0x9E3779B97F4A7C15ull;
    hash ^= (std::rotl(key.high, 32) ^ (hash >> 29)) * 0xD6E8FEB86659FD93ull;
    return slots_[(hash ^ (hash >> 32)) & (kSlots - 1)];
  }

 private:
  static_assert(sizeof(Slot) == 64);
  static_assert(std::endian::native == std::endian::little);
  static constexpr size_t kSlots = size_t{1} << 15;  // 2 MiB: a level-two cache.
  std::vector<Slot> slots_;
};

}  // namespace megalith
