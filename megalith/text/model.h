// A model: the part of a tokenizer that turns one piece of a text into ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "megalith/text/tokenizer_description.h"

namespace megalith {

class PieceTable;
class Splitter;

/// Bytes [begin, end) of a piece that a token stands for.
struct TokenRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

/// Memory for encoding, reused from piece to piece.
struct ModelScratch {
  /// A part of a piece that may still be joined to its neighbours.
  struct Symbol {
    uint32_t begin;
    uint32_t length;
    int32_t id;
    bool frozen;
  };
  struct Node {
    int32_t id;
    int64_t previous;
    int64_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t id;
    int64_t position;
    int32_t left;
    int32_t right;
  };
  /// The best way to a place of a piece.
  template <class Score>
  struct Best {
    Score score;
    int64_t from;  // Negative: there is no way.
    int32_t id;
  };
  std::vector<Node> nodes;
  std::vector<Candidate> heap;
  std::vector<Symbol> symbols;
  std::vector<Best<double>> best;
  std::vector<Best<float>> best_float;
  /// Bytes or characters without a token so far: they were left out.
  uint64_t dropped_bytes = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of a piece that is not empty, and to `ranges`, unless null, what they stand for. Throws
  /// InputError when the piece has no ids.
  virtual void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const = 0;
  /// The same for bytes that are no UTF-8: a token for each byte where the model has them, else one unknown
  /// token for all.
  virtual void encode_invalid(std::string_view bytes, ModelScratch& scratch, std::vector<int32_t>& ids,
                              std::vector<TokenRange>* ranges) const = 0;
  /// Cuts a piece where the model could never join both sides; null when nothing is known.
  virtual const Splitter* words() const { return nullptr; }
};

/// The tokens "<0x00>" to "<0xFF>" of a vocabulary, or an unknown token, for what has no piece.
class UnknownText {
 public:
  UnknownText(const PieceTable& pieces, bool byte_fallback, int32_t unknown_id);
  int32_t unknown_id() const { return unknown_id_; }
  bool has_bytes(std::string_view text) const;
  int32_t byte(char byte) const { return byte_ids_[static_cast<unsigned char>(byte)]; }
  /// Invalid bytes, as Model::encode_invalid says.
  void encode_invalid(std::string_view bytes, ModelScratch& scratch, std::vector<int32_t>& ids,
                      std::vector<TokenRange>* ranges) const;

 private:
  std::vector<int32_t> byte_ids_;
  bool byte_fallback_;
  int32_t unknown_id_;
};

/// What a model is made from besides its vocabulary.
struct ModelParts {
  const ModelStep& step;
  const PieceTable& pieces;
  /// -1 when there is none.
  int32_t unknown_id;
};

std::unique_ptr<Model> make_scored_bpe(const ModelParts& parts);
std::unique_ptr<Model> make_unigram(const ModelParts& parts);
std::unique_ptr<Model> make_word_piece(const ModelParts& parts);
std::unique_ptr<Model> make_word_level(const ModelParts& parts);

}  // namespace megalith
