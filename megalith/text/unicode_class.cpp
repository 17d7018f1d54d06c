#include "megalith/text/unicode_class.h"

#include <string>
#include <utility>
#include <vector>

#include "megalith/base/utf8.h"
#include "megalith/text/regex.h"

namespace megalith {

namespace {

constexpr uint32_t kCodePoints = 0x110000;

std::vector<uint8_t> make_table() {
  // One text that holds every character in order; each run of a class is found as one match.
  std::string all;
  all.reserve(4 * kCodePoints);
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    if (c < 0xD800 || c > 0xDFFF) append_utf8(all, c);
  }
  std::vector<uint8_t> table(kCodePoints, static_cast<uint8_t>(CharacterClass::other));
  const std::pair<const char*, CharacterClass> classes[] = {{"\\p{L}+", CharacterClass::letter},
                                                            {"\\p{N}+", CharacterClass::number},
                                                            {"\\s+", CharacterClass::space}};
  for (const auto& [pattern, value] : classes) {
    const Regex regex(pattern, "character class");
    size_t begin = 0, end = 0;
    while (regex.find(all, end, begin, end)) {
      for (size_t offset = begin; offset < end;) {
        table[next_code_point(all, offset)] = static_cast<uint8_t>(value);
      }
    }
  }
  return table;
}

}  // namespace

const uint8_t* unicode_class_table() {
  static const std::vector<uint8_t> table = make_table();
  return table.data();
}

}  // namespace megalith
