// Counts words exactly: a hash table from bytes to 64-bit counts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace megalith {

class WordCounter {
 public:
  WordCounter();
  /// Adds `count` to a word's count. Words have at most 2^32 - 1 bytes.
  void add(std::string_view word, int64_t count);
  size_t size() const { return entries_.size(); }
  std::string_view word(size_t index) const {
    return {block_.data() + entries_[index].offset, entries_[index].length};
  }
  int64_t count(size_t index) const { return entries_[index].count; }
  /// Adds all words of `other`.
  void add_all(const WordCounter& other);

 private:
  struct Entry {
    uint64_t offset;
    uint64_t hash;
    int64_t count;
    uint32_t length;
  };
  void grow();

  std::vector<char> block_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // Index + 1 of an entry, 0 for none.
};

}  // namespace megalith
