// What malloc does with large blocks that are freed. Arenas do not use malloc; third parties do.
#pragma once

namespace megalith {

enum class LargeBlocks {
  /// glibc's way: each is mapped anew, and its pages are faulted in again on every use.
  returned,
  /// They stay with the process, so that only the first use faults pages in.
  kept,
};

/// For blocks that are allocated from now on.
void set_large_blocks(LargeBlocks blocks);

}  // namespace megalith
