#include "megalith/comm/multi_host_collectives.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "megalith/comm/shared_reduction.h"

namespace megalith {

namespace {

constexpr size_t kHalf = HostWindows::kBytes / 2;
constexpr int kUp = 1, kDown = 2;  // tags

size_t to_size(int64_t n) {
  return static_cast<size_t>(n);
}

}  // namespace

MultiHostCollectives::MultiHostCollectives(MPI_Comm group, HostLayout layout,
                                           std::shared_ptr<Watchdog> watchdog, const std::string& name,
                                           const std::vector<int>& world_ranks)
    : layout_(std::move(layout)), watchdog_(std::move(watchdog)), name_(name) {
  const auto world_rank = [&](int host, int local) {
    return world_ranks[to_size(layout_.first[to_size(host)] + local)];
  };
  for (int local = 0; local < layout_.ranks_on(layout_.host); ++local)
    here_.push_back(world_rank(layout_.host, local));
  for (int host = 0; carries() && host < layout_.hosts(); ++host) {
    if (host != layout_.host) others_.push_back(world_rank(host, layout_.local));
  }
  require_mpi(MPI_Comm_split(group, layout_.host, layout_.local, &local_), "MPI_Comm_split");
  require_mpi(MPI_Comm_split(group, carries() ? layout_.local : MPI_UNDEFINED, layout_.host, &peers_),
              "MPI_Comm_split");
  windows_ = std::make_unique<HostWindows>(local_, layout_.local, layout_.ranks_on(layout_.host));
}

MultiHostCollectives::~MultiHostCollectives() {
  windows_.reset();
  // Freeing is collective; a rank that fails must not wait for the others here.
  if (std::uncaught_exceptions() > 0) return;
  MPI_Comm_free(&local_);
  if (peers_ != MPI_COMM_NULL) MPI_Comm_free(&peers_);
}

uint64_t MultiHostCollectives::take_sent_bytes() {
  return std::exchange(sent_bytes_, 0);
}

void MultiHostCollectives::meet(const char* operation) {
  windows_->barrier(*watchdog_, operation, name_, here_);
}

void MultiHostCollectives::complete(MPI_Request& request, const char* operation) {
  complete_mpi(request, *watchdog_, operation, name_, others_);
}

void MultiHostCollectives::send(std::vector<std::byte> data, int host, int tag, const char* operation) {
  constexpr size_t kMostUnderWay = 4;
  finish_sends(kMostUnderWay - 1, operation);
  sent_bytes_ += data.size();
  sending_.push_back({std::move(data), MPI_REQUEST_NULL});
  Sending& sending = sending_.back();
  require_mpi(MPI_Isend(sending.data.data(), static_cast<int>(sending.data.size()), MPI_BYTE, host, tag,
                        peers_, &sending.request),
              "MPI_Isend");
}

void MultiHostCollectives::receive(void* data, size_t bytes, int host, int tag, const char* operation) {
  MPI_Request request = MPI_REQUEST_NULL;
  require_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, host, tag, peers_, &request), "MPI_Irecv");
  complete(request, operation);
}

void MultiHostCollectives::finish_sends(size_t left, const char* operation) {
  while (sending_.size() > left) {
    complete(sending_.front().request, operation);
    sending_.pop_front();
  }
}

void MultiHostCollectives::add_to_chain(const Part& part, DType dtype, const char* operation) {
  const PartRange slice = part_range(part.count, layout_.local, layout_.carriers());
  if (slice.size() == 0) return;
  std::vector<std::byte> message(to_size(slice.size()) * sizeof(float));
  float* sum = reinterpret_cast<float*>(message.data());
  const bool begins = layout_.host == 0;
  if (!begins) receive(sum, message.size(), layout_.host - 1, kUp, operation);
  std::vector<std::byte*> sources;
  for (int local = 0; local < layout_.ranks_on(layout_.host); ++local) sources.push_back(input(local));
  add_in_order(sources, slice.begin, slice.end, dtype, begins, sum);
  if (is_last_host()) {
    round_sums(sum, slice.size(), dtype, output(layout_.local));
  } else {
    send(std::move(message), layout_.host + 1, kUp, operation);
  }
}

