// Messages for people, on standard error. Results go to standard output and never through here.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace megalith {

void log_line(std::string_view level, std::string_view text);

template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_line("", fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log_line("warning: ", fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace megalith
