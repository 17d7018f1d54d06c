// WordPiece: the longest piece at the begin of a word, then the longest that continues it. WordLevel: words.
#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/bpe_model.h"
#include "megalith/text/model.h"
#include "megalith/text/piece_trie.h"

namespace megalith {

namespace {

void add_unknown(const ModelParts& parts, int32_t id, std::string_view word, std::vector<int32_t>& ids,
                 std::vector<TokenRange>* ranges) {
  check_input(id >= 0, "{}: '{}' has no token, and the token of unknown words is not in the vocabulary",
              parts.step.unknown_element, word);
  ids.push_back(id);
  if (ranges != nullptr) ranges->push_back({0, static_cast<uint32_t>(word.size())});
}

class WordPiece final : public Model {
 public:
  explicit WordPiece(const ModelParts& parts)
      : step_{.unknown_element = parts.step.unknown_element,
              .continuing_prefix = parts.step.continuing_prefix,
              .maximum_word_characters = parts.step.maximum_word_characters},
        parts_{step_, parts.pieces, parts.unknown_id} {
    size_t bytes = 0;
    for (const VocabularyPiece& piece : parts.step.pieces) bytes += piece.text.size();
    begins_ = PieceTrie(bytes);
    continues_ = PieceTrie(bytes);
    const std::string_view prefix = step_.continuing_prefix;
    for (const VocabularyPiece& piece : parts.step.pieces) {
      begins_.insert(piece.text, piece.id);
      if (piece.text.starts_with(prefix)) continues_.insert(piece.text.substr(prefix.size()), piece.id);
    }
  }

  void encode(std::string_view word, ModelScratch&, std::vector<int32_t>& ids,
              std::vector<TokenRange>* ranges) const override {
    // No more characters than bytes: most words need no counting.
    if (static_cast<int64_t>(word.size()) > step_.maximum_word_characters) {
      int64_t characters = 0;
      for (const char c : word) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
      if (characters > step_.maximum_word_characters)
        return add_unknown(parts_, parts_.unknown_id, word, ids, ranges);
    }
    const size_t first = ids.size(), first_range = ranges != nullptr ? ranges->size() : 0;
    for (size_t at = 0; at < word.size();) {
      const PieceTrie& trie = at == 0 ? begins_ : continues_;
      uint32_t node = 0;
      int32_t longest = -1;
      size_t end = at;
      for (size_t i = at; i < word.size(); ++i) {
        node = trie.child(node, word[i]);
        if (node == 0) break;
        if (trie.value(node) >= 0) {
          longest = trie.value(node);
          end = i + 1;
        }
      }
      if (longest < 0) {
        ids.resize(first);
        if (ranges != nullptr) ranges->resize(first_range);
        return add_unknown(parts_, parts_.unknown_id, word, ids, ranges);
      }
      ids.push_back(longest);
      if (ranges != nullptr) ranges->push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
      at = end;
    }
  }

  void encode_invalid(std::string_view bytes, ModelScratch&, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const override {
    add_unknown(parts_, parts_.unknown_id, bytes, ids, ranges);
  }

 private:
  ModelStep step_;  // Without the vocabulary.
  ModelParts parts_;
  PieceTrie begins_, continues_;
};

class WordLevel final : public Model {
 public:
  explicit WordLevel(const ModelParts& parts)
      : step_{.unknown_element = parts.step.unknown_element}, parts_{step_, parts.pieces, parts.unknown_id} {}

  void encode(std::string_view word, ModelScratch&, std::vector<int32_t>& ids,
              std::vector<TokenRange>* ranges) const override {
    const int32_t id = parts_.pieces.find(word);
    if (id < 0) return add_unknown(parts_, parts_.unknown_id, word, ids, ranges);
    ids.push_back(id);
    if (ranges != nullptr) ranges->push_back({0, static_cast<uint32_t>(word.size())});
  }
  void encode_invalid(std::string_view bytes, ModelScratch&, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const override {
    add_unknown(parts_, parts_.unknown_id, bytes, ids, ranges);
  }

 private:
  ModelStep step_;
  ModelParts parts_;
};

}  // namespace

std::unique_ptr<Model> make_word_piece(const ModelParts& parts) {
  return std::make_unique<WordPiece>(parts);
}

std::unique_ptr<Model> make_word_level(const ModelParts& parts) {
  return std::make_unique<WordLevel>(parts);
}

}  // namespace megalith