void MultiHostCollectives::receive_sum(const Part& part, DType dtype, const char* operation) {
  const size_t bytes =
      to_size(part_range(part.count, layout_.local, layout_.carriers()).size()) * size_of(dtype);
  if (bytes == 0) return;
  const int last = layout_.hosts() - 1;
  std::byte* out = output(layout_.local);
  const auto pass_on = [&](int host) {
    send(std::vector<std::byte>(out, out + bytes), host, kDown, operation);
  };
  if (part.root < 0) {
    if (!is_last_host()) receive(out, bytes, layout_.host + 1, kDown, operation);
    if (layout_.host > 0) pass_on(layout_.host - 1);
    return;
  }
  const int root_host = layout_.host_of(part.root);
  if (root_host == last) return;
  if (is_last_host()) pass_on(root_host);
  if (layout_.host == root_host) receive(out, bytes, last, kDown, operation);
}

// A sum is complete on the last host, `last - host` steps after this host has added to it, and is back here
// as many steps later. So every host is at work on a part of its own, and waits only for what was begun
// before.
void MultiHostCollectives::reduce(const std::vector<Part>& parts, DType dtype, const char* operation) {
  const int rank = layout_.first[to_size(layout_.host)] + layout_.local;
  const size_t element = size_of(dtype);
  size_t bytes = 0;
  for (const Part& part : parts) bytes += to_size(part.count) * element;
  // Small enough to fill the chain, large enough that a message is worth its latency.
  constexpr size_t kSmallest = size_t{64} << 10;
  const size_t wanted = std::clamp(bytes / (4 * to_size(layout_.hosts())), kSmallest, kHalf);
  const int64_t most = static_cast<int64_t>(wanted / element);
  std::vector<Part> pieces;
  for (const Part& part : parts) {
    for (int64_t at = 0; at < part.count; at += most)
      pieces.push_back({part.data + to_size(at) * element, std::min(most, part.count - at), part.root});
  }
  const size_t lag = 2 * to_size(layout_.hosts() - 1 - layout_.host);
  for (size_t step = 0; step < pieces.size() + lag; ++step) {
    const Part* up = step < pieces.size() ? &pieces[step] : nullptr;
    const Part* down = step >= lag ? &pieces[step - lag] : nullptr;
    if (up != nullptr) std::memcpy(input(layout_.local), up->data, to_size(up->count) * element);
    meet(operation);
    if (carries() && up != nullptr) add_to_chain(*up, dtype, operation);
    if (carries() && down != nullptr) receive_sum(*down, dtype, operation);
    meet(operation);
    if (down == nullptr || (down->root >= 0 && down->root != rank)) continue;
    for (int local = 0; local < layout_.carriers(); ++local) {
      const PartRange slice = part_range(down->count, local, layout_.carriers());
      std::memcpy(down->data + to_size(slice.begin) * element, output(local),
                  to_size(slice.size()) * element);
    }
  }
  finish_sends(0, operation);
}

