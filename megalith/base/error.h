// Errors that a user can read: what was wrong, where, and what to do.
//
// Error ends a command with exit status 1 (it failed while running), InputError with 2 (usage, recipe, file).
// Both are thrown at API boundaries with names, shapes and paths in the message; nothing in Megalith aborts
// on bad input.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace megalith {

/// Something failed while running: a full disk, a loss that is not finite, a broken checkpoint.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The input is wrong: a command line, a recipe, a file, a shape asked for by the user.
class InputError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_input(fmt::format_string<Args...> text, Args&&... args) {
  throw InputError(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws Error when the condition does not hold; the message is formatted only then.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]] {
    throw Error(fmt::format(text, std::forward<Args>(args)...));
  }
}

/// Throws InputError when the condition does not hold.
template <class... Args>
void check_input(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]] {
    throw InputError(fmt::format(text, std::forward<Args>(args)...));
  }
}

}  // namespace megalith
