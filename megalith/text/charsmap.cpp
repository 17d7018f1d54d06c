#include "megalith/text/charsmap.h"

#include <cstring>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"

namespace megalith {

Charsmap::Charsmap(std::string_view binary, std::string_view element) {
  if (binary.empty()) return;
  uint32_t trie_bytes = 0;
  check_input(binary.size() >= sizeof(trie_bytes), "{}: the character map is too short", element);
  std::memcpy(&trie_bytes, binary.data(), sizeof(trie_bytes));
  binary.remove_prefix(sizeof(trie_bytes));
  check_input(trie_bytes <= binary.size() && trie_bytes % 4 == 0 && trie_bytes > 0,
              "{}: the character map has {} bytes, which cannot hold its trie of {}", element, binary.size(),
              trie_bytes);
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), binary.data(), trie_bytes);
  replacements_ = binary.substr(trie_bytes);
  // What follows relies on whole characters; find() sees to it that a replacement begins with one.
  check_input(is_valid_utf8(replacements_), "{}: the character map holds bytes that are not valid UTF-8",
              element);
  // Every replacement ends somewhere.
  if (replacements_.empty() || replacements_.back() != '\0') replacements_.push_back('\0');
}

namespace {

// Units as darts.h 0.32 lays them out.
size_t offset(uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
bool is_labelled(uint32_t unit, unsigned char byte) {
  return (unit & ((1u << 31) | 0xFF)) == byte;
}

}  // namespace

bool Charsmap::goes_on_after(char first) const {
  if (units_.empty()) return false;
  const auto byte = static_cast<unsigned char>(first);
  size_t node = offset(units_[0]) ^ byte;
  if (node >= units_.size() || !is_labelled(units_[node], byte)) return false;
  node ^= offset(units_[node]);
  for (unsigned next = 1; next < 256; ++next) {
    const size_t child = node ^ next;
    if (child < units_.size() && is_labelled(units_[child], static_cast<unsigned char>(next))) return true;
  }
  return false;
}

Charsmap::Match Charsmap::find(std::string_view text, bool first) const {
  Match match;
  if (units_.empty()) return match;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if (!is_labelled(unit, byte)) break;
    node ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (node >= units_.size()) break;
    const uint32_t value = units_[node] & 0x7FFFFFFFu;
    if (value >= replacements_.size() || (replacements_[value] & 0xC0) == 0x80) break;
    match.length = i + 1;
    match.replacement = std::string_view(replacements_.data() + value);
    if (first) break;
  }
  return match;
}

}  // namespace megalith
