// The parts of a tokenizer, as tokenizer.json describes them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "megalith/text/added_tokens.h"
#include "megalith/text/bpe_model.h"
#include "megalith/text/pre_tokenizer.h"
#include "megalith/text/tokenizer.h"
#include "megalith/text/word_cache.h"

namespace megalith {

/// Memory that one encoding call needs.
struct EncodeScratch {
  WordCache cache;
  BpeScratch bpe;
  std::vector<size_t> ends;
  std::vector<size_t> other_ends;
  std::vector<AddedTokenFinder::Part> parts;
  std::string prefixed;
};

/// Lends scratch memory to the threads that encode; there is as much of it as threads encode at once.
class ScratchPool {
 public:
  std::unique_ptr<EncodeScratch> take();
  void give_back(std::unique_ptr<EncodeScratch> scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> idle_;
};

struct Tokenizer::Implementation {
  std::string json;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  PieceTable pieces;
  std::vector<AddedToken> added_tokens;
  AddedTokenFinder added_token_finder{{}};
  std::map<std::string, int32_t, std::less<>> added_by_content;
  std::vector<bool> special;  // By id.
  /// What the post-processor puts before and after a text.
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
  mutable ScratchPool scratch_pool;
  mutable std::once_flag dropped_bytes_told;

  /// Encodes text without added tokens. `on_piece(begin, end, first)` is called after each piece with its
  /// bounds in the text and the number of ids before it. `at_start`: the text begins a part, so a prefix
  /// space may belong before it.
  template <class OnPiece>
  void encode_plain(std::string_view text, bool at_start, EncodeScratch& scratch, std::vector<int32_t>& ids,
                    const OnPiece& on_piece) const;
};

/// Builds the parts from JSON text. Throws InputError naming the file and the element.
std::unique_ptr<Tokenizer::Implementation> read_tokenizer_json(std::string_view json, std::string_view name);

}  // namespace megalith