// The parts of a host's ranks form a block, of which every carrier exchanges a slice.
void MultiHostCollectives::all_gather(std::byte* data, size_t bytes) {
  constexpr const char* kOperation = "all_gather";
  const int hosts = layout_.hosts(), carriers = layout_.carriers();
  const int self = layout_.first[to_size(layout_.host)] + layout_.local;
  // The slices of all hosts must fit into the output of a carrier.
  const size_t ranks = to_size(layout_.first.back());
  const size_t most = std::max<size_t>(1, (kHalf - to_size(hosts)) / ranks * to_size(carriers));
  for (size_t at = 0; at < bytes; at += std::min(most, kHalf)) {
    const size_t piece = std::min({most, kHalf, bytes - at});
    const auto slice_of = [&](int host, int local) {
      return part_range(static_cast<int64_t>(to_size(layout_.ranks_on(host)) * piece), local, carriers);
    };
    // Calls work(rank, offset in its part, position in the slice, bytes) for the stretches of a slice.
    const auto for_stretches = [&](int host, int local, auto&& work) {
      const PartRange slice = slice_of(host, local);
      for (size_t position = to_size(slice.begin); position < to_size(slice.end);) {
        const size_t offset = position % piece;
        const size_t count = std::min(piece - offset, to_size(slice.end) - position);
        work(layout_.first[to_size(host)] + static_cast<int>(position / piece), offset,
             position - to_size(slice.begin), count);
        position += count;
      }
    };
    std::memcpy(input(layout_.local), data + to_size(self) * bytes + at, piece);
    meet(kOperation);
    if (carries()) {
      std::vector<int> counts, starts;
      int start = 0;
      for (int host = 0; host < hosts; ++host) {
        counts.push_back(static_cast<int>(slice_of(host, layout_.local).size()));
        starts.push_back(start);
        start += counts.back();
      }
      std::byte* out = output(layout_.local);
      for_stretches(layout_.host, layout_.local, [&](int rank, size_t offset, size_t to, size_t count) {
        std::memcpy(out + to_size(starts[to_size(layout_.host)]) + to,
                    input(rank - layout_.first[to_size(layout_.host)]) + offset, count);
      });
      MPI_Request request = MPI_REQUEST_NULL;
      require_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, counts.data(), starts.data(),
                                  MPI_BYTE, peers_, &request),
                  "MPI_Iallgatherv");
      complete(request, kOperation);
      sent_bytes_ += to_size(counts[to_size(layout_.host)]) * to_size(hosts - 1);
    }
    meet(kOperation);
    for (int local = 0; local < carriers; ++local) {
      const std::byte* from = output(local);
      for (int host = 0; host < hosts; ++host) {
        for_stretches(host, local, [&](int rank, size_t offset, size_t position, size_t count) {
          if (rank != self) std::memcpy(data + to_size(rank) * bytes + at + offset, from + position, count);
        });
        from += slice_of(host, local).size();
      }
    }
  }
}

void MultiHostCollectives::broadcast(std::byte* data, size_t bytes, int root) {
  constexpr const char* kOperation = "broadcast";
  const int root_host = layout_.host_of(root), carriers = layout_.carriers();
  const bool here = layout_.host == root_host;
  const int root_local = root - layout_.first[to_size(root_host)];
  const bool is_root = here && layout_.local == root_local;
  for (size_t at = 0; at < bytes; at += kHalf) {
    const size_t piece = std::min(kHalf, bytes - at);
    const auto slice_of = [&](int local) { return part_range(static_cast<int64_t>(piece), local, carriers); };
    if (is_root) std::memcpy(input(root_local), data + at, piece);
    meet(kOperation);
    if (carries() && slice_of(layout_.local).size() > 0) {
      const PartRange slice = slice_of(layout_.local);
      std::byte* own = here ? input(root_local) + to_size(slice.begin) : output(layout_.local);
      MPI_Request request = MPI_REQUEST_NULL;
      require_mpi(MPI_Ibcast(own, static_cast<int>(slice.size()), MPI_BYTE, root_host, peers_, &request),
                  "MPI_Ibcast");
      complete(request, kOperation);
      if (here) sent_bytes_ += to_size(slice.size()) * to_size(layout_.hosts() - 1);
    }
    meet(kOperation);
    if (here && !is_root) std::memcpy(data + at, input(root_local), piece);
    for (int local = 0; !here && local < carriers; ++local) {
      const PartRange slice = slice_of(local);
      std::memcpy(data + at + to_size(slice.begin), output(local), to_size(slice.size()));
    }
    meet(kOperation);  // before the root writes its input again
  }
}

}  // namespace megalith
