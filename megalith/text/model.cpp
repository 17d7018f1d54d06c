#include "megalith/text/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/text/bpe_model.h"

namespace megalith {

UnknownText::UnknownText(const PieceTable& pieces, bool byte_fallback, int32_t unknown_id)
    : byte_ids_(256, -1), byte_fallback_(byte_fallback), unknown_id_(unknown_id) {
  if (!byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte)
    byte_ids_[static_cast<size_t>(byte)] = pieces.find(fmt::format("<0x{:02X}>", byte));
}

bool UnknownText::has_bytes(std::string_view text) const {
  return byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) { return byte(c) >= 0; });
}

void UnknownText::encode_invalid(std::string_view bytes, ModelScratch& scratch, std::vector<int32_t>& ids,
                                 std::vector<TokenRange>* ranges) const {
  const auto size = static_cast<uint32_t>(bytes.size());
  if (has_bytes(bytes)) {
    for (uint32_t at = 0; at < size; ++at) {
      ids.push_back(byte(bytes[at]));
      if (ranges != nullptr) ranges->push_back({at, at + 1});
    }
  } else if (unknown_id_ >= 0) {
    ids.push_back(unknown_id_);
    if (ranges != nullptr) ranges->push_back({0, size});
  } else {
    scratch.dropped_bytes += bytes.size();
  }
}

}  // namespace megalith
