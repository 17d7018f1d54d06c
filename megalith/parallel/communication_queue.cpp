#include "megalith/parallel/communication_queue.h"

#include <utility>

namespace megalith {

namespace {

double seconds_between(Trace::Clock::time_point start, Trace::Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

CommunicationQueue::CommunicationQueue(Communicator& group, Trace* trace)
    : group_(group), trace_(trace), thread_([this] { serve(); }) {}

CommunicationQueue::~CommunicationQueue() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    // The other ranks may never come to what is under way.
    if (done_ < submitted_) group_.abandon();
  }
  changed_.notify_all();
  thread_.join();
}

void CommunicationQueue::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return leaving_ || !tasks_.empty(); });
    if (leaving_) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    if (failure_ == nullptr) {
      lock.unlock();
      const Trace::Clock::time_point start = Trace::Clock::now();
      std::exception_ptr failure;
      try {
        const TraceScope scope(trace_, task.name, Trace::Track::communication);
        task.work(group_);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
      times_.busy += seconds_between(start, Trace::Clock::now());
    }
    ++done_;
    changed_.notify_all();
  }
}

CommunicationQueue::Ticket CommunicationQueue::submit(std::string_view name,
                                                      std::function<void(Communicator&)> work) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({name, std::move(work)});
  changed_.notify_all();
  return ++submitted_;
}

void CommunicationQueue::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  if (done_ < ticket) {
    const Trace::Clock::time_point start = Trace::Clock::now();
    changed_.wait(lock, [&] { return done_ >= ticket; });
    times_.waited += seconds_between(start, Trace::Clock::now());
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void CommunicationQueue::wait_all() {
  Ticket last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = submitted_;
  }
  wait(last);
}

CommunicationQueue::Times CommunicationQueue::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}

}  // namespace megalith
