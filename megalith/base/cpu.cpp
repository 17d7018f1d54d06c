#include "megalith/base/cpu.h"

#include <cpuid.h>
#include <omp.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "megalith/base/error.h"

namespace megalith {

namespace {

bool amx_usable() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool tiles = (d >> 24) & 1u, bf16 = (d >> 22) & 1u, int8 = (d >> 25) & 1u;
  if (!(tiles && bf16 && int8)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

IsaLevel detect() {
  __builtin_cpu_init();
  check_input(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
              "this processor lacks AVX2 and FMA (x86-64-v3), which Megalith needs");
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  if (!v4) return IsaLevel::v3;
  if (!(__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))) return IsaLevel::v4;
  return amx_usable() ? IsaLevel::amx : IsaLevel::bf16;
}

IsaLevel choose() {
  const IsaLevel best = detected_isa();
  const char* forced = std::getenv("MEGALITH_ISA");
  if (forced == nullptr || *forced == '\0') return best;
  for (const IsaLevel level : {IsaLevel::v3, IsaLevel::v4, IsaLevel::bf16, IsaLevel::amx}) {
    if (name(level) != forced) continue;
    check_input(level <= best, "MEGALITH_ISA={} asks for more than this machine has; its best level is {}",
                forced, name(best));
    return level;
  }
  fail_input("MEGALITH_ISA={} is not a level; choose v3, v4, bf16 or amx", forced);
}

}  // namespace

std::string_view name(IsaLevel level) {
  switch (level) {
    case IsaLevel::v3:
      return "v3";
    case IsaLevel::v4:
      return "v4";
    case IsaLevel::bf16:
      return "bf16";
    case IsaLevel::amx:
      return "amx";
  }
  return "?";
}

IsaLevel detected_isa() {
  static const IsaLevel level = detect();
  return level;
}

IsaLevel active_isa() {
  static const IsaLevel level = choose();
  return level;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

uint64_t total_memory_bytes() {
  const uint64_t machine =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
  // A container may be given less; the file holds a number or "max".
  uint64_t limit = 0;
  std::ifstream group("/sys/fs/cgroup/memory.max");
  return group >> limit ? std::min(machine, limit) : machine;
}

uint64_t peak_resident_bytes() {
  // Not getrusage first: its maximum survives exec and would count a larger parent.
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

int default_threads() {
  return omp_get_max_threads();
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace megalith
