// Memory that the ranks of a group on one host share: arrival counters, and a window a rank for data.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "megalith/comm/watchdog.h"

namespace megalith {

/// Throws Error with MPI's text unless `code` is success.
void require_mpi(int code, const char* operation);

/// Waits for an MPI operation without giving up the core to it for ever. `awaited` are ranks of the world.
void complete_mpi(MPI_Request& request, const Watchdog& watchdog, const char* operation,
                  const std::string& group, const std::vector<int>& awaited);

class HostWindows {
 public:
  /// Each rank's window: large enough that barriers cost little beside the copying, small enough to stay in
  /// the outer caches.
  static constexpr size_t kBytes = size_t{4} << 20;

  /// All ranks of `comm`, which are on one host, come here together.
  HostWindows(MPI_Comm comm, int rank, int ranks);
  HostWindows(const HostWindows&) = delete;
  HostWindows& operator=(const HostWindows&) = delete;
  ~HostWindows();

  const std::vector<std::byte*>& windows() const { return windows_; }
  std::byte* window(int rank) const { return windows_[static_cast<size_t>(rank)]; }

  /// Every rank has written what the others are going to read. `world_ranks` are those of the group's ranks.
  void barrier(const Watchdog& watchdog, const char* operation, const std::string& group,
               const std::vector<int>& world_ranks);

 private:
  // `sleepers` counts the ranks that ask to be woken when `round` changes. Padded to a cache line rather than
  // aligned to one: MPI promises no alignment of what it shares.
  struct Arrival {
    std::atomic<uint32_t> round;
    std::atomic<uint32_t> sleepers;
    std::byte padding[56];
  };
  void wait_for(int rank, uint32_t round, const Watchdog& watchdog, const char* operation,
                const std::string& group, const std::vector<int>& world_ranks);

  int rank_, ranks_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<Arrival*> arrivals_;
  std::vector<std::byte*> windows_;
  uint32_t round_ = 0;
};

}  // namespace megalith
