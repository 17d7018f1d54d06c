// Communicator: what ranks of a group do together. Every rank of the group calls the same collective
// operation with the same sizes.
//
// Sums are taken in the order of ranks, whatever the transport: all ranks get the same bits, a run repeats
// bit for bit, and in-process threads and MPI processes agree. Sums of 16-bit elements are taken in fp32 and
// rounded once. A group of one does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megalith/comm/watchdog.h"
#include "megalith/tensor/tensor.h"

namespace megalith {

/// What a group has exchanged so far, as seen by one rank.
struct CommunicationCounters {
  uint64_t calls = 0;
  /// Payload of the operations: the size of the tensors, not of the messages that carry them.
  uint64_t bytes = 0;
  /// What this rank has sent to other hosts in collective operations; where MPI chooses the ways, as if each
  /// rank there were sent its data by itself.
  uint64_t bytes_between_hosts = 0;
  /// Time inside of the operations, waiting included.
  double seconds = 0;
};

/// A send that is under way.
class PendingSend {
 public:
  virtual ~PendingSend() = default;
  /// Returns when the data may be overwritten.
  virtual void wait() = 0;
};

class Communicator {
 public:
  Communicator(std::string name, std::shared_ptr<Watchdog> watchdog, std::vector<int> world_ranks);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// What messages call the group.
  const std::string& name() const { return name_; }

  /// Cuts the group: ranks of the same color (not negative) form a new group called `name`, in the order of
  /// key, ties in the order of rank here. The new group lives no longer than this one.
  std::unique_ptr<Communicator> split(int color, int key, std::string name);

  /// data [n] F32, BF16 or F16 becomes the sum over ranks.
  void all_reduce(TensorView data);
  /// data [n] F32, BF16 or F16 with n a multiple of the size: part r (the r-th n/size elements) becomes the
  /// sum over ranks on rank r; what other parts hold afterwards means nothing.
  void reduce_scatter(TensorView data);
  /// data [n] F32, BF16 or F16 becomes the sum over ranks on rank `root`; what it holds elsewhere afterwards
  /// means nothing.
  void reduce(TensorView data, int root);
  /// data [n] of any type with n a multiple of the size: every rank receives part r from rank r.
  void all_gather(TensorView data);
  /// Every rank receives data [n] of any type from rank `root`.
  void broadcast(TensorView data, int root);
  /// Returns when every rank has come here.
  void barrier();

  /// Sends data to rank `to`, whose recv with the same tag (from 0 to 2^30) and size receives it. Of several
  /// messages with one tag between two ranks the first sent is the first received. `data` must stay as it is
  /// until wait(). A send never waits for its receiver before it returns.
  std::unique_ptr<PendingSend> send(TensorView data, int to, int tag);
  /// Waits for the message from rank `from`.
  void recv(TensorView data, int from, int tag);

  /// Every rank gets the sum over ranks, in double.
  void sum(std::span<double> values);
  /// Every rank's text, by rank.
  std::vector<std::string> gather_texts(const std::string& text);

  const CommunicationCounters& counters() const { return counters_; }

  /// Changes when this rank finishes an operation; the watchdog of the others looks at it.
  ProgressWord& progress() { return watchdog_->own(); }
  /// For this rank's groups, made by split before or after: seconds without progress that make a rank hang.
  void set_hang_seconds(double seconds) { watchdog_->hang_seconds = seconds; }
  /// Ends all waits of this rank, in any group and thread, with an Error: before it leaves after a failure.
  void abandon() { watchdog_->abandoned = true; }

 protected:
  /// The transport. Only called with a size above 1; bytes are of whole elements.
  virtual std::unique_ptr<Communicator> split_group(int color, int key, std::string name) = 0;
  virtual void all_reduce_elements(std::byte* data, int64_t count, DType dtype) = 0;
  virtual void reduce_scatter_elements(std::byte* data, int64_t count, DType dtype) = 0;
  virtual void reduce_elements(std::byte* data, int64_t count, DType dtype, int root) = 0;
  virtual void all_gather_bytes(std::byte* data, size_t bytes_a_rank) = 0;
  virtual void broadcast_bytes(std::byte* data, size_t bytes, int root) = 0;
  virtual std::unique_ptr<PendingSend> send_bytes(const std::byte* data, size_t bytes, int to, int tag) = 0;
  virtual void recv_bytes(std::byte* data, size_t bytes, int from, int tag) = 0;

  const std::shared_ptr<Watchdog>& watchdog() const { return watchdog_; }
  /// Rank of the world of each rank of the group.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  void count_between_hosts(uint64_t bytes) { counters_.bytes_between_hosts += bytes; }

 private:
  std::string name_;
  std::shared_ptr<Watchdog> watchdog_;
  std::vector<int> world_ranks_;
  CommunicationCounters counters_;
};

/// Marks this rank, for the life of the object, as doing work of which no operation tells.
class UntimedWork {
 public:
  explicit UntimedWork(Communicator& ranks) : word_(ranks.progress()) { word_.untimed.fetch_add(1); }
  UntimedWork(const UntimedWork&) = delete;
  UntimedWork& operator=(const UntimedWork&) = delete;
  ~UntimedWork() {
    word_.change();
    word_.untimed.fetch_sub(1);
  }

 private:
  ProgressWord& word_;
};

/// The group of one.
std::unique_ptr<Communicator> make_self_communicator();

/// Range [begin, end) of part `rank` when n elements are cut into `ranks` parts; n need not be a multiple.
struct PartRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
PartRange part_range(int64_t n, int rank, int ranks);
/// What two ranges have in common; of size 0 where they do not meet.
PartRange intersection(PartRange a, PartRange b);

}  // namespace megalith
