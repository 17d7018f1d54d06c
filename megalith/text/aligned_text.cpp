#include "megalith/text/aligned_text.h"

#include "megalith/base/utf8.h"

namespace megalith {

void AlignedText::assign(std::string_view text, bool with_origins) {
  bytes.assign(text);
  origins.clear();
  aligned = with_origins;
  if (!aligned) return;
  origins.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code_point(text, at);
    origins.insert(origins.end(), at - begin, {begin, at});
  }
}

void AlignedText::put(uint32_t code_point, const AlignedText& source, size_t at) {
  const size_t before = bytes.size();
  append_utf8(bytes, code_point);
  if (aligned) origins.insert(origins.end(), bytes.size() - before, source.origins[at]);
}

OriginalRange AlignedText::origin_of(size_t begin, size_t end) const {
  if (begin < end) return {origins[begin].begin, origins[end - 1].end};
  const size_t at = begin > 0 ? origins[begin - 1].end : 0;
  return {at, at};
}

}  // namespace megalith
