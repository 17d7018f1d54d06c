// Ids to text, whole and as a stream.
#include "megalith/base/error.h"
#include "megalith/base/utf8.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/tokenizer_implementation.h"

namespace megalith {

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  const Implementation& parts = *implementation_;
  std::string text;
  const bool joins = parts.byte_level && parts.decoder.joins_bytes();
  const auto stream = joins ? nullptr : parts.decoder.start();
  for (const int32_t id : ids) {
    const std::string_view bytes = token_bytes(id);
    if (skip_special && is_special(id)) continue;
    if (joins) {
      text.append(bytes);
    } else {
      parts.decode_token(*stream, id, text);
    }
  }
  if (stream) stream->finish(text);
  return text;
}

void Tokenizer::Implementation::decode_token(DecodeStream& stream, int32_t id, std::string& text) const {
  if (added[static_cast<size_t>(id)]) {
    const auto normalized = added_as_normalized.find(id);
    stream.token(
        normalized == added_as_normalized.end() ? pieces.bytes(id) : std::string_view(normalized->second),
        true, text);
  } else if (byte_level) {
    stream.token(spell_bytes(pieces.bytes(id)), false, text);
  } else {
    stream.token(pieces.bytes(id), false, text);
  }
}

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {
  const Tokenizer::Implementation& parts = *tokenizer.implementation_;
  if (!parts.byte_level || !parts.decoder.joins_bytes()) stream_ = parts.decoder.start();
}
StreamingDecoder::StreamingDecoder(StreamingDecoder&&) noexcept = default;
StreamingDecoder& StreamingDecoder::operator=(StreamingDecoder&&) noexcept = default;
StreamingDecoder::~StreamingDecoder() = default;

void StreamingDecoder::decode(int32_t id) {
  const std::string_view bytes = tokenizer_->token_bytes(id);
  if (skip_special_ && tokenizer_->is_special(id)) return;
  if (stream_) {
    tokenizer_->implementation_->decode_token(*stream_, id, pending_);
  } else {
    pending_.append(bytes);
  }
}

void StreamingDecoder::follow(std::span<const int32_t> ids) {
  for (const int32_t id : ids) push(id);
}

std::string StreamingDecoder::push(int32_t id) {
  decode(id);
  const size_t complete = complete_utf8_prefix(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamingDecoder::flush() {
  if (stream_) stream_->finish(pending_);
  std::string text = replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace megalith
