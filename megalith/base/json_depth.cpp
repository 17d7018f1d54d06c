#include "megalith/base/json_depth.h"

#include "megalith/base/error.h"

namespace megalith {

void check_json_depth(std::string_view json, std::string_view where) {
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      check_input(++depth <= kMaxJsonDepth, "{}: lists and objects are nested more than {} deep", where,
                  kMaxJsonDepth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace megalith
