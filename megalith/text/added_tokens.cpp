#include "megalith/text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "megalith/base/utf8.h"
#include "megalith/text/character_properties.h"

namespace megalith {

namespace {

// Start of the last character of text[0, end). Bytes that are no UTF-8 count one by one.
size_t character_before(std::string_view text, size_t end) {
  const size_t lowest = end >= 4 ? end - 4 : 0;
  for (size_t at = end - 1;; --at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) {
      return is_valid_utf8(text.substr(at, end - at)) ? at : end - 1;
    }
    if (at == lowest) return end - 1;
  }
}

// The character that begins at `at`; empty when its bytes are no UTF-8.
std::string_view character_at(std::string_view text, size_t at) {
  const size_t length = std::min<size_t>(4, text.size() - at);
  for (size_t n = 1; n <= length; ++n) {
    if (is_valid_utf8(text.substr(at, n))) return text.substr(at, n);
  }
  return {};
}

bool is_space(std::string_view character) {
  if (character.empty() || !is_valid_utf8(character)) return false;
  size_t offset = 0;
  return is_white_space(next_code_point(character, offset));
}

bool is_word(std::string_view character) {
  if (character.empty() || !is_valid_utf8(character)) return false;
  size_t offset = 0;
  return is_word_character(next_code_point(character, offset));
}

}  // namespace

void AddedTokenFinder::Texts::insert(std::string_view text, size_t token) {
  trie_.insert(text, static_cast<int32_t>(token));
  const auto first = static_cast<unsigned char>(text[0]);
  if (!first_[first]) {
    first_[first] = true;
    ++distinct_first_;
    only_first_ = first;
  }
}

int64_t AddedTokenFinder::Texts::longest(std::string_view text, size_t at) const {
  int64_t best = -1;
  uint32_t node = 0;
  for (; at < text.size(); ++at) {
    node = trie_.child(node, text[at]);
    if (node == 0) break;
    if (trie_.value(node) >= 0) best = trie_.value(node);
  }
  return best;
}

size_t AddedTokenFinder::Texts::candidate(std::string_view text, size_t at) const {
  if (distinct_first_ == 1) {
    const void* found =
        at < text.size() ? std::memchr(text.data() + at, only_first_, text.size() - at) : nullptr;
    return found == nullptr ? text.size()
                            : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  }
  while (at < text.size() && !first_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens) : tokens_(tokens) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const size_t normalized = tokens_[i].normalized ? 1 : 0;
    tries_[1][normalized].insert(tokens_[i].content, i);
    any_ = true;
    if (!tokens_[i].special) {
      tries_[0][normalized].insert(tokens_[i].content, i);
      any_plain_ = true;
    }
  }
}

void AddedTokenFinder::split_part(std::string_view text, Part part, const Texts& texts,
                                  std::vector<Part>& parts) const {
  const std::string_view here = text.substr(part.begin, part.end - part.begin);
  size_t done = 0;
  for (size_t at = texts.candidate(here, 0); at < here.size(); at = texts.candidate(here, at)) {
    const int64_t found = texts.longest(here, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at;
    size_t end = at + token.content.size();
    at = end;
    if (token.single_word) {
      const bool word_before = begin > 0 && is_word(here.substr(character_before(here, begin),
                                                                begin - character_before(here, begin)));
      const bool word_after = end < here.size() && is_word(character_at(here, end));
      if (word_before || word_after) continue;
    }
    if (token.lstrip) {
      while (begin > done) {
        const size_t before = character_before(here, begin);
        if (before < done || !is_space(here.substr(before, begin - before))) break;
        begin = before;
      }
    }
    if (token.rstrip) {
      while (end < here.size()) {
        const std::string_view after = character_at(here, end);
        if (!is_space(after)) break;
        end += after.size();
      }
      at = end;
    }
    if (done < begin) parts.push_back({part.begin + done, part.begin + begin, -1});
    parts.push_back({part.begin + begin, part.begin + end, token.id});
    done = end;
  }
  if (done < here.size()) parts.push_back({part.begin + done, part.end, -1});
}

void AddedTokenFinder::split_raw(std::string_view text, bool special, std::vector<Part>& parts) const {
  parts.clear();
  if (text.empty()) return;
  const Texts& raw = tries_[special ? 1 : 0][0];
  if (raw.empty()) {
    parts.push_back({0, text.size(), -1});
  } else {
    split_part(text, {0, text.size(), -1}, raw, parts);
  }
}

void AddedTokenFinder::split_normalized(std::string_view text, bool special, std::vector<Part>& parts) const {
  parts.clear();
  if (!text.empty()) split_part(text, {0, text.size(), -1}, tries_[special ? 1 : 0][1], parts);
}

void AddedTokenFinder::split(std::string_view text, bool special, std::vector<Part>& parts) const {
  split_raw(text, special, parts);
  if (!any_normalized(special)) return;
  std::vector<Part> first;
  first.swap(parts);
  for (const Part& part : first) {
    if (part.id >= 0) {
      parts.push_back(part);
    } else {
      split_part(text, part, tries_[special ? 1 : 0][1], parts);
    }
  }
}

}  // namespace megalith
