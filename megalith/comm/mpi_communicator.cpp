#include "megalith/comm/mpi_communicator.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/comm/shared_reduction.h"

namespace megalith {

namespace {

// Each rank's window for messages between ranks of one host: large enough that barriers cost little beside
// the copying, small enough to stay in the outer caches.
constexpr size_t kWindowBytes = size_t{4} << 20;
// MPI counts are 32-bit ints, and large messages cost MPI's libraries temporary memory.
constexpr int64_t kMessageFloats = int64_t{4} << 20;

void require(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("{}: {}", operation, std::string(text, static_cast<size_t>(length)));
}

// A rank may hang or die while others wait for it. mpirun ends the job when a process dies; a wait that lasts
// this long is reported.
constexpr double kHangSeconds = 600;

// Shared memory of one host's ranks: arrival counters for barriers, then one window a rank.
class HostWindows {
 public:
  HostWindows(MPI_Comm comm, int rank, int ranks) : rank_(rank), ranks_(ranks) {
    const MPI_Aint bytes = static_cast<MPI_Aint>(kCounterBytes + kWindowBytes);
    void* base = nullptr;
    require(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm, &base, &window_),
            "MPI_Win_allocate_shared");
    for (int r = 0; r < ranks; ++r) {
      MPI_Aint size = 0;
      int unit = 0;
      void* address = nullptr;
      require(MPI_Win_shared_query(window_, r, &size, &unit, &address), "MPI_Win_shared_query");
      bases_.push_back(static_cast<std::byte*>(address));
    }
    new (arrival(rank)) std::atomic<uint64_t>(0);
    std::memset(window(rank), 0, kWindowBytes);  // Faults the pages in on this rank's node.
    require(MPI_Barrier(comm), "MPI_Barrier");
  }
  HostWindows(const HostWindows&) = delete;
  HostWindows& operator=(const HostWindows&) = delete;
  ~HostWindows() { MPI_Win_free(&window_); }

  std::byte* window(int rank) const { return bases_[static_cast<size_t>(rank)] + kCounterBytes; }

  /// Every rank has written what the others are going to read.
  void barrier() {
    const uint64_t round = ++round_;
    arrival(rank_)->store(round, std::memory_order_release);
    for (int r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      uint64_t spins = 0;
      std::chrono::steady_clock::time_point start;
      while (arrival(r)->load(std::memory_order_acquire) < round) {
        if (++spins < kSpins) {
          __builtin_ia32_pause();
          continue;
        }
        // More ranks than cores: let the late one run.
        sched_yield();
        if (spins == kSpins) start = std::chrono::steady_clock::now();
        if (spins % 65536 == 0) {
          const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
          check(waited.count() < kHangSeconds, "rank {} has waited {:.0f} s for rank {}: it hangs", rank_,
                waited.count(), r);
        }
      }
    }
  }

 private:
  static constexpr size_t kCounterBytes = 64;
  static constexpr uint64_t kSpins = 2000;

  std::atomic<uint64_t>* arrival(int rank) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(bases_[static_cast<size_t>(rank)]);
  }

