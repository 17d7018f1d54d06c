// A text that has been changed, and for each of its bytes the part of the original that it comes from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// Bytes [begin, end) of an original text.
struct OriginalRange {
  size_t begin = 0;
  size_t end = 0;
};

/// The origins are kept only when asked for: encoding without offsets needs none.
class AlignedText {
 public:
  /// Becomes a copy of `text` (valid UTF-8), each character its own origin.
  void assign(std::string_view text, bool aligned);
  /// Becomes empty; `aligned` as in `like`.
  void clear_like(const AlignedText& like) {
    bytes.clear();
    origins.clear();
    aligned = like.aligned;
  }
  /// Appends bytes [begin, end) of `source` with their origins.
  void copy(const AlignedText& source, size_t begin, size_t end) {
    bytes.append(source.bytes, begin, end - begin);
    if (aligned) {
      origins.insert(origins.end(), source.origins.begin() + static_cast<std::ptrdiff_t>(begin),
                     source.origins.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  /// Appends `text`, which stands for what byte `at` of `source` stands for.
  void put(std::string_view text, const AlignedText& source, size_t at) {
    bytes.append(text);
    if (aligned) origins.insert(origins.end(), text.size(), source.origins[at]);
  }
  /// Appends `text`, which stands for the place before the original text.
  void put_before(std::string_view text) {
    bytes.append(text);
    if (aligned) origins.insert(origins.end(), text.size(), {0, 0});
  }
  void put(uint32_t code_point, const AlignedText& source, size_t at);
  void swap(AlignedText& other) noexcept {
    bytes.swap(other.bytes);
    origins.swap(other.origins);
    std::swap(aligned, other.aligned);
  }
  /// What bytes [begin, end) come from: from the first one's to the last one's.
  OriginalRange origin_of(size_t begin, size_t end) const;

  std::string bytes;
  std::vector<OriginalRange> origins;  // one a byte when aligned
  bool aligned = false;
};

}  // namespace megalith
