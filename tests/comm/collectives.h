// What every transport must do, checked on one rank of a group; shared by the thread and the MPI tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/float16.h"
#include "megalith/base/random.h"
#include "megalith/comm/communicator.h"

namespace megalith {

/// Values of a rank, repeating: a wide range, so that the order of a sum shows.
inline std::vector<float> values_of(int rank) {
  constexpr uint64_t kPeriod = 4999;
  const RandomStream stream(9, RandomUse::sampling, static_cast<uint64_t>(rank));
  std::vector<float> values;
  for (uint64_t i = 0; i < kPeriod; ++i) {
    const float sign = stream.word(i) % 2 == 0 ? 1.0f : -1.0f;
    values.push_back(sign * std::exp(8.0f * stream.uniform(i + 7)));
  }
  return values;
}

/// Sums of 16-bit elements are those of fp32, rounded once.
template <class T>
void check_sum_of(Communicator& ranks) {
  const int n = ranks.size();
  const int64_t count = int64_t{1001} * n;
  std::vector<float> expected(static_cast<size_t>(count), 0.0f);
  std::vector<T> own(static_cast<size_t>(count));
  for (int r = 0; r < n; ++r) {
    const std::vector<float> values = values_of(r);
    for (size_t i = 0; i < expected.size(); ++i) {
      const T element(values[i % values.size()]);
      if (r == ranks.rank()) own[i] = element;
      expected[i] = r == 0 ? static_cast<float>(element) : expected[i] + static_cast<float>(element);
    }
  }
  std::vector<T> scattered = own;
  ranks.all_reduce(TensorView(own.data(), dtype_of<T>(), {count}));
  ranks.reduce_scatter(TensorView(scattered.data(), dtype_of<T>(), {count}));
  for (size_t i = 0; i < expected.size(); ++i) {
    const uint16_t bits = T(expected[i]).bits;
    check(own[i].bits == bits, "all_reduce of 16 bits: element {}", i);
    const bool mine = static_cast<int64_t>(i) / (count / n) == ranks.rank();
    check(!mine || scattered[i].bits == bits, "reduce_scatter of 16 bits: element {}", i);
  }
}

inline void check_16_bit_sums(Communicator& ranks) {
  check_sum_of<BFloat16>(ranks);
  check_sum_of<Float16>(ranks);
}

/// Messages around the ring, small and large, received in another order of tags than sent.
inline void check_messages(Communicator& ranks) {
  const int n = ranks.size(), self = ranks.rank(), next = (self + 1) % n, previous = (self + n - 1) % n;
  for (const int64_t count : {int64_t{1}, int64_t{1} << 20}) {
    const auto message = [&](int from, int tag) {
      std::vector<float> data(static_cast<size_t>(count));
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<float>(from * 1000 + tag) + static_cast<float>(i % 7);
      return data;
    };
    std::vector<std::vector<float>> sent;
    std::vector<std::unique_ptr<PendingSend>> pending;
    for (int tag = 0; tag < 3; ++tag) sent.push_back(message(self, tag));
    for (int tag = 0; tag < 3; ++tag)
      pending.push_back(
          ranks.send(TensorView(sent[static_cast<size_t>(tag)].data(), DType::f32, {count}), next, tag));
    std::vector<float> received(static_cast<size_t>(count));
    for (const int tag : {2, 0, 1}) {
      ranks.recv(TensorView(received.data(), DType::f32, {count}), previous, tag);
      check(received == message(previous, tag), "recv of {} with tag {}", count, tag);
    }
    for (const auto& send : pending) send->wait();
    // The same tag twice: in the order of sending.
    pending.clear();
    for (const int which : {1, 2})
      pending.push_back(
          ranks.send(TensorView(sent[static_cast<size_t>(which)].data(), DType::f32, {count}), next, 9));
    for (const int which : {1, 2}) {
      ranks.recv(TensorView(received.data(), DType::f32, {count}), previous, 9);
      check(received == message(previous, which), "recv: two messages of one tag are out of order");
    }
    for (const auto& send : pending) send->wait();
    for (int root = 0; root < n; ++root) {
      std::vector<float> data = message(self, 5);
      ranks.broadcast(TensorView(data.data(), DType::f32, {count}), root);
      check(data == message(root, 5), "broadcast of {} from {}", count, root);
    }
  }
}

/// Groups of odd and of even ranks, counted backwards, and a group cut from a group.
inline void check_groups(Communicator& ranks) {
  const int n = ranks.size(), self = ranks.rank();
  const auto half = ranks.split(self % 2, -self, "half");
  const int members = self % 2 == 0 ? (n + 1) / 2 : n / 2;
  check(half->size() == members && half->rank() == members - 1 - self / 2, "split: rank {} of {}",
        half->rank(), half->size());
  double sum[1] = {static_cast<double>(self)};
  half->sum(sum);
  double expected = 0;
  for (int r = self % 2; r < n; r += 2) expected += r;
  check(sum[0] == expected, "sum over a group is {} instead of {}", sum[0], expected);
  const auto alone = half->split(half->rank(), 0, "alone");
  check(alone->size() == 1, "a group of one has {} ranks", alone->size());
  ranks.barrier();
}

/// Throws Error at the first difference.
inline void check_collectives(Communicator& ranks) {
  const int n = ranks.size(), self = ranks.rank();
  check(n > 1, "this test must run on several ranks, not on one");
  const std::vector<float> own = values_of(self);
  const int64_t period = static_cast<int64_t>(own.size());
  std::vector<float> expected(own.size());
  for (int r = 0; r < n; ++r) {
    const std::vector<float> theirs = values_of(r);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = r == 0 ? theirs[i] : expected[i] + theirs[i];
  }
  // Around windows and message sizes: one element, odd numbers, more than a 4 MiB window.
  for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{1000}, int64_t{3} << 20}) {
    std::vector<float> data(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = own[static_cast<size_t>(i % period)];
    ranks.all_reduce(TensorView(data.data(), DType::f32, {count}));
    for (int64_t i = 0; i < count; ++i) {
      check(data[static_cast<size_t>(i)] == expected[static_cast<size_t>(i % period)],
            "all_reduce of {}: element {} is {}", count, i, data[static_cast<size_t>(i)]);
    }
    for (int root = 0; root < n; ++root) {
      for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = own[static_cast<size_t>(i % period)];
      ranks.reduce(TensorView(data.data(), DType::f32, {count}), root);
      for (int64_t i = 0; self == root && i < count; ++i) {
        check(data[static_cast<size_t>(i)] == expected[static_cast<size_t>(i % period)],
              "reduce of {}: element {}", count, i);
      }
    }
    const int64_t padded = count * n;
    data.resize(static_cast<size_t>(padded));
    for (int64_t i = 0; i < padded; ++i) data[static_cast<size_t>(i)] = own[static_cast<size_t>(i % period)];
    ranks.reduce_scatter(TensorView(data.data(), DType::f32, {padded}));
    for (int64_t i = self * count; i < (self + 1) * count; ++i) {
      check(data[static_cast<size_t>(i)] == expected[static_cast<size_t>(i % period)],
            "reduce_scatter of {}: element {}", padded, i);
    }
    std::vector<uint16_t> halves(static_cast<size_t>(padded), 0);
    for (int64_t i = self * count; i < (self + 1) * count; ++i)
      halves[static_cast<size_t>(i)] = static_cast<uint16_t>(i % 60000);
    ranks.all_gather(TensorView(halves.data(), DType::bf16, {padded}));
    for (int64_t i = 0; i < padded; ++i) {
      check(halves[static_cast<size_t>(i)] == i % 60000, "all_gather of {}: element {}", padded, i);
    }
  }
  check_16_bit_sums(ranks);
  check_messages(ranks);
  check_groups(ranks);
  double sums[2] = {static_cast<double>(self), 0.5};
  ranks.sum(sums);
  check(sums[0] == n * (n - 1) / 2.0 && sums[1] == 0.5 * n, "sum gave {} and {}", sums[0], sums[1]);
  const std::vector<std::string> texts = ranks.gather_texts(std::string(static_cast<size_t>(self * 3), 'x'));
  for (int r = 0; r < n; ++r)
    check(texts[static_cast<size_t>(r)].size() == static_cast<size_t>(r * 3), "gather_texts");
  check(ranks.counters().calls > 0 && ranks.counters().bytes > 0, "nothing was counted");
}

}  // namespace megalith
