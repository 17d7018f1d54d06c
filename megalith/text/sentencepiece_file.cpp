#include "megalith/text/sentencepiece_file.h"

#include <cstring>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"

namespace megalith {

namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

// One field of a message: a number, or bytes.
struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

// Reads the fields of a message one by one; nothing outside of it is ever looked at.
class Message {
 public:
  Message(std::string_view bytes, std::string_view name, const char* what)
      : bytes_(bytes), name_(name), what_(what) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = varint();
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire_type = static_cast<uint32_t>(tag & 7);
    field.value = 0;
    field.bytes = {};
    switch (field.wire_type) {
      case 0:
        field.value = varint();
        return true;
      case 1:
        field.bytes = take(8);
        return true;
      case 2:
        field.bytes = take(varint());
        return true;
      case 5:
        field.bytes = take(4);
        return true;
      default:
        damaged();
    }
  }
  [[noreturn]] void damaged() const {
    fail_input("{}: not a SentencePiece model, or a damaged one ({}, byte {} of {})", name_, what_, at_,
               bytes_.size());
  }
  std::string_view bytes(const Field& field) const {
    if (field.wire_type != 2) damaged();
    return field.bytes;
  }
  uint64_t number(const Field& field) const {
    if (field.wire_type != 0) damaged();
    return field.value;
  }
  float real(const Field& field) const {
    if (field.wire_type != 5) damaged();
    float value = 0;
    std::memcpy(&value, field.bytes.data(), sizeof(value));
    return value;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) damaged();
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) damaged();
    const std::string_view taken = bytes_.substr(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return taken;
  }

  std::string_view bytes_;
  std::string_view name_;
  const char* what_;
  size_t at_ = 0;
};

enum ModelType : uint64_t { kUnigram = 1, kBpe = 2 };

PieceKind kind_of(uint64_t type, const Message& message) {
  constexpr PieceKind kinds[] = {PieceKind::normal,       PieceKind::unknown, PieceKind::control,
                                 PieceKind::user_defined, PieceKind::unused,  PieceKind::byte};
  if (type < 1 || type > std::size(kinds)) message.damaged();
  return kinds[type - 1];
}

VocabularyPiece read_piece(std::string_view bytes, std::string_view name) {
  VocabularyPiece piece;
  Message message(bytes, name, "a piece");
  for (Field field; message.next(field);) {
    if (field.number == 1) piece.text = message.bytes(field);
    if (field.number == 2) piece.score = message.real(field);
    if (field.number == 3) piece.kind = kind_of(message.number(field), message);
  }
  piece.exact_score = static_cast<double>(piece.score);
  if (!is_valid_utf8(piece.text)) message.damaged();
  return piece;
}

}  // namespace

bool is_sentencepiece_model(std::string_view bytes) {
  // Field 1 with bytes, whose first field is again the text of a piece.
  return bytes.size() > 4 && bytes[0] == '\x0A' && bytes[2] == '\x0A';
}

TokenizerDescription read_sentencepiece_model(std::string_view bytes, std::string_view name) {
  TokenizerDescription out{.name = std::string(name)};
  ModelStep& model = out.model;
  NormalizerStep normalizer{.kind = NormalizerKind::sentencepiece,
                            .element = out.name + ": normalizer_spec.precompiled_charsmap",
                            .add_dummy_prefix = true,
                            .remove_extra_whitespaces = true,
                            .escape_whitespaces = true};
  uint64_t model_type = kUnigram;
  Message message(bytes, name, "the model");
  for (Field field; message.next(field);) {
    if (field.number == 1) {
      VocabularyPiece piece = read_piece(message.bytes(field), name);
      piece.id = static_cast<int32_t>(model.pieces.size());
      if (model.pieces.size() >= (1u << 24)) message.damaged();
      model.pieces.push_back(piece);
    } else if (field.number == 2) {
      Message trainer(message.bytes(field), name, "trainer_spec");
      for (Field inner; trainer.next(inner);) {
        if (inner.number == 3) model_type = trainer.number(inner);
        if (inner.number == 24) normalizer.whitespace_as_suffix = trainer.number(inner) != 0;
        if (inner.number == 35) model.byte_fallback = trainer.number(inner) != 0;
      }
    } else if (field.number == 3) {
      Message spec(message.bytes(field), name, "normalizer_spec");
      for (Field inner; spec.next(inner);) {
        if (inner.number == 2) normalizer.charsmap = spec.bytes(inner);
        if (inner.number == 3) normalizer.add_dummy_prefix = spec.number(inner) != 0;
        if (inner.number == 4) normalizer.remove_extra_whitespaces = spec.number(inner) != 0;
        if (inner.number == 5) normalizer.escape_whitespaces = spec.number(inner) != 0;
      }
    }
  }
  check_input(model_type == kUnigram || model_type == kBpe,
              "{}: trainer_spec.model_type {} is not supported; 1 (unigram) and 2 (bpe) are", name,
              model_type);
  check_input(!model.pieces.empty(), "{}: the model has no pieces", name);
  model.kind = model_type == kBpe ? ModelKind::scored_bpe : ModelKind::unigram;
  model.vocabulary_element = out.name + ": pieces";
  model.unknown_element = out.name + ": unk_id";
  model.as_sentencepiece = true;
  model.fuse_unknown = true;
  for (const VocabularyPiece& piece : model.pieces) {
    if (piece.kind == PieceKind::unknown && !model.unknown_id) model.unknown_id = piece.id;
    if (piece.kind == PieceKind::user_defined) normalizer.protected_texts.emplace_back(piece.text);
    const bool special = piece.kind == PieceKind::unknown || piece.kind == PieceKind::control;
    if (special && !piece.text.empty())
      out.added_tokens.push_back({.content = std::string(piece.text), .id = piece.id, .special = true});
  }
  check_input(model.unknown_id.has_value(), "{}: no piece is the unknown one", name);
  const bool strips = (normalizer.add_dummy_prefix || normalizer.remove_extra_whitespaces) &&
                      !normalizer.whitespace_as_suffix;
  if (normalizer.escape_whitespaces)
    out.decoder.push_back(
        {.kind = DecoderKind::replace, .pattern = {std::string(kSpaceSymbol), false}, .content = " "});
  out.decoder.push_back({.kind = DecoderKind::byte_fallback});
  out.decoder.push_back({.kind = DecoderKind::fuse});
  if (strips) out.decoder.push_back({.kind = DecoderKind::strip, .character = " ", .start = 1});
  out.normalizer.push_back(std::move(normalizer));
  return out;
}

}  // namespace megalith
