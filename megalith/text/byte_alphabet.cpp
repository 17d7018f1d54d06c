#include "megalith/text/byte_alphabet.h"

#include "megalith/base/utf8.h"

namespace megalith {

namespace {

constexpr uint16_t kAlphabetEnd = 0x144;  // 256 + the 68 bytes that have no printable character of their own.

constexpr std::array<uint16_t, 256> make_alphabet() {
  std::array<uint16_t, 256> alphabet{};
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    alphabet[static_cast<size_t>(byte)] = printable ? static_cast<uint16_t>(byte) : next++;
  }
  return alphabet;
}

constexpr std::array<int16_t, kAlphabetEnd> make_inverse() {
  std::array<int16_t, kAlphabetEnd> inverse{};
  for (auto& entry : inverse) entry = -1;
  const auto alphabet = make_alphabet();
  for (int byte = 0; byte < 256; ++byte)
    inverse[alphabet[static_cast<size_t>(byte)]] = static_cast<int16_t>(byte);
  return inverse;
}

constexpr std::array<uint16_t, 256> kAlphabet = make_alphabet();
constexpr std::array<int16_t, kAlphabetEnd> kInverse = make_inverse();

}  // namespace

const std::array<uint16_t, 256>& byte_alphabet() {
  return kAlphabet;
}

std::string spell_bytes(std::string_view bytes) {
  std::string piece;
  piece.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(piece, kAlphabet[static_cast<unsigned char>(byte)]);
  return piece;
}

std::optional<std::string> unspell_bytes(std::string_view piece) {
  std::string bytes;
  bytes.reserve(piece.size());
  for (size_t offset = 0; offset < piece.size();) {
    const uint32_t code_point = next_code_point(piece, offset);
    if (code_point >= kAlphabetEnd || kInverse[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kInverse[code_point]));
  }
  return bytes;
}

}  // namespace megalith
