// megalith bench parallel: layouts of two ranks with one thread against one process with two.
#pragma once

#include <cstdint>
#include <string>

namespace megalith {

struct ParallelBenchOptions {
  std::string json_file;
  /// Timed steps of a layout in each round.
  int64_t steps = 7;
  int64_t rounds = 3;
};

/// GPT-2 124M, bf16, 8 sequences of 256 tokens. Layouts take turns, so that the machine's moods meet all of
/// them. Outside of mpirun it replaces the program by mpirun with two ranks of it.
void bench_parallel(const ParallelBenchOptions& options);

}  // namespace megalith
