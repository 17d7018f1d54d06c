// Memory that encoding needs, lent to the threads that encode.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "megalith/text/added_tokens.h"
#include "megalith/text/aligned_text.h"
#include "megalith/text/model.h"
#include "megalith/text/word_cache.h"

namespace megalith {

/// Memory that one encoding call needs.
struct EncodeScratch {
  WordCache cache;
  ModelScratch model;
  std::vector<size_t> ends;
  std::vector<size_t> other_ends;
  std::vector<AddedTokenFinder::Part> parts;
  std::vector<TokenRange> ranges;
  AlignedText normalized, pre_tokenized, other;
};

/// There is as much scratch memory as threads encode at once.
class ScratchPool {
 public:
  std::unique_ptr<EncodeScratch> take();
  void give_back(std::unique_ptr<EncodeScratch> scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> idle_;
};

/// Scratch memory until the end of a block.
class BorrowedScratch {
 public:
  explicit BorrowedScratch(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
  ~BorrowedScratch() { pool_.give_back(std::move(scratch_)); }
  BorrowedScratch(const BorrowedScratch&) = delete;
  BorrowedScratch& operator=(const BorrowedScratch&) = delete;
  EncodeScratch& operator*() { return *scratch_; }

 private:
  ScratchPool& pool_;
  std::unique_ptr<EncodeScratch> scratch_;
};

}  // namespace megalith
