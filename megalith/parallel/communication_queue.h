// CommunicationQueue: a thread that exchanges data while the main one computes.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

#include "megalith/comm/communicator.h"
#include "megalith/tensor/trace.h"

namespace megalith {

class CommunicationQueue {
 public:
  /// Operations of `group` go through here; while some are under way, nobody else may use it. All ranks of
  /// the group must submit the same ones in the same order. `trace` may be null.
  CommunicationQueue(Communicator& group, Trace* trace);
  CommunicationQueue(const CommunicationQueue&) = delete;
  CommunicationQueue& operator=(const CommunicationQueue&) = delete;
  /// What is still under way then, after a failure, is given up.
  ~CommunicationQueue();

  using Ticket = uint64_t;
  /// `name` must be a string literal. `work` runs after everything that was submitted before.
  Ticket submit(std::string_view name, std::function<void(Communicator&)> work);
  /// Returns when that work is done; throws when it, or work before it, has failed.
  void wait(Ticket ticket);
  void wait_all();

  /// Seconds that the thread has worked, and seconds that the main thread has waited for it: what is not
  /// waited for is hidden behind computation.
  struct Times {
    double busy = 0, waited = 0;
    double hidden_share() const { return busy > 0 ? 1.0 - std::min(1.0, waited / busy) : 0.0; }
  };
  Times times();

 private:
  struct Task {
    std::string_view name;
    std::function<void(Communicator&)> work;
  };
  void serve();

  Communicator& group_;
  Trace* trace_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  Ticket submitted_ = 0, done_ = 0;
  bool leaving_ = false;
  std::exception_ptr failure_;
  Times times_;
  std::thread thread_;
};

}  // namespace megalith
