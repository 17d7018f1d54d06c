#include "megalith/comm/mpi_communicator.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/comm/host_layout.h"
#include "megalith/comm/host_windows.h"
#include "megalith/comm/multi_host_collectives.h"
#include "megalith/comm/shared_reduction.h"

namespace megalith {

namespace {

// Large messages cost MPI's libraries temporary memory, and its counts are 32-bit ints.
constexpr size_t kMessageBytes = size_t{16} << 20;

// The progress words of the ranks on this host, kept by the world's communicator.
class ProgressBoard {
 public:
  ProgressBoard(MPI_Comm world, MPI_Comm host, Watchdog& watchdog) {
    int size = 0, host_size = 0, rank = 0;
    MPI_Comm_size(world, &size);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(host, &host_size);
    watchdog.words.assign(static_cast<size_t>(size), nullptr);
    watchdog.self = rank;
    void* base = nullptr;
    require_mpi(MPI_Win_allocate_shared(sizeof(ProgressWord), 1, MPI_INFO_NULL, host, &base, &window_),
                "MPI_Win_allocate_shared");
    new (base) ProgressWord{};
    std::vector<int> ranks(static_cast<size_t>(host_size));
    require_mpi(MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, host), "MPI_Allgather");
    for (int r = 0; r < host_size; ++r) {
      MPI_Aint bytes = 0;
      int unit = 0;
      void* address = nullptr;
      require_mpi(MPI_Win_shared_query(window_, r, &bytes, &unit, &address), "MPI_Win_shared_query");
      watchdog.words[static_cast<size_t>(ranks[static_cast<size_t>(r)])] =
          static_cast<ProgressWord*>(address);
    }
  }
  ProgressBoard(const ProgressBoard&) = delete;
  ProgressBoard& operator=(const ProgressBoard&) = delete;
  ~ProgressBoard() {
    if (std::uncaught_exceptions() == 0) MPI_Win_free(&window_);
  }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
};

// The ranks of this rank's host, or of what passes for one.
MPI_Comm host_of(MPI_Comm comm, int rank, int ranks_per_host) {
  MPI_Comm host = MPI_COMM_NULL;
  require_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type");
  if (ranks_per_host == 0) return host;
  int local = 0;
  MPI_Comm_rank(host, &local);
  MPI_Comm part = MPI_COMM_NULL;
  require_mpi(MPI_Comm_split(host, local / ranks_per_host, local, &part), "MPI_Comm_split");
  MPI_Comm_free(&host);
  return part;
}

// For each rank of `comm` a number that only the ranks of its host have: that of its first rank.
std::vector<int> numbers_of_hosts(MPI_Comm comm, MPI_Comm host, int rank, int size) {
  int first = rank;
  require_mpi(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, host), "MPI_Allreduce");
  std::vector<int> hosts(static_cast<size_t>(size));
  require_mpi(MPI_Allgather(&first, 1, MPI_INT, hosts.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return hosts;
}

class MpiSend : public PendingSend {
 public:
  MpiSend(const std::byte* data, size_t bytes, int to, int tag, MPI_Comm comm,
          std::shared_ptr<Watchdog> watchdog, std::string group, int world_rank)
      : watchdog_(std::move(watchdog)), group_(std::move(group)), awaited_{world_rank} {
    require_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm, &request_), "MPI_Isend");
  }
  void wait() override { complete_mpi(request_, *watchdog_, "send", group_, awaited_); }

