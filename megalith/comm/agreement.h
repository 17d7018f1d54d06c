// Failures that all ranks know of, so that they end together and say it once.
#pragma once

#include <functional>

#include "megalith/base/error.h"
#include "megalith/comm/communicator.h"

namespace megalith {

/// Thrown on every rank of a group with the same message.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, bool wrong_input) : Error(message), wrong_input_(wrong_input) {}
  /// Exit status 2 rather than 1.
  bool wrong_input() const { return wrong_input_; }

 private:
  bool wrong_input_;
};

/// Runs `work`, which must not communicate, on every rank. On a single rank its exceptions pass as they are.
/// When it throws on some, all ranks throw AgreedError with the message of the first of them, which names the
/// ranks unless all say the same.
void agree(Communicator& ranks, const std::function<void()>& work);

}  // namespace megalith
