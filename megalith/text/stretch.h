// Where a long text can be cut into stretches that are worked on one by one, or in parallel, with the result
// of the whole.
#pragma once

#include <cstddef>
#include <string_view>

namespace megalith {

/// Where texts can be cut.
enum class Cuts {
  none,
  /// Before a space between two ASCII letters.
  spaces,
  /// There, and after a line feed between two characters that are not white space.
  spaces_and_lines,
};

/// The largest position in (0, limit] at which a text can be cut, or 0; under any of the fast splitters the
/// parts then split as the whole does. The text need not be valid UTF-8.
size_t safe_cut(std::string_view text, size_t limit, Cuts cuts = Cuts::spaces_and_lines);

/// The length of the first stretch of a text: about `wanted` bytes, more where no cut is safe, and all of it
/// when the text cannot be cut. No stretch ends inside a run of invalid bytes.
size_t stretch(std::string_view text, Cuts cuts, size_t wanted);

/// The length of the run of bytes at the begin of `text` that belong to no character.
size_t invalid_run(std::string_view text);

}  // namespace megalith