 private:
  std::shared_ptr<Watchdog> watchdog_;
  std::string group_;
  std::vector<int> awaited_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiCommunicator : public Communicator {
 public:
  /// Owns `comm` unless it is the world. `hosts` has the number of each rank's host, by rank of the world.
  MpiCommunicator(std::string name, MPI_Comm comm, bool shared_memory, std::shared_ptr<Watchdog> its_watchdog,
                  std::vector<int> its_world_ranks, std::shared_ptr<const std::vector<int>> hosts)
      : Communicator(std::move(name), std::move(its_watchdog), std::move(its_world_ranks)),
        comm_(comm),
        shared_memory_(shared_memory),
        hosts_(std::move(hosts)) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
    std::vector<int> hosts_of_ranks;
    for (int r = 0; r < size_; ++r) {
      const int world_rank = world_ranks()[static_cast<size_t>(r)];
      hosts_of_ranks.push_back((*hosts_)[static_cast<size_t>(world_rank)]);
      if (r != rank_) others_.push_back(world_rank);
    }
    const int own = hosts_of_ranks[static_cast<size_t>(rank_)];
    elsewhere_ = static_cast<size_t>(size_ - std::count(hosts_of_ranks.begin(), hosts_of_ranks.end(), own));
    one_host_ = shared_memory && elsewhere_ == 0;
    // With one rank a host, MPI's own exchanges carry no more, in fewer steps.
    const std::optional<HostLayout> layout = HostLayout::of(hosts_of_ranks, rank_);
    if (shared_memory && !one_host_ && layout && layout->hosts() < size_) layout_ = layout;
  }
  ~MpiCommunicator() override {
    levels_.reset();
    host_.reset();
    if (comm_ != MPI_COMM_WORLD && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
  }
  void keep(std::unique_ptr<ProgressBoard> board) { board_ = std::move(board); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

 protected:
  std::unique_ptr<Communicator> split_group(int color, int key, std::string name) override {
    MPI_Comm comm = MPI_COMM_NULL;
    require_mpi(MPI_Comm_split(comm_, color, key, &comm), "MPI_Comm_split");
    int size = 0;
    MPI_Comm_size(comm, &size);
    std::vector<int> ranks(static_cast<size_t>(size));
    const int own = world_ranks()[static_cast<size_t>(rank_)];
    require_mpi(MPI_Allgather(&own, 1, MPI_INT, ranks.data(), 1, MPI_INT, comm), "MPI_Allgather");
    return std::make_unique<MpiCommunicator>(std::move(name), comm, shared_memory_, watchdog(),
                                             std::move(ranks), hosts_);
  }

  void all_reduce_elements(std::byte* data, int64_t count, DType dtype) override {
    reduce_pieces(data, count, dtype, "all_reduce", -1);
  }
  void reduce_elements(std::byte* data, int64_t count, DType dtype, int root) override {
    reduce_pieces(data, count, dtype, "reduce", root);
  }

  void reduce_scatter_elements(std::byte* data, int64_t count, DType dtype) override {
    const size_t element = size_of(dtype);
    const int64_t share = count / size_;
    if (layout_) {
      std::vector<MultiHostCollectives::Part> parts;
      for (int r = 0; r < size_; ++r)
        parts.push_back({data + static_cast<size_t>(r * share) * element, share, r});
      return over_hosts([&](MultiHostCollectives& levels) { levels.reduce(parts, dtype, "reduce_scatter"); });
    }
    const int64_t most =
        static_cast<int64_t>((one_host_ ? HostWindows::kBytes : kMessageBytes) / element) / size_;
    std::vector<std::byte> pieces;
    for (int64_t at = 0; at < share; at += most) {
      const int64_t piece = std::min(most, share - at);
      const size_t piece_bytes = static_cast<size_t>(piece) * element;
      std::byte* own = data + static_cast<size_t>(rank_ * share + at) * element;
      const auto pack = [&](std::byte* out) {
        for (int r = 0; r < size_; ++r) {
          std::memcpy(out + static_cast<size_t>(r) * piece_bytes,
                      data + static_cast<size_t>(r * share + at) * element, piece_bytes);
        }
      };
      if (one_host_) {
        HostWindows& host = windows();
        pack(host.window(rank_));
        meet("reduce_scatter");
        std::vector<std::byte*> sources = host.windows();
        for (std::byte*& source : sources) source += static_cast<size_t>(rank_) * piece_bytes;
        reduce_in_order(sources, 0, piece, dtype, own);
        meet("reduce_scatter");
      } else {
        pieces.resize(piece_bytes * static_cast<size_t>(size_));
        pack(pieces.data());
        exchange_and_reduce(pieces.data(), piece, dtype, "reduce_scatter");
        std::memcpy(own, pieces.data() + static_cast<size_t>(rank_) * piece_bytes, piece_bytes);
      }
    }
  }

  void all_gather_bytes(std::byte* data, size_t bytes) override {
    if (layout_) return over_hosts([&](MultiHostCollectives& levels) { levels.all_gather(data, bytes); });
    if (one_host_) {
      HostWindows& host = windows();
      for (size_t at = 0; at < bytes; at += HostWindows::kBytes) {
        const size_t piece = std::min(HostWindows::kBytes, bytes - at);
        std::memcpy(host.window(rank_), data + static_cast<size_t>(rank_) * bytes + at, piece);
        meet("all_gather");
        for (int r = 0; r < size_; ++r) {
          if (r != rank_) std::memcpy(data + static_cast<size_t>(r) * bytes + at, host.window(r), piece);
        }
        meet("all_gather");
      }
      return;
    }
    std::vector<std::byte> all;
    for (size_t at = 0; at < bytes; at += kMessageBytes) {
      const size_t piece = std::min(kMessageBytes, bytes - at);
      all.resize(piece * static_cast<size_t>(size_));
      std::memcpy(all.data() + static_cast<size_t>(rank_) * piece,
                  data + static_cast<size_t>(rank_) * bytes + at, piece);
      gather(all.data(), piece, "all_gather");
      for (int r = 0; r < size_; ++r) {
        std::memcpy(data + static_cast<size_t>(r) * bytes + at, all.data() + static_cast<size_t>(r) * piece,
                    piece);
      }
    }
  }

  void broadcast_bytes(std::byte* data, size_t bytes, int root) override {
    if (layout_)
      return over_hosts([&](MultiHostCollectives& levels) { levels.broadcast(data, bytes, root); });
    const size_t most = one_host_ ? HostWindows::kBytes : kMessageBytes;
    for (size_t at = 0; at < bytes; at += most) {
      const size_t piece = std::min(most, bytes - at);
      if (one_host_) {
        HostWindows& host = windows();
        if (rank_ == root) std::memcpy(host.window(root), data + at, piece);
        meet("broadcast");
        if (rank_ != root) std::memcpy(data + at, host.window(root), piece);
        meet("broadcast");
      } else {
        MPI_Request request = MPI_REQUEST_NULL;
        require_mpi(MPI_Ibcast(data + at, static_cast<int>(piece), MPI_BYTE, root, comm_, &request),
                    "MPI_Ibcast");
        complete(request, "broadcast");
        if (rank_ == root) count_between_hosts(piece * elsewhere_);
      }
    }
  }

  std::unique_ptr<PendingSend> send_bytes(const std::byte* data, size_t bytes, int to, int tag) override {
    check(bytes <= INT_MAX, "send of {} bytes: the most is {}", bytes, INT_MAX);
    return std::make_unique<MpiSend>(data, bytes, to, tag, comm_, watchdog(), name(),
                                     world_ranks()[static_cast<size_t>(to)]);
  }
  void recv_bytes(std::byte* data, size_t bytes, int from, int tag) override {
    check(bytes <= INT_MAX, "recv of {} bytes: the most is {}", bytes, INT_MAX);
    MPI_Request request = MPI_REQUEST_NULL;
    require_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_, &request), "MPI_Irecv");
    complete_mpi(request, *watchdog(), "recv", name(), {world_ranks()[static_cast<size_t>(from)]});
  }

