// JSON that is nested so deep that a library, which calls itself for each level, would run out of stack.
#pragma once

#include <string_view>

namespace megalith {

/// Levels of lists and objects that a file of ours, or of others, may have.
inline constexpr int kMaxJsonDepth = 256;

/// Throws InputError naming the file, `where`, when a JSON text is nested deeper. Says nothing about text
/// that is no JSON.
void check_json_depth(std::string_view json, std::string_view where);

}  // namespace megalith
