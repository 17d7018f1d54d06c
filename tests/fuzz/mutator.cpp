#include "tests/fuzz/mutator.h"

#include <nlohmann/json.hpp>

#include "tests/fuzz/damage.h"
#include "tests/fuzz/seeds.h"

namespace megalith::fuzz {

using Json = nlohmann::ordered_json;

struct Mutator::Seeds {
  FileKind kind;
  std::vector<std::string> files;
  std::vector<Json> documents;               // of JSON
  std::vector<std::vector<uint32_t>> marks;  // of binary files
};

Mutator::Mutator(std::string_view parser, const std::filesystem::path& tests, uint64_t seed)
    : seeds_(std::make_unique<Seeds>()), seed_(seed) {
  SeedFiles read = seed_files(parser, tests);
  seeds_->kind = read.kind;
  seeds_->files = std::move(read.files);
  for (const std::string& file : seeds_->files) {
    if (read.kind == FileKind::json) seeds_->documents.push_back(Json::parse(file));
    if (read.kind == FileKind::safetensors)
      seeds_->documents.push_back(Json::parse(file.substr(8, number_at(file, 0, 8))));
    seeds_->marks.push_back(read.kind == FileKind::binary ? find_marks(file) : std::vector<uint32_t>{});
  }
}

Mutator::~Mutator() = default;

const std::vector<std::string>& Mutator::originals() const {
  return seeds_->files;
}

std::string Mutator::input(uint64_t number) const {
  Random random(mix64(seed_, number));
  const size_t which = random.below(seeds_->files.size());
  const std::string& original = seeds_->files[which];
  const std::string& other = random.of(seeds_->files);
  const size_t edits = random.one_in(2) ? 1 : 1 + random.below(random.one_in(4) ? 8 : 3);
  std::string bytes;
  switch (seeds_->kind) {
    case FileKind::json:
    case FileKind::safetensors: {
      const bool tensors = seeds_->kind == FileKind::safetensors;
      Json document = seeds_->documents[which];
      const bool in_text = random.one_in(4);
      if (!in_text || random.one_in(4)) {
        for (size_t i = 0; i < edits; ++i) damage_json(document, seeds_->documents, random);
      }
      bytes = document.dump(-1, ' ', random.one_in(2), Json::error_handler_t::replace);
      if (in_text) {
        for (size_t i = 0; i < edits; ++i) damage_text(bytes, random);
      }
      deepen(bytes, random);
      if (tensors) {
        uint64_t length = bytes.size();
        if (random.one_in(20)) length += random.below(17) - 8;
        if (random.one_in(40)) length = random.of(odd_numbers());
        bytes.insert(0, reinterpret_cast<const char*>(&length), 8);
        bytes += original.substr(8 + number_at(original, 0, 8));
        if (random.one_in(20)) damage_bytes(bytes, {0, 7}, other, random);
      }
      break;
    }
    case FileKind::text:
      bytes = original;
      for (size_t i = 0; i < edits; ++i) damage_text(bytes, random);
      break;
    case FileKind::binary:
      bytes = original;
      for (size_t i = 0; i < edits; ++i) damage_bytes(bytes, seeds_->marks[which], other, random);
      break;
    case FileKind::protobuf:
      bytes = original;
      for (size_t i = 0; i < edits; ++i) damage_protobuf(bytes, other, random);
      break;
  }
  return bytes;
}

}  // namespace megalith::fuzz
