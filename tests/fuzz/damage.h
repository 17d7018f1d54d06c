// One edit of a file of each kind.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/odd_values.h"

namespace megalith::fuzz {

/// One value, name or part of a document; `others` give parts.
void damage_json(nlohmann::ordered_json& root, const std::vector<nlohmann::ordered_json>& others,
                 Random& random);
/// Puts values nested deeply into the text of a document, where damage_json() left a mark for them.
void deepen(std::string& json, Random& random);
/// What a serializer would not write: this goes on the text.
void damage_text(std::string& text, Random& random);
/// `marks` are places where a number counts something; `other` gives parts.
void damage_bytes(std::string& bytes, const std::vector<uint32_t>& marks, const std::string& other,
                  Random& random);
/// Places of GGUF files: 64-bit lengths of texts, and what follows the texts (types, counts).
std::vector<uint32_t> find_marks(const std::string& bytes);
/// A field of a protocol buffer, or its bytes.
void damage_protobuf(std::string& bytes, const std::string& other, Random& random);
/// `width` bytes at `at` as a number; 0 behind the end.
uint64_t number_at(const std::string& bytes, size_t at, size_t width);

}  // namespace megalith::fuzz
