// Communicator: what ranks of a group do together. Every rank of the group calls the same operation with the
// same sizes.
//
// Sums are taken in the order of ranks, whatever the transport: all ranks get the same bits, a run repeats
// bit for bit, and in-process threads and MPI processes agree. A group of one does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megalith/tensor/tensor.h"

namespace megalith {

/// What a group has exchanged so far, as seen by one rank.
struct CommunicationCounters {
  uint64_t calls = 0;
  /// Payload of the operations: the size of the tensors, not of the messages that carry them.
  uint64_t bytes = 0;
  double seconds = 0;
};

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// data [n] F32 becomes the sum over ranks.
  void all_reduce(TensorView data);
  /// data [n] F32 with n a multiple of the size: part r (the r-th n/size elements) becomes the sum over ranks
  /// on rank r; what other parts hold afterwards means nothing.
  void reduce_scatter(TensorView data);
  /// data [n] of any type with n a multiple of the size: every rank receives part r from rank r.
  void all_gather(TensorView data);

  /// Every rank gets the sum over ranks, in double.
  void sum(std::span<double> values);
  /// Every rank's text, by rank.
  std::vector<std::string> gather_texts(const std::string& text);

  const CommunicationCounters& counters() const { return counters_; }

 protected:
  /// The transport. Only called with a size above 1; bytes are of whole elements.
  virtual void all_reduce_floats(float* data, int64_t count) = 0;
  virtual void reduce_scatter_floats(float* data, int64_t count) = 0;
  virtual void all_gather_bytes(std::byte* data, size_t bytes_a_rank) = 0;

 private:
  CommunicationCounters counters_;
};

/// The group of one.
std::unique_ptr<Communicator> make_self_communicator();

/// Range [begin, end) of part `rank` when n elements are cut into `ranks` parts; n need not be a multiple.
struct PartRange {
  int64_t begin = 0, end = 0;
};
PartRange part_range(int64_t n, int rank, int ranks);

}  // namespace megalith
