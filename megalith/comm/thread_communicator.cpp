#include "megalith/comm/thread_communicator.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "megalith/base/error.h"
#include "megalith/comm/shared_reduction.h"

namespace megalith {

namespace {

// What the threads of a group share.
class Group {
 public:
  explicit Group(int ranks) : pointers_(static_cast<size_t>(ranks)) {}

  /// Throws when a rank has failed, so that nobody waits for it.
  void wait() {
    std::unique_lock lock(mutex_);
    check_failed();
    const uint64_t round = round_;
    if (++waiting_ == static_cast<int>(pointers_.size())) {
      waiting_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round || failed_rank_ >= 0; });
    if (round_ == round) check_failed();
  }
  void fail(int rank) {
    const std::lock_guard lock(mutex_);
    if (failed_rank_ < 0) failed_rank_ = rank;
    changed_.notify_all();
  }
  int failed_rank() const { return failed_rank_; }
  std::vector<std::byte*>& pointers() { return pointers_; }

 private:
  void check_failed() const {
    if (failed_rank_ >= 0) megalith::fail("rank {} failed, so this rank cannot go on", failed_rank_);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte*> pointers_;
  uint64_t round_ = 0;
  int waiting_ = 0;
  int failed_rank_ = -1;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(Group& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_.pointers().size()); }

 protected:
  void all_reduce_floats(float* data, int64_t count) override {
    const std::vector<float*> all = publish(data);
    const PartRange part = part_range(count, rank_, size());
    sum_in_order(all, part.begin, part.end, data);
    // Only this rank touches its part, in every buffer.
    for (float* other : all) {
      if (other != data) std::copy(data + part.begin, data + part.end, other + part.begin);
    }
    group_.wait();
  }
  void reduce_scatter_floats(float* data, int64_t count) override {
    const std::vector<float*> all = publish(data);
    const int64_t share = count / size();
    sum_in_order(all, rank_ * share, (rank_ + 1) * share, data);
    group_.wait();
  }
  void all_gather_bytes(std::byte* data, size_t bytes) override {
    publish_bytes(data);
    for (int r = 0; r < size(); ++r) {
      const size_t at = static_cast<size_t>(r) * bytes;
      if (r != rank_) std::memcpy(data + at, group_.pointers()[static_cast<size_t>(r)] + at, bytes);
    }
    group_.wait();
  }

 private:
  void publish_bytes(std::byte* data) {
    group_.pointers()[static_cast<size_t>(rank_)] = data;
    group_.wait();
  }
  std::vector<float*> publish(float* data) {
    publish_bytes(reinterpret_cast<std::byte*>(data));
    std::vector<float*> all;
    for (std::byte* pointer : group_.pointers()) all.push_back(reinterpret_cast<float*>(pointer));
    return all;
  }

  Group& group_;
  int rank_;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(Communicator&)>& work) {
  Group group(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator communicator(group, rank);
      try {
        work(communicator);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        group.fail(rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const int failed = group.failed_rank();
  if (failed < 0) return;
  try {
    std::rethrow_exception(errors[static_cast<size_t>(failed)]);
  } catch (const InputError& error) {
    throw InputError(fmt::format("rank {}: {}", failed, error.what()));
  } catch (const std::exception& error) {
    throw Error(fmt::format("rank {}: {}", failed, error.what()));
  }
}

}  // namespace megalith
