#include "megalith/base/log.h"

#include <cstdio>
#include <string>

namespace megalith {

void log_line(std::string_view level, std::string_view text) {
  // One write a line, so that lines of several threads and ranks do not mix.
  std::string line;
  line.reserve(level.size() + text.size() + 1);
  line.append(level).append(text).push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace megalith