 private:
  void complete(MPI_Request& request, const char* operation) {
    complete_mpi(request, *watchdog(), operation, name(), others_);
  }
  // Making windows waits inside MPI, where the watchdog sees nothing: first all come here.
  void assemble() {
    MPI_Request request = MPI_REQUEST_NULL;
    require_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
    complete(request, "first collective");
  }
  // Made when first used: a group that only sends and receives needs no windows.
  HostWindows& windows() {
    if (host_ == nullptr) {
      assemble();
      host_ = std::make_unique<HostWindows>(comm_, rank_, size_);
    }
    return *host_;
  }
  template <class Work>
  void over_hosts(Work&& work) {
    if (levels_ == nullptr) {
      assemble();
      levels_ = std::make_unique<MultiHostCollectives>(comm_, *layout_, watchdog(), name(), world_ranks());
    }
    work(*levels_);
    count_between_hosts(levels_->take_sent_bytes());
  }
  void meet(const char* operation) { host_->barrier(*watchdog(), operation, name(), world_ranks()); }

  // Every rank reduces its share of each piece; then all, or only the root unless it is -1, take all shares.
  void reduce_pieces(std::byte* data, int64_t count, DType dtype, const char* operation, int root) {
    if (layout_) {
      return over_hosts([&](MultiHostCollectives& levels) {
        levels.reduce({{data, count, root}}, dtype, operation);
      });
    }
    const size_t element = size_of(dtype);
    const bool takes = root < 0 || root == rank_;
    const int64_t most = static_cast<int64_t>((one_host_ ? HostWindows::kBytes : kMessageBytes) / element);
    std::vector<std::byte> padded;
    for (int64_t at = 0; at < count; at += most) {
      const int64_t piece = std::min(most, count - at);
      std::byte* piece_data = data + static_cast<size_t>(at) * element;
      if (one_host_) {
        HostWindows& host = windows();
        std::memcpy(host.window(rank_), piece_data, static_cast<size_t>(piece) * element);
        meet(operation);
        const PartRange part = part_range(piece, rank_, size_);
        reduce_in_order(host.windows(), part.begin, part.end, dtype, host.window(rank_));
        meet(operation);
        for (int r = 0; takes && r < size_; ++r) {
          const PartRange theirs = part_range(piece, r, size_);
          const size_t begin = static_cast<size_t>(theirs.begin) * element;
          std::memcpy(piece_data + begin, host.window(r) + begin,
                      static_cast<size_t>(theirs.size()) * element);
        }
        meet(operation);
      } else {
        const int64_t share = (piece + size_ - 1) / size_;
        const size_t share_bytes = static_cast<size_t>(share) * element;
        padded.assign(share_bytes * static_cast<size_t>(size_), std::byte{});
        std::memcpy(padded.data(), piece_data, static_cast<size_t>(piece) * element);
        exchange_and_reduce(padded.data(), share, dtype, operation);
        if (root < 0) {
          gather(padded.data(), share_bytes, operation);
        } else {
          const std::byte* own = padded.data() + static_cast<size_t>(rank_) * share_bytes;
          MPI_Request request = MPI_REQUEST_NULL;
          require_mpi(
              MPI_Igather(takes ? MPI_IN_PLACE : own, static_cast<int>(share_bytes), MPI_BYTE, padded.data(),
                          static_cast<int>(share_bytes), MPI_BYTE, root, comm_, &request),
              "MPI_Igather");
          complete(request, operation);
          const auto host = [&](int r) {
            return (*hosts_)[static_cast<size_t>(world_ranks()[static_cast<size_t>(r)])];
          };
          if (host(rank_) != host(root)) count_between_hosts(share_bytes);
        }
        if (takes) std::memcpy(piece_data, padded.data(), static_cast<size_t>(piece) * element);
      }
    }
  }
  // Every rank receives part r [bytes] from rank r.
  void gather(std::byte* parts, size_t bytes, const char* operation) {
    MPI_Request request = MPI_REQUEST_NULL;
    require_mpi(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, parts, static_cast<int>(bytes), MPI_BYTE,
                               comm_, &request),
                "MPI_Iallgather");
    complete(request, operation);
    count_between_hosts(bytes * elsewhere_);
  }
  // Parts of all ranks [size][share]: part `rank` is reduced over ranks in their order.
  void exchange_and_reduce(std::byte* parts, int64_t share, DType dtype, const char* operation) {
    const size_t bytes = static_cast<size_t>(share) * size_of(dtype);
    std::vector<std::byte> received(bytes * static_cast<size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    require_mpi(MPI_Ialltoall(parts, static_cast<int>(bytes), MPI_BYTE, received.data(),
                              static_cast<int>(bytes), MPI_BYTE, comm_, &request),
                "MPI_Ialltoall");
    complete(request, operation);
    count_between_hosts(bytes * elsewhere_);
    std::vector<std::byte*> sources;
    for (int r = 0; r < size_; ++r) sources.push_back(received.data() + static_cast<size_t>(r) * bytes);
    reduce_in_order(sources, 0, share, dtype, parts + static_cast<size_t>(rank_) * bytes);
  }

  MPI_Comm comm_;
  bool shared_memory_;
  bool one_host_ = false;  // and shared memory may be used
  std::shared_ptr<const std::vector<int>> hosts_;
  std::optional<HostLayout> layout_;  // when collective operations go in two levels
  int rank_ = 0, size_ = 1;
  size_t elsewhere_ = 0;     // ranks on other hosts
  std::vector<int> others_;  // ranks of the world
  std::unique_ptr<ProgressBoard> board_;
  std::unique_ptr<HostWindows> host_;
  std::unique_ptr<MultiHostCollectives> levels_;
};

}  // namespace

