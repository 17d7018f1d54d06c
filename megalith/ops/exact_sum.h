// ExactSum: a sum of squares that does not depend on how the numbers are shared out.
//
// Squares are added up in groups of 16 in double, in a fixed order; the groups are then added as integers,
// which is exact and so may happen in any order. Threads, ranks, pipeline stages and ZeRO parts that cut the
// numbers at multiples of 16 all get the same bits.
#pragma once

#include <array>
#include <cstdint>

#include "megalith/tensor/exec.h"

namespace megalith {

class ExactSum {
 public:
  static constexpr int64_t kGroup = 16;

  /// Adds the squares of x, F32. Groups are counted from its first element; a shorter last group is filled
  /// with zeros.
  void add_squares(const ExecContext& context, TensorView x);
  /// Adds what another part, of this or another rank, has added up.
  void add(const ExactSum& other);
  /// NaN when a square was not finite.
  double value() const;

 private:
  // Bin i holds multiples of 2^(32 (i + kFirstBin) - 1075): the groups whose exponent field, in units of 32,
  // is i + kFirstBin. Squares of fp32 numbers reach from 2^-298 to 2^256. A group adds less than 2^85 to its
  // bin.
  static constexpr int kFirstBin = 22, kBins = 19;
  void add_group(double sum);

  std::array<unsigned __int128, kBins> bins_{};
  uint64_t not_finite_ = 0;
  uint64_t padding_ = 0;  // ranks exchange the bytes
};

}  // namespace megalith
