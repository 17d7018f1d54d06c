// Collective operations of a group over several hosts in two levels: through shared memory inside of each
// host, through MPI between them. The data is cut into slices, and each of a host's first ranks carries one
// slice to and from the ranks with its number on the other hosts, so that what leaves a host leaves it once
// and through several ranks.
//
// Sums go from host to host in a chain: each adds its ranks' values, in their order, to the fp32 sum of the
// hosts before it. So a sum is taken in the order of ranks as by every other transport, with the same bits,
// and a link carries the data once up the chain and once down. Pieces follow each other through the chain,
// all its links busy at the same time.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "megalith/comm/host_layout.h"
#include "megalith/comm/host_windows.h"
#include "megalith/comm/watchdog.h"
#include "megalith/tensor/dtype.h"

namespace megalith {

class MultiHostCollectives {
 public:
  /// All ranks of `group` come here together. `name` and `world_ranks`, those of the group, must outlive the
  /// object.
  MultiHostCollectives(MPI_Comm group, HostLayout layout, std::shared_ptr<Watchdog> watchdog,
                       const std::string& name, const std::vector<int>& world_ranks);
  MultiHostCollectives(const MultiHostCollectives&) = delete;
  MultiHostCollectives& operator=(const MultiHostCollectives&) = delete;
  ~MultiHostCollectives();

  /// Part of a reduction: the sum goes to rank `root` of the group, or to all when it is -1.
  struct Part {
    std::byte* data;
    int64_t count;
    int root;
  };
  void reduce(const std::vector<Part>& parts, DType dtype, const char* operation);
  void all_gather(std::byte* data, size_t bytes_a_rank);
  void broadcast(std::byte* data, size_t bytes, int root);

  /// Bytes that this rank has sent to other hosts since it was asked last.
  uint64_t take_sent_bytes();

 private:
  struct Sending {
    std::vector<std::byte> data;
    MPI_Request request;
  };

  bool carries() const { return layout_.local < layout_.carriers(); }
  bool is_last_host() const { return layout_.host + 1 == layout_.hosts(); }
  std::byte* input(int local) const { return windows_->window(local); }
  std::byte* output(int local) const { return windows_->window(local) + HostWindows::kBytes / 2; }
  void meet(const char* operation);
  void complete(MPI_Request& request, const char* operation);
  void send(std::vector<std::byte> data, int host, int tag, const char* operation);
  void receive(void* data, size_t bytes, int host, int tag, const char* operation);
  void finish_sends(size_t left, const char* operation);
  /// This rank's slice of a part up the chain, and the sum down again into its output window.
  void add_to_chain(const Part& part, DType dtype, const char* operation);
  void receive_sum(const Part& part, DType dtype, const char* operation);

  const HostLayout layout_;
  const std::shared_ptr<Watchdog> watchdog_;
  const std::string& name_;
  std::vector<int> here_;    // ranks of the world on this host
  std::vector<int> others_;  // ranks of the world that carry the same slice
  MPI_Comm local_ = MPI_COMM_NULL, peers_ = MPI_COMM_NULL;
  std::unique_ptr<HostWindows> windows_;
  std::deque<Sending> sending_;
  uint64_t sent_bytes_ = 0;
};

}  // namespace megalith
