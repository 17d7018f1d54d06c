// Watchdog: tells a rank that hangs from one that is only slow.
//
// Every rank has a word that changes whenever it finishes an operation, and about twice a second while it
// waits for others in a communication. A rank whose word stands still hangs: it computes without end or its
// process is stopped. Ranks of one host, and threads of one process, see each other's words. Of a rank on
// another host a waiting rank knows nothing, so there only the time that it has waited counts, with a larger
// limit.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace megalith {

/// One rank's word, and whether somebody has reported a hang on its host. Lies in memory that the ranks
/// share; zero is its first state. Padded to a cache line rather than aligned to one: MPI promises no
/// alignment of what it shares.
struct ProgressWord {
  /// Operations finished.
  std::atomic<uint64_t> changes;
  /// Looks around during waits.
  std::atomic<uint64_t> waits;
  /// The rank does something of which no operation tells: opening data, writing a checkpoint.
  std::atomic<uint32_t> untimed;
  /// Of the first rank of a host: somebody there has said what hangs.
  std::atomic<uint32_t> reported;
  std::byte padding[40];

  void change() { changes.fetch_add(1, std::memory_order_relaxed); }
};

/// What all groups of a rank share.
struct Watchdog {
  /// By rank of the world; null where memory is not shared.
  std::vector<ProgressWord*> words;
  int self = 0;
  /// A word that stands still for so long hangs.
  double hang_seconds = 25;
  /// The rank is about to leave after a failure: its waits, in whatever thread, are to end.
  std::atomic<bool> abandoned{false};
  /// Longest wait in which none of the awaited ranks is seen to finish an operation: they cannot be seen, do
  /// untimed work, or wait themselves.
  double wait_seconds() const { return 24 * hang_seconds; }

  ProgressWord& own() const { return *words[static_cast<size_t>(self)]; }
};

/// One wait of a rank. poll() is called again and again while it lasts.
class WatchedWait {
 public:
  /// `operation` and `group` say what is waited in; `awaited` are ranks of the world.
  WatchedWait(const Watchdog& watchdog, const char* operation, const std::string& group)
      : watchdog_(watchdog), operation_(operation), group_(group) {}

  /// Throws Error naming the operation and the late rank when one of the awaited ranks hangs. Costs a look at
  /// the clock.
  void poll(const std::vector<int>& awaited);

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    int rank;
    uint64_t changes, waits;
    Clock::time_point since;
  };
  [[noreturn]] void report(const std::string& what) const;

  const Watchdog& watchdog_;
  const char* operation_;
  const std::string& group_;
  bool started_ = false;
  Clock::time_point start_, last_;
  std::vector<Seen> seen_;
};

}  // namespace megalith
