#include "megalith/comm/communicator.h"

#include <algorithm>
#include <chrono>

#include "megalith/base/error.h"

namespace megalith {

namespace {

// Books an operation.
class Counted {
 public:
  Counted(CommunicationCounters& counters, size_t bytes) : counters_(counters), start_(Clock::now()) {
    counters_.calls += 1;
    counters_.bytes += bytes;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { counters_.seconds += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  CommunicationCounters& counters_;
  Clock::time_point start_;
};

class SelfCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

 protected:
  void all_reduce_floats(float*, int64_t) override {}
  void reduce_scatter_floats(float*, int64_t) override {}
  void all_gather_bytes(std::byte*, size_t) override {}
};

}  // namespace

void Communicator::all_reduce(TensorView data) {
  if (size() == 1) return;
  const Counted counted(counters_, data.bytes());
  all_reduce_floats(data.data<float>(), data.elements());
}

void Communicator::reduce_scatter(TensorView data) {
  if (size() == 1) return;
  check(data.elements() % size() == 0, "reduce_scatter: {} elements cannot be cut into {} equal parts",
        data.elements(), size());
  const Counted counted(counters_, data.bytes());
  reduce_scatter_floats(data.data<float>(), data.elements());
}

void Communicator::all_gather(TensorView data) {
  if (size() == 1) return;
  check(data.elements() % size() == 0, "all_gather: {} elements cannot be cut into {} equal parts",
        data.elements(), size());
  const Counted counted(counters_, data.bytes());
  all_gather_bytes(static_cast<std::byte*>(data.raw()), data.bytes() / static_cast<size_t>(size()));
}

void Communicator::sum(std::span<double> values) {
  if (size() == 1) return;
  const Counted counted(counters_, values.size_bytes());
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
  const Counted counted(counters_, all.size());
  all_gather_bytes(reinterpret_cast<std::byte*>(all.data()), longest);
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r) texts.emplace_back(all.data() + r * longest, lengths[r]);
  return texts;
}

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>();
}

PartRange part_range(int64_t n, int rank, int ranks) {
  const int64_t share = n / ranks, rest = n % ranks;
  const int64_t begin = rank * share + std::min<int64_t>(rank, rest);
  return {begin, begin + share + (rank < rest ? 1 : 0)};
}

}  // namespace megalith
