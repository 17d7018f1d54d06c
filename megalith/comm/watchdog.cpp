#include "megalith/comm/watchdog.h"

#include <algorithm>
#include <thread>

#include "megalith/base/error.h"

namespace megalith {

void WatchedWait::poll(const std::vector<int>& awaited) {
  constexpr double kInterval = 0.5;  // seconds between looks at the words
  check(!watchdog_.abandoned.load(), "{} of the group \"{}\": this rank has failed elsewhere", operation_,
        group_);
  const Clock::time_point now = Clock::now();
  if (!started_) {
    started_ = true;
    start_ = last_ = now;
    return;
  }
  if (std::chrono::duration<double>(now - last_).count() < kInterval) return;
  last_ = now;
  watchdog_.own().waits.fetch_add(1, std::memory_order_relaxed);
  for (const int rank : awaited) {
    const ProgressWord* word = watchdog_.words[static_cast<size_t>(rank)];
    if (word == nullptr || word->untimed.load(std::memory_order_relaxed) != 0) continue;
    const uint64_t changes = word->changes.load(std::memory_order_relaxed);
    const uint64_t waits = word->waits.load(std::memory_order_relaxed);
    const auto seen =
        std::find_if(seen_.begin(), seen_.end(), [&](const Seen& entry) { return entry.rank == rank; });
    if (seen == seen_.end()) {
      seen_.push_back({rank, changes, waits, now});
    } else if (seen->changes != changes || seen->waits != waits) {
      if (seen->changes != changes) start_ = now;
      *seen = {rank, changes, waits, now};
    } else if (const double still = std::chrono::duration<double>(now - seen->since).count();
               still > watchdog_.hang_seconds) {
      report(fmt::format("rank {} has finished no operation for {:.0f} s: it hangs", rank, still));
    }
  }
  if (const double waited = std::chrono::duration<double>(now - start_).count();
      waited > watchdog_.wait_seconds()) {
    std::string late;
    for (const int rank : awaited) late += fmt::format("{}{}", late.empty() ? "" : ", ", rank);
    report(fmt::format("{:.0f} s have passed waiting for rank {}", waited, late));
  }
}

void WatchedWait::report(const std::string& what) const {
  // One rank of a host says it; the others wait to be ended with the job.
  for (ProgressWord* word : watchdog_.words) {
    if (word == nullptr) continue;
    if (word->reported.exchange(1) == 0) break;
    std::this_thread::sleep_for(std::chrono::seconds(5));
    break;
  }
  fail("{} of the group \"{}\": {}", operation_, group_, what);
}

}  // namespace megalith
