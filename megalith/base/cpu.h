// Which kernels this machine can run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megalith {

/// Instruction-set levels that kernels are compiled for, each including the ones before it.
enum class IsaLevel : int {
  v3 = 0,    // x86-64-v3: AVX2, FMA, F16C
  v4 = 1,    // x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  bf16 = 2,  // v4 with AVX512_BF16 and AVX512_VNNI
  amx = 3,   // bf16 with AMX tiles (AMX_BF16, AMX_INT8), permitted by the operating system
};

std::string_view name(IsaLevel level);

/// The best level of this machine.
IsaLevel detected_isa();

/// The level in use: the detected one, or a lower one forced by the environment variable MEGALITH_ISA (v3,
/// v4, bf16, amx). Read once, at the first call. Throws InputError for an unknown name or a level above the
/// machine's.
IsaLevel active_isa();

/// The processor's own name, for reports.
std::string cpu_model();

/// Bytes of memory of the machine, or of the container that this process is in.
uint64_t total_memory_bytes();

/// Largest resident size of this process so far, in bytes.
uint64_t peak_resident_bytes();

/// Threads that work is split over by default: the environment variable OMP_NUM_THREADS, else the usable
/// cores.
int default_threads();

/// The name of this machine in its network.
std::string host_name();

}  // namespace megalith
