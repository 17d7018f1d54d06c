#include "megalith/comm/thread_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/comm/shared_reduction.h"

namespace megalith {

namespace {

// What all threads share. Everything in it is guarded by one mutex.
struct World {
  explicit World(int ranks) : words(static_cast<size_t>(ranks)) {}

  void fail(int rank) {
    const std::lock_guard lock(mutex);
    if (failed_rank < 0) failed_rank = rank;
    changed.notify_all();
  }
  void check_failed() const {
    if (failed_rank >= 0) megalith::fail("rank {} failed, so this rank cannot go on", failed_rank);
  }

  std::mutex mutex;
  std::condition_variable changed;
  int failed_rank = -1;
  std::vector<ProgressWord> words;
};

// What the threads of a group share; guarded by the world's mutex, but for the pointers, which a barrier
// orders.
struct Group {
  Group(World& its_world, std::vector<int> ranks)
      : world(its_world), world_ranks(std::move(ranks)), pointers(world_ranks.size()) {}

  World& world;
  const std::vector<int> world_ranks;
  std::vector<std::byte*> pointers;
  uint64_t round = 0;
  int waiting = 0;
  /// Groups cut from this one, by number of the split and color.
  std::map<std::pair<uint64_t, int>, std::shared_ptr<Group>> children;
  /// Messages by sender, receiver and tag.
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::byte>>> messages;
};

// A message is copied when it is sent.
class Sent : public PendingSend {
 public:
  void wait() override {}
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::string name, std::shared_ptr<Watchdog> its_watchdog, std::shared_ptr<Group> group,
                     int rank)
      : Communicator(std::move(name), std::move(its_watchdog), group->world_ranks),
        group_(std::move(group)),
        rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->world_ranks.size()); }

 protected:
  std::unique_ptr<Communicator> split_group(int color, int key, std::string name) override {
    std::vector<std::pair<int, int>> wanted(static_cast<size_t>(size()));  // color, key
    wanted[static_cast<size_t>(rank_)] = {color, key};
    all_gather_bytes(reinterpret_cast<std::byte*>(wanted.data()), sizeof wanted[0]);
    std::vector<std::pair<int, int>> members;  // key, rank
    for (int r = 0; r < size(); ++r) {
      const auto& [theirs, order] = wanted[static_cast<size_t>(r)];
      if (theirs == color) members.emplace_back(order, r);
    }
    std::sort(members.begin(), members.end());
    std::vector<int> world_ranks_of_child;
    int own = 0;
    for (const auto& [order, r] : members) {
      if (r == rank_) own = static_cast<int>(world_ranks_of_child.size());
      world_ranks_of_child.push_back(world_ranks()[static_cast<size_t>(r)]);
    }
    const std::lock_guard lock(group_->world.mutex);
    std::shared_ptr<Group>& child = group_->children[{splits_++, color}];
    if (child == nullptr) child = std::make_shared<Group>(group_->world, world_ranks_of_child);
    return std::make_unique<ThreadCommunicator>(std::move(name), watchdog(), child, own);
  }
  void all_reduce_elements(std::byte* data, int64_t count, DType dtype) override {
    publish(data, "all_reduce");
    const PartRange part = part_range(count, rank_, size());
    reduce_in_order(group_->pointers, part.begin, part.end, dtype, data);
    // Only this rank touches its part, in every buffer.
    const size_t begin = static_cast<size_t>(part.begin) * size_of(dtype);
    for (std::byte* other : group_->pointers) {
      if (other != data)
        std::memcpy(other + begin, data + begin, static_cast<size_t>(part.size()) * size_of(dtype));
    }
    meet("all_reduce");
  }
  void reduce_scatter_elements(std::byte* data, int64_t count, DType dtype) override {
    publish(data, "reduce_scatter");
    const int64_t share = count / size();
    reduce_in_order(group_->pointers, rank_ * share, (rank_ + 1) * share, dtype, data);
    meet("reduce_scatter");
  }
  void reduce_elements(std::byte* data, int64_t count, DType dtype, int root) override {
    publish(data, "reduce");
    const PartRange part = part_range(count, rank_, size());
    reduce_in_order(group_->pointers, part.begin, part.end, dtype,
                    group_->pointers[static_cast<size_t>(root)]);
    meet("reduce");
  }
  void all_gather_bytes(std::byte* data, size_t bytes) override {
    publish(data, "all_gather");
    for (int r = 0; r < size(); ++r) {
      const size_t at = static_cast<size_t>(r) * bytes;
      if (r != rank_) std::memcpy(data + at, group_->pointers[static_cast<size_t>(r)] + at, bytes);
    }
    meet("all_gather");
  }
  void broadcast_bytes(std::byte* data, size_t bytes, int root) override {
    publish(data, "broadcast");
    if (rank_ != root) std::memcpy(data, group_->pointers[static_cast<size_t>(root)], bytes);
    meet("broadcast");
  }
  std::unique_ptr<PendingSend> send_bytes(const std::byte* data, size_t bytes, int to, int tag) override {
    const std::lock_guard lock(group_->world.mutex);
    group_->world.check_failed();
    group_->messages[{rank_, to, tag}].emplace_back(data, data + bytes);
    group_->world.changed.notify_all();
    return std::make_unique<Sent>();
  }
  void recv_bytes(std::byte* data, size_t bytes, int from, int tag) override {
    std::unique_lock lock(group_->world.mutex);
    auto& queue = group_->messages[{from, rank_, tag}];
    wait(lock, "recv", {world_ranks()[static_cast<size_t>(from)]}, [&] { return !queue.empty(); });
    check(queue.front().size() == bytes, "recv of {} bytes from rank {}: it sent {}", bytes, from,
          queue.front().size());
    std::memcpy(data, queue.front().data(), bytes);
    queue.pop_front();
  }

 private:
  /// Throws when a rank has failed, so that nobody waits for it.
  template <class Done>
  void wait(std::unique_lock<std::mutex>& lock, const char* operation, const std::vector<int>& awaited,
            Done&& done) {
    WatchedWait watched(*watchdog(), operation, name());
    while (!done()) {
      group_->world.check_failed();
      watched.poll(awaited);
      group_->world.changed.wait_for(lock, std::chrono::milliseconds(500));
    }
  }
  void meet(const char* operation) {
    std::unique_lock lock(group_->world.mutex);
    group_->world.check_failed();
    const uint64_t round = group_->round;
    if (++group_->waiting == size()) {
      group_->waiting = 0;
      ++group_->round;
      group_->world.changed.notify_all();
      return;
    }
    std::vector<int> others;
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) others.push_back(world_ranks()[static_cast<size_t>(r)]);
    }
    wait(lock, operation, others, [&] { return group_->round != round; });
  }
  void publish(std::byte* data, const char* operation) {
    group_->pointers[static_cast<size_t>(rank_)] = data;
    meet(operation);
  }

  std::shared_ptr<Group> group_;
  int rank_;
  uint64_t splits_ = 0;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(Communicator&)>& work) {
  World world(ranks);
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  const auto group = std::make_shared<Group>(world, all);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto watchdog = std::make_shared<Watchdog>();
      for (ProgressWord& word : world.words) watchdog->words.push_back(&word);
      watchdog->self = rank;
      ThreadCommunicator communicator("world", std::move(watchdog), group, rank);
      try {
        work(communicator);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        world.fail(rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const int failed = world.failed_rank;
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
