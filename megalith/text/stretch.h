// Where a long text can be cut into stretches that are worked on one by one, or in parallel, with the result
// of the whole.
#pragma once

#include <cstddef>
#include <string_view>

namespace megalith {

/// The largest position in (0, limit] at which a text can be cut so that its parts split as the whole does
/// under any of the fast splitters, or 0: before a space between two ASCII letters, and after a line feed
/// between two characters that are not white space. The text need not be valid UTF-8.
size_t safe_cut(std::string_view text, size_t limit);

/// The length of the first stretch of a text: about `wanted` bytes, more where no cut is safe, and all of it
/// when the text cannot be cut. No stretch ends inside a run of invalid bytes.
size_t stretch(std::string_view text, bool can_cut, size_t wanted);

/// The length of the run of bytes at the begin of `text` that belong to no character.
size_t invalid_run(std::string_view text);

}  // namespace megalith
