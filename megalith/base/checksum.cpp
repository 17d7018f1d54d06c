#include "megalith/base/checksum.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace megalith {

std::string checksum(const void* data, size_t bytes) {
  return fmt::format("xxh3:{:016x}", static_cast<uint64_t>(XXH3_64bits(data, bytes)));
}

}  // namespace megalith
