#include "megalith/infer/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"

namespace megalith {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    check_input(!stop.empty(), "a stop string cannot be empty");
    // One that begins or ends inside a character could cut the text there.
    check_input(is_valid_utf8(stop), "the stop string \"{}\" is not valid UTF-8", replace_invalid_utf8(stop));
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  pending_.append(text);
  size_t earliest = std::string::npos;
  for (const std::string& stop : stops_) earliest = std::min(earliest, pending_.find(stop));
  if (earliest != std::string::npos) {
    stopped_ = true;
    std::string shown = pending_.substr(0, earliest);
    pending_.clear();
    return shown;
  }
  // Hold back the longest end that begins a stop.
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length) {
      if (std::string_view(pending_).substr(pending_.size() - length) ==
          std::string_view(stop).substr(0, length)) {
        held = length;
        break;
      }
    }
  }
  std::string shown = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::flush() {
  return std::exchange(pending_, std::string());
}

}  // namespace megalith
