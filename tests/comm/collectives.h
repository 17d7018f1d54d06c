// What every transport must do, checked on one rank of a group; shared by the thread and the MPI tests.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "megalith/base/error.h"
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
  double sums[2] = {static_cast<double>(self), 0.5};
  ranks.sum(sums);
  check(sums[0] == n * (n - 1) / 2.0 && sums[1] == 0.5 * n, "sum gave {} and {}", sums[0], sums[1]);
  const std::vector<std::string> texts = ranks.gather_texts(std::string(static_cast<size_t>(self * 3), 'x'));
  for (int r = 0; r < n; ++r)
    check(texts[static_cast<size_t>(r)].size() == static_cast<size_t>(r * 3), "gather_texts");
  check(ranks.counters().calls > 0 && ranks.counters().bytes > 0, "nothing was counted");
}

}  // namespace megalith
