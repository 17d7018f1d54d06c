// A check of integer options. CLI11 takes "99999999999999999999" for the largest integer and "-1" for a large
// unsigned one; here both are refused with the range, before any work.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "megalith/base/error.h"

namespace megalith {

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

inline CLI::Validator whole_number(int64_t least, int64_t most) {
  CLI::Validator validator("");
  validator.operation([least, most](std::string& text) -> std::string {
    int64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && rest == text.data() + text.size() && value >= least && value <= most)
      return {};
    if (error == std::errc::invalid_argument || rest != text.data() + text.size())
      return text + " is not a whole number";
    const std::string allowed = most == kNoLimit && error == std::errc()
                                    ? fmt::format("{} or more", least)
                                    : fmt::format("{} to {}", least, most);
    return fmt::format("{} is out of range; allowed is {}", text, allowed);
  });
  return validator;
}

}  // namespace megalith
