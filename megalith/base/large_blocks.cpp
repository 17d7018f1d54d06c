#include "megalith/base/large_blocks.h"

#include <malloc.h>

namespace megalith {

void set_large_blocks(LargeBlocks blocks) {
  const bool kept = blocks == LargeBlocks::kept;
  // The smaller thresholds are the largest that glibc's adaptive rule arrives at by itself.
  mallopt(M_MMAP_THRESHOLD, kept ? 1 << 30 : 32 << 20);
  mallopt(M_TRIM_THRESHOLD, kept ? 1 << 30 : 64 << 20);
  mallopt(M_TOP_PAD, kept ? 1 << 24 : 1 << 17);
}

}  // namespace megalith