bool started_by_mpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr ||
         std::getenv("PMIX_RANK") != nullptr;
}

MpiSession::MpiSession() {
  int given = 0;
  require_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &given), "MPI_Init_thread");
  // Gradients are reduced by a thread of their own while the main one computes and sends.
  check(given == MPI_THREAD_MULTIPLE,
        "this MPI library does not serve several threads (MPI_THREAD_MULTIPLE)");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() {
  MPI_Finalize();
}

std::unique_ptr<Communicator> MpiSession::world(const MpiTransport& transport) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  auto watchdog = std::make_shared<Watchdog>();
  MPI_Comm host = host_of(MPI_COMM_WORLD, rank, transport.ranks_per_host);
  auto board = std::make_unique<ProgressBoard>(MPI_COMM_WORLD, host, *watchdog);
  auto hosts = std::make_shared<const std::vector<int>>(numbers_of_hosts(MPI_COMM_WORLD, host, rank, size));
  MPI_Comm_free(&host);
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  auto world = std::make_unique<MpiCommunicator>("world", MPI_COMM_WORLD, transport.shared_memory,
                                                 std::move(watchdog), ranks, std::move(hosts));
  world->keep(std::move(board));
  return world;
}

void MpiSession::plain_all_reduce(TensorView data) {
  require_mpi(MPI_Allreduce(MPI_IN_PLACE, data.raw(), static_cast<int>(data.elements()), MPI_FLOAT, MPI_SUM,
                            MPI_COMM_WORLD),
              "MPI_Allreduce");
}

void MpiSession::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace megalith
