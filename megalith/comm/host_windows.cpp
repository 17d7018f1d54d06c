#include "megalith/comm/host_windows.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <ctime>
#include <exception>

#include "megalith/base/error.h"

namespace megalith {

void require_mpi(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("{}: {}", operation, std::string(text, static_cast<size_t>(length)));
}

void complete_mpi(MPI_Request& request, const Watchdog& watchdog, const char* operation,
                  const std::string& group, const std::vector<int>& awaited) {
  constexpr int kBusyTests = 20000;
  WatchedWait watched(watchdog, operation, group);
  for (int test = 0;; ++test) {
    int done = 0;
    require_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), operation);
    if (done != 0) {
      watchdog.own().change();  // one piece of a long operation
      return;
    }
    if (test < kBusyTests) {
      sched_yield();
      continue;
    }
    ::usleep(20);
    watched.poll(awaited);
  }
}

HostWindows::HostWindows(MPI_Comm comm, int rank, int ranks) : rank_(rank), ranks_(ranks) {
  void* base = nullptr;
  require_mpi(MPI_Win_allocate_shared(static_cast<MPI_Aint>(sizeof(Arrival) + kBytes), 1, MPI_INFO_NULL, comm,
                                      &base, &window_),
              "MPI_Win_allocate_shared");
  for (int r = 0; r < ranks; ++r) {
    MPI_Aint size = 0;
    int unit = 0;
    void* address = nullptr;
    require_mpi(MPI_Win_shared_query(window_, r, &size, &unit, &address), "MPI_Win_shared_query");
    arrivals_.push_back(static_cast<Arrival*>(address));
    windows_.push_back(static_cast<std::byte*>(address) + sizeof(Arrival));
  }
  new (arrivals_[static_cast<size_t>(rank)]) Arrival{};
  std::memset(window(rank), 0, kBytes);  // Faults the pages in on this rank's node.
  require_mpi(MPI_Barrier(comm), "MPI_Barrier");
}

HostWindows::~HostWindows() {
  // Freeing is collective; a rank that fails must not wait for the others here.
  if (std::uncaught_exceptions() == 0) MPI_Win_free(&window_);
}

void HostWindows::barrier(const Watchdog& watchdog, const char* operation, const std::string& group,
                          const std::vector<int>& world_ranks) {
  const uint32_t round = ++round_;
  Arrival& own = *arrivals_[static_cast<size_t>(rank_)];
  own.round.store(round);
  if (own.sleepers.load() > 0) ::syscall(SYS_futex, &own.round, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  for (int r = 0; r < ranks_; ++r) {
    if (r != rank_) wait_for(r, round, watchdog, operation, group, world_ranks);
  }
  watchdog.own().change();  // one piece of a long operation
}

void HostWindows::wait_for(int rank, uint32_t round, const Watchdog& watchdog, const char* operation,
                           const std::string& group, const std::vector<int>& world_ranks) {
  Arrival& theirs = *arrivals_[static_cast<size_t>(rank)];
  // Rounds wrap around; ranks are never more than one apart.
  const auto arrived = [&] { return static_cast<int32_t>(theirs.round.load() - round) >= 0; };
  constexpr int kSpins = 2000, kYields = 200;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (arrived()) return;
    __builtin_ia32_pause();
  }
  // More ranks than cores: let the late one run. A long wait sleeps, and leaves the core to whoever computes.
  for (int yield = 0; yield < kYields; ++yield) {
    if (arrived()) return;
    sched_yield();
  }
  WatchedWait watched(watchdog, operation, group);
  theirs.sleepers.fetch_add(1);
  while (true) {
    const uint32_t current = theirs.round.load();
    if (static_cast<int32_t>(current - round) >= 0) break;
    timespec timeout{};
    timeout.tv_nsec = 100'000'000;
    ::syscall(SYS_futex, &theirs.round, FUTEX_WAIT, current, &timeout, nullptr, 0);
    try {
      watched.poll({world_ranks[static_cast<size_t>(rank)]});
    } catch (...) {
      theirs.sleepers.fetch_sub(1);
      throw;
    }
  }
  theirs.sleepers.fetch_sub(1);
}

}  // namespace megalith
