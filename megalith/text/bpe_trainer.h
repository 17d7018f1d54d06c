// Trains a byte-level BPE vocabulary from text.
//
// Words are the pieces of the split pattern, counted exactly in 64 bits. Each merge joins the pair with the
// highest count; ties go to the smaller left id, then the smaller right id (the rule of Hugging Face's
// BpeTrainer, whose merges are the same on the same text). Ids: special tokens first, then the 256 bytes in
// the order of their alphabet characters, then the merges.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/text/tokenizer.h"

namespace megalith {

struct BpeTrainerOptions {
  /// Ids in all, special tokens and bytes included; the vocabulary stays smaller when the text runs out of
  /// pairs.
  int64_t vocabulary_size = 32000;
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  /// "gpt2" or "llama3", see split_pattern().
  std::string pattern = "gpt2";
  /// Pairs that occur less often are not merged.
  int64_t minimum_count = 1;
  /// Longer pieces are cut at this many bytes (between characters) before they are counted, so that a corpus
  /// without spaces costs time linear in its size. No token can then be longer.
  size_t maximum_piece_bytes = 256;
  int threads = 1;
};

class BpeTrainer {
 public:
  /// Throws InputError for a vocabulary too small for the bytes and special tokens, an unknown pattern,
  /// repeated or empty special tokens.
  explicit BpeTrainer(BpeTrainerOptions options);
  ~BpeTrainer();
  BpeTrainer(const BpeTrainer&) = delete;
  BpeTrainer& operator=(const BpeTrainer&) = delete;

  /// Counts the words of whole documents, in parallel; the result does not depend on how documents are
  /// grouped in calls.
  void add_documents(std::span<const std::string_view> documents);
  void add_document(std::string_view document) { add_documents({&document, 1}); }
  /// Counts one word as it is, without splitting.
  void add_word(std::string_view bytes, int64_t count);

  /// Learns the merges. `progress(done, wanted)` is called now and then. Ends the counting: call once.
  Tokenizer train(const std::function<void(int64_t, int64_t)>& progress = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megalith
