#include "megalith/comm/communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "megalith/base/error.h"

namespace megalith {

namespace {

// Books an operation.
class Counted {
 public:
  Counted(CommunicationCounters& counters, ProgressWord& progress, size_t bytes)
      : counters_(counters), progress_(progress), start_(Clock::now()) {
    counters_.calls += 1;
    counters_.bytes += bytes;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() {
    progress_.change();
    counters_.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  CommunicationCounters& counters_;
  ProgressWord& progress_;
  Clock::time_point start_;
};

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator(std::string name, std::unique_ptr<ProgressWord> word)
      : Communicator(std::move(name), watchdog_of(*word), {0}), word_(std::move(word)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

 protected:
  std::unique_ptr<Communicator> split_group(int, int, std::string name) override {
    return std::make_unique<SelfCommunicator>(std::move(name), std::make_unique<ProgressWord>());
  }
  void all_reduce_elements(std::byte*, int64_t, DType) override {}
  void reduce_scatter_elements(std::byte*, int64_t, DType) override {}
  void reduce_elements(std::byte*, int64_t, DType, int) override {}
  void all_gather_bytes(std::byte*, size_t) override {}
  void broadcast_bytes(std::byte*, size_t, int) override {}
  std::unique_ptr<PendingSend> send_bytes(const std::byte*, size_t, int, int) override {
    fail("a group of one has nobody to send to");
  }
  void recv_bytes(std::byte*, size_t, int, int) override {
    fail("a group of one has nobody to receive from");
  }

 private:
  static std::shared_ptr<Watchdog> watchdog_of(ProgressWord& word) {
    auto watchdog = std::make_shared<Watchdog>();
    watchdog->words = {&word};
    return watchdog;
  }
  std::unique_ptr<ProgressWord> word_;
};

std::byte* bytes_of(TensorView data) {
  return static_cast<std::byte*>(data.raw());
}

void check_parts(const TensorView& data, int size, const char* operation) {
  check(data.elements() % size == 0, "{}: {} elements cannot be cut into {} equal parts", operation,
        data.elements(), size);
}

void check_summable(const TensorView& data, const char* operation) {
  const DType dtype = data.dtype();
  check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
        "{} of {}: only F32, BF16 and F16 are summed", operation, megalith::name(dtype));
}

}  // namespace

Communicator::Communicator(std::string name, std::shared_ptr<Watchdog> watchdog, std::vector<int> world_ranks)
    : name_(std::move(name)), watchdog_(std::move(watchdog)), world_ranks_(std::move(world_ranks)) {}

std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string name) {
  check(color >= 0, "split of the group \"{}\": the color {} is negative", name_, color);
  return split_group(color, key, std::move(name));
}

void Communicator::all_reduce(TensorView data) {
  if (size() == 1) return;
  check_summable(data, "all_reduce");
  const Counted counted(counters_, progress(), data.bytes());
  all_reduce_elements(bytes_of(data), data.elements(), data.dtype());
}

void Communicator::reduce_scatter(TensorView data) {
  if (size() == 1) return;
  check_summable(data, "reduce_scatter");
  check_parts(data, size(), "reduce_scatter");
  const Counted counted(counters_, progress(), data.bytes());
  reduce_scatter_elements(bytes_of(data), data.elements(), data.dtype());
}

void Communicator::reduce(TensorView data, int root) {
  if (size() == 1) return;
  check_summable(data, "reduce");
  check(root >= 0 && root < size(), "reduce to rank {} of {}", root, size());
  const Counted counted(counters_, progress(), data.bytes());
  reduce_elements(bytes_of(data), data.elements(), data.dtype(), root);
}

void Communicator::all_gather(TensorView data) {
  if (size() == 1) return;
  check_parts(data, size(), "all_gather");
  const Counted counted(counters_, progress(), data.bytes());
  all_gather_bytes(bytes_of(data), data.bytes() / static_cast<size_t>(size()));
}

void Communicator::broadcast(TensorView data, int root) {
  if (size() == 1) return;
  check(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
  const Counted counted(counters_, progress(), data.bytes());
  broadcast_bytes(bytes_of(data), data.bytes(), root);
}

void Communicator::barrier() {
  if (size() == 1) return;
  const Counted counted(counters_, progress(), 0);
  std::vector<std::byte> nothing(static_cast<size_t>(size()));
  all_gather_bytes(nothing.data(), 1);
}

std::unique_ptr<PendingSend> Communicator::send(TensorView data, int to, int tag) {
  check(to >= 0 && to < size() && to != rank(), "send from rank {} to rank {} of {}", rank(), to, size());
  const Counted counted(counters_, progress(), data.bytes());
  return send_bytes(bytes_of(data), data.bytes(), to, tag);
}

void Communicator::recv(TensorView data, int from, int tag) {
  check(from >= 0 && from < size() && from != rank(), "recv on rank {} from rank {} of {}", rank(), from,
        size());
  const Counted counted(counters_, progress(), data.bytes());
  recv_bytes(bytes_of(data), data.bytes(), from, tag);
}

void Communicator::sum(std::span<double> values) {
  if (size() == 1) return;
  const Counted counted(counters_, progress(), values.size_bytes());
  std::vector<double> all(values.size() * static_cast<size_t>(size()));
  std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(values.size()) * rank());
  all_gather_bytes(reinterpret_cast<std::byte*>(all.data()), values.size_bytes());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0;
    for (size_t r = 0; r < static_cast<size_t>(size()); ++r) values[i] += all[r * values.size() + i];
  }
}

std::vector<std::string> Communicator::gather_texts(const std::string& text) {
  if (size() == 1) return {text};
  const size_t ranks = static_cast<size_t>(size()), self = static_cast<size_t>(rank());
  std::vector<uint64_t> lengths(ranks);
  lengths[self] = text.size();
  all_gather_bytes(reinterpret_cast<std::byte*>(lengths.data()), sizeof(uint64_t));
  uint64_t longest = 1;
  for (const uint64_t length : lengths) longest = std::max(longest, length);
  std::vector<char> all(longest * ranks);
  std::copy(text.begin(), text.end(), all.begin() + static_cast<std::ptrdiff_t>(longest * self));
  const Counted counted(counters_, progress(), all.size());
  all_gather_bytes(reinterpret_cast<std::byte*>(all.data()), longest);
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r) texts.emplace_back(all.data() + r * longest, lengths[r]);
  return texts;
}

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>("world", std::make_unique<ProgressWord>());
}

PartRange part_range(int64_t n, int rank, int ranks) {
  const int64_t share = n / ranks, rest = n % ranks;
  const int64_t begin = rank * share + std::min<int64_t>(rank, rest);
  return {begin, begin + share + (rank < rest ? 1 : 0)};
}

PartRange intersection(PartRange a, PartRange b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace megalith
