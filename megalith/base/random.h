// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011).
//
// A value is a pure function of (seed, stream, position): it does not depend on which rank or thread asks, in
// which order, or how often. Dropout masks, initial weights and shuffles are therefore the same under any
// layout and under recompute.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace megalith {

/// What a stream of random numbers is for; part of the key, so that uses never share numbers.
enum class RandomUse : uint32_t {
  initialization = 1,
  embedding_dropout = 2,
  attention_dropout = 3,
  hidden_dropout = 4,
  shuffle = 5,
  sampling = 6,
  token_masking = 7,
};

/// Philox4x32 with ten rounds: 128 random bits from a 128-bit counter and a 64-bit key.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Mixes two words into one (the finaliser of SplitMix64): derives keys from (seed, use), (stream, layer) and
/// so on.
inline uint64_t mix64(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/// Uniform in [0, 1) with 24 bits.
inline float unit_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24f;
}

/// One keyed stream of random words addressed by position.
class RandomStream {
 public:
  /// `index` tells streams of one use apart: a parameter's hash, a layer and step, an epoch.
  RandomStream(uint64_t seed, RandomUse use, uint64_t index)
      : key_(mix64(seed, static_cast<uint64_t>(use))), stream_(index) {}

  /// Four words at block `block`.
  std::array<uint32_t, 4> block(uint64_t block) const {
    return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                   static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                  {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
  }
  uint32_t word(uint64_t position) const { return block(position / 4)[position % 4]; }
  float uniform(uint64_t position) const { return unit_float(word(position)); }
  uint64_t word64(uint64_t position) const {
    const auto words = block(position / 2);
    const size_t at = (position % 2) * 2;
    return (uint64_t{words[at]} << 32) | words[at + 1];
  }
  /// Four standard normals (Box and Muller) at block `block`.
  std::array<float, 4> normals(uint64_t block_index) const {
    const auto words = block(block_index);
    std::array<float, 4> values{};
    for (size_t pair = 0; pair < 4; pair += 2) {
      const float radius =
          std::sqrt(-2.0f * std::log((static_cast<float>(words[pair] >> 8) + 0.5f) * 0x1.0p-24f));
      const float angle = 6.2831853f * unit_float(words[pair + 1]);
      values[pair] = radius * std::cos(angle);
      values[pair + 1] = radius * std::sin(angle);
    }
    return values;
  }
  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
  uint64_t stream_;
};

/// A sequential generator over a stream, for shuffles.
class RandomSequence {
 public:
  explicit RandomSequence(RandomStream stream, uint64_t position = 0)
      : stream_(stream), position_(position) {}
  uint64_t next() { return stream_.word64(position_++); }
  /// Uniform in [0, bound), without bias (Lemire's multiply and reject).
  uint64_t below(uint64_t bound) {
    while (true) {
      const unsigned __int128 product = static_cast<unsigned __int128>(next()) * bound;
      const uint64_t low = static_cast<uint64_t>(product);
      if (low >= (0 - bound) % bound) return static_cast<uint64_t>(product >> 64);
    }
  }

 private:
  RandomStream stream_;
  uint64_t position_;
};

}  // namespace megalith
