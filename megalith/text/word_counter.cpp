#include "megalith/text/word_counter.h"

#include <cstring>
#include <limits>

#include "megalith/base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace megalith {

WordCounter::WordCounter() : slots_(size_t{1} << 12) {}

void WordCounter::add(std::string_view word, int64_t count) {
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && entry.length == word.size() &&
        std::memcmp(block_.data() + entry.offset, word.data(), word.size()) == 0) {
      entry.count += count;
      return;
    }
  }
  check(entries_.size() + 1 < std::numeric_limits<uint32_t>::max(), "more than 2^32 different words");
  entries_.push_back({block_.size(), hash, count, static_cast<uint32_t>(word.size())});
  block_.insert(block_.end(), word.begin(), word.end());
  slots_[slot] = static_cast<uint32_t>(entries_.size());
  if (entries_.size() * 2 > slots_.size()) grow();
}

void WordCounter::grow() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

void WordCounter::add_all(const WordCounter& other) {
  for (size_t i = 0; i < other.size(); ++i) add(other.word(i), other.count(i));
}

}  // namespace megalith