  int rank_, ranks_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::byte*> bases_;
  uint64_t round_ = 0;
};

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
    MPI_Comm host = MPI_COMM_NULL;
    require(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
    int host_size = 0;
    MPI_Comm_size(host, &host_size);
    if (host_size == size_ && size_ > 1) host_ = std::make_unique<HostWindows>(host, rank_, size_);
    MPI_Comm_free(&host);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

 protected:
  void all_reduce_floats(float* data, int64_t count) override {
    if (host_ != nullptr) {
      for_windows(data, count, [&](int64_t piece) {
        const PartRange part = part_range(piece, rank_, size_);
        std::vector<float*> all = windows();
        sum_in_order(all, part.begin, part.end, all[static_cast<size_t>(rank_)]);
        host_->barrier();
        return [this, piece](float* out) {
          for (int r = 0; r < size_; ++r) {
            const PartRange theirs = part_range(piece, r, size_);
            std::memcpy(out + theirs.begin, window(r) + theirs.begin,
                        static_cast<size_t>(theirs.end - theirs.begin) * sizeof(float));
          }
        };
      });
      return;
    }
    std::vector<float> padded;
    for (int64_t at = 0; at < count; at += kMessageFloats * size_) {
      const int64_t piece = std::min(kMessageFloats * size_, count - at);
      const int64_t share = (piece + size_ - 1) / size_;
      padded.assign(static_cast<size_t>(share * size_), 0.0f);
      std::copy_n(data + at, piece, padded.data());
      exchange_and_sum(padded.data(), share);
      require(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, padded.data(), static_cast<int>(share),
                            MPI_FLOAT, comm_),
              "MPI_Allgather");
      std::copy_n(padded.data(), piece, data + at);
    }
  }

  void reduce_scatter_floats(float* data, int64_t count) override {
    const int64_t share = count / size_;
    const int64_t most =
        host_ != nullptr ? static_cast<int64_t>(kWindowBytes / sizeof(float)) / size_ : kMessageFloats;
    std::vector<float> pieces;
    for (int64_t at = 0; at < share; at += most) {
      const int64_t piece = std::min(most, share - at);
      const auto pack = [&](float* out) {
        for (int r = 0; r < size_; ++r) std::copy_n(data + r * share + at, piece, out + r * piece);
      };
      if (host_ != nullptr) {
        pack(window(rank_));
        host_->barrier();
        std::vector<float*> all = windows();
        for (float*& pointer : all) pointer += rank_ * piece;
        float* own = data + rank_ * share + at;
        sum_in_order(all, 0, piece, own);
        host_->barrier();
      } else {
        pieces.resize(static_cast<size_t>(piece * size_));
        pack(pieces.data());
        exchange_and_sum(pieces.data(), piece);
        std::copy_n(pieces.data() + rank_ * piece, piece, data + rank_ * share + at);
      }
    }
  }

  void all_gather_bytes(std::byte* data, size_t bytes) override {
    if (host_ != nullptr) {
      for (size_t at = 0; at < bytes; at += kWindowBytes) {
        const size_t piece = std::min(kWindowBytes, bytes - at);
        std::memcpy(host_->window(rank_), data + static_cast<size_t>(rank_) * bytes + at, piece);
        host_->barrier();
        for (int r = 0; r < size_; ++r) {
          if (r != rank_) std::memcpy(data + static_cast<size_t>(r) * bytes + at, host_->window(r), piece);
        }
        host_->barrier();
      }
      return;
    }
    constexpr size_t kMessageBytes = size_t{16} << 20;
    std::vector<std::byte> all;
    for (size_t at = 0; at < bytes; at += kMessageBytes) {
      const size_t piece = std::min(kMessageBytes, bytes - at);
      all.resize(piece * static_cast<size_t>(size_));
      require(MPI_Allgather(data + static_cast<size_t>(rank_) * bytes + at, static_cast<int>(piece), MPI_BYTE,
                            all.data(), static_cast<int>(piece), MPI_BYTE, comm_),
              "MPI_Allgather");
      for (int r = 0; r < size_; ++r) {
        std::memcpy(data + static_cast<size_t>(r) * bytes + at, all.data() + static_cast<size_t>(r) * piece,
                    piece);
      }
    }
  }

 private:
  float* window(int rank) const { return reinterpret_cast<float*>(host_->window(rank)); }
  std::vector<float*> windows() const {
    std::vector<float*> all;
    for (int r = 0; r < size_; ++r) all.push_back(window(r));
    return all;
  }

  // Piece by piece: every rank copies into its window, `combine` works on all windows, and what it returns
  // copies out.
  template <class Combine>
  void for_windows(float* data, int64_t count, Combine&& combine) {
    constexpr int64_t kFloats = static_cast<int64_t>(kWindowBytes / sizeof(float));
    for (int64_t at = 0; at < count; at += kFloats) {
      const int64_t piece = std::min(kFloats, count - at);
      std::copy_n(data + at, piece, window(rank_));
      host_->barrier();
      combine(piece)(data + at);
      host_->barrier();
    }
  }

  // Parts of all ranks [size][share]: part `rank` becomes the sum over ranks in their order.
  void exchange_and_sum(float* parts, int64_t share) {
    std::vector<float> received(static_cast<size_t>(share * size_));
    require(MPI_Alltoall(parts, static_cast<int>(share), MPI_FLOAT, received.data(), static_cast<int>(share),
                         MPI_FLOAT, comm_),
            "MPI_Alltoall");
    std::vector<float*> sources;
    for (int r = 0; r < size_; ++r) sources.push_back(received.data() + r * share);
    sum_in_order(sources, 0, share, parts + rank_ * share);
  }

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::unique_ptr<HostWindows> host_;
};

}  // namespace

bool started_by_mpi() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr ||
         std::getenv("PMIX_RANK") != nullptr;
}

MpiSession::MpiSession() {
  int given = 0;
  require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() {
  MPI_Finalize();
}

std::unique_ptr<Communicator> MpiSession::world() {
  return std::make_unique<MpiCommunicator>(MPI_COMM_WORLD);
}

void MpiSession::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace megalith
