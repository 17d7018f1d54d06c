// Stop strings in a stream of text: nothing of a stop is let through, and nothing else is lost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megalith {

class StopMatcher {
 public:
  /// Throws InputError for a stop string that is empty or not valid UTF-8.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Adds text (whole characters) and returns what may be shown now: all of it but an end that could still
  /// become a stop. When a stop is complete, returns what stands before the earliest one, and stopped() is
  /// true from then on.
  std::string push(std::string_view text);
  /// What was held back, at the end of the stream.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace megalith
