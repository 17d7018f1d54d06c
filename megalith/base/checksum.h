// Checksums that files carry.
#pragma once

#include <cstddef>
#include <string>

namespace megalith {

/// "xxh3:" and the 64-bit XXH3 hash of the bytes in hexadecimal.
std::string checksum(const void* data, size_t bytes);

}  // namespace megalith
