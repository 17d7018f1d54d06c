// Counts what this program takes through operator new (allocations.cpp replaces it).
#pragma once

#include <cstddef>

namespace megalith::fuzz {

/// From here on the peak counts from what is held now, and asking for more than `most` bytes at once or in
/// all throws std::bad_alloc.
void begin_counting(size_t most);
/// The largest number of bytes held since, beyond what was held then.
size_t stop_counting();

}  // namespace megalith::fuzz
