#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "megalith/base/random.h"
#include "tests/fuzz/seeds.h"

namespace megalith::fuzz {

namespace {

using Json = nlohmann::ordered_json;

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t state) : state_(state) {}
  uint64_t word() { return mix64(state_++, 0x5bd1e995); }
  /// In [0, below).
  size_t below(size_t below) { return static_cast<size_t>(word() % below); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class List>
  const auto& of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  uint64_t state_;
};

constexpr std::array<uint64_t, 30> kNumbers = {0,
                                               1,
                                               2,
                                               3,
                                               4,
                                               5,
                                               8,
                                               9,
                                               10,
                                               127,
                                               128,
                                               255,
                                               256,
                                               65535,
                                               65536,
                                               1u << 20,
                                               (1u << 24) - 1,
                                               (1u << 30) - 1,
                                               1u << 30,
                                               0x7fffffff,
                                               0x80000000,
                                               0xffffffff,
                                               uint64_t{1} << 32,
                                               uint64_t{1} << 50,
                                               (uint64_t{1} << 53) + 1,
                                               uint64_t{1} << 61,
                                               0x7fffffffffffffff,
                                               0x8000000000000000,
                                               0xfffffffffffffff0,
                                               0xffffffffffffffff};

constexpr double kReals[] = {0.5,   -1.5, 1e-320, 1e308, -0.0, 1e19, -1e19, 3.4e38,
                             1e300, 1e-9, 0.1,    2.5,   1e6,  1e15, -1e-30};

// Parts of regular expressions, templates and names among them: what means something to a parser.
const std::vector<std::string> kTexts = {"",
                                         "a",
                                         " ",
                                         "\n",
                                         std::string("\0", 1),
                                         "\u2581",
                                         "\u00e9",
                                         "e\u0301",
                                         "\ufb03",
                                         "\U0001D518",
                                         "\U0010FFFF",
                                         "\ufffd",
                                         "\u200d\u0300\u0300",
                                         "ab",
                                         "##",
                                         "</w>",
                                         "<unk>",
                                         "<0x41>",
                                         "<0xFF>",
                                         "<s>",
                                         "$A",
                                         "$0:1",
                                         "$",
                                         ":0",
                                         "(a*)*b",
                                         "(a+)+$",
                                         "(?:a|aa)+c",
                                         "\\p{L}+|\\p{N}{1,3}|[^\\s\\p{L}]+",
                                         "(?<=a)b",
                                         "(?=a)",
                                         "(?!)",
                                         "\\K",
                                         "a\\Kb",
                                         "(?=ab\\K)",
                                         "$|^",
                                         "\\b",
                                         "(?R)?",
                                         "(a(?1)?b)",
                                         "(?i:'s|'t)",
                                         "a{0,65535}",
                                         "(a{1000}){1000}",
                                         "[",
                                         "[^\\S\\s]",
                                         "\\Qa",
                                         "(*UTF)a",
                                         "(*LIMIT_MATCH=1)a+",
                                         "(*ACCEPT)",
                                         ".",
                                         "\\X",
                                         "\\R",
                                         "(?s).*",
                                         "\\s+(?!\\S)|\\s+",
                                         "\\",
                                         "Right",
                                         "Left",
                                         "Removed",
                                         "Isolated",
                                         "MergedWithPrevious",
                                         "MergedWithNext",
                                         "Contiguous",
                                         "always",
                                         "never",
                                         "first",
                                         "linear",
                                         "dynamic",
                                         "yarn",
                                         "longrope",
                                         "llama3",
                                         "su",
                                         "F32",
                                         "F16",
                                         "BF16",
                                         "U8",
                                         "I64",
                                         "BOOL",
                                         "F8_E4M3",
                                         "C64",
                                         "gelu",
                                         "silu",
                                         "relu",
                                         "../x",
                                         "/",
                                         "manifest.json",
                                         "note.txt",
                                         "xxh3:0000000000000000",
                                         std::string(300, 'a'),
                                         std::string(5000, 'x')};

constexpr std::string_view kDeep = "@deep@";

Json odd_value(Random& random) {
  switch (random.below(12)) {
    case 0:
      return nullptr;
    case 1:
      return random.one_in(2);
    case 2:
      return random.of(kReals);
    case 3:
      return static_cast<int64_t>(~random.of(kNumbers) + 1);  // Negative ones.
    case 4:
      return Json::array();
    case 5:
      return Json::object();
    case 6:
      return Json::array({random.of(kNumbers), random.of(kTexts)});
    case 7: {
      Json object = Json::object();
      object[random.of(kTexts)] = random.of(kNumbers);
      return object;
    }
    case 8:
    case 9:
      return random.of(kTexts);
    default:
      return random.of(kNumbers);
  }
}

// A place in a document, sooner one near the top.
Json& somewhere(Json& root, Random& random) {
  Json* node = &root;
  while (node->is_structured() && !node->empty() && !(node != &root && random.one_in(4))) {
    auto child = node->begin();
    std::advance(child, static_cast<std::ptrdiff_t>(random.below(node->size())));
    node = &*child;
  }
  return *node;
}

void damage_object(Json& node, Random& random) {
  auto& object = node.get_ref<Json::object_t&>();
  const size_t at = random.below(object.size());
  const auto entry = object.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random.below(5)) {
    case 0:
      object.erase(entry);
      break;
    case 1: {  // Another name.
      Json value = entry->second;
      object.erase(entry);
      object.emplace_back(random.of(kTexts), std::move(value));
      break;
    }
    case 2: {  // A name twice, which the text then has.
      const auto copy = *entry;
      object.emplace_back(copy.first, copy.second);
      break;
    }
    case 3: {  // Values change places.
      Json other = (object.begin() + static_cast<std::ptrdiff_t>(random.below(object.size())))->second;
      entry->second = std::move(other);
      break;
    }
    default:
      entry->second = odd_value(random);
  }
}

void damage_array(Json& node, Random& random) {
  auto& array = node.get_ref<Json::array_t&>();
  const auto entry = array.begin() + static_cast<std::ptrdiff_t>(random.below(array.size()));
  switch (random.below(5)) {
    case 0:
      array.erase(entry);
      break;
    case 1: {
      Json copy = *entry;
      array.insert(entry, std::move(copy));
      break;
    }
    case 2:
      array.resize(random.below(array.size() + 1));
      break;
    case 3: {
      const Json copy = *entry;
      array.insert(array.end(), random.one_in(100) ? 2000 : 3, copy);
      break;
    }
    default:
      *entry = odd_value(random);
  }
}

void damage(Json& root, const std::vector<Json>& others, Random& random) {
  Json& node = somewhere(root, random);
  switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
      if (node.is_object() && !node.empty()) return damage_object(node, random);
      if (node.is_array() && !node.empty()) return damage_array(node, random);
      node = odd_value(random);
      return;
    case 3: {  // A part of another file, or of this one.
      Json other = random.of(others);
      Json part = somewhere(other, random);
      node = std::move(part);
      return;
    }
    case 4: {
      Json part = somewhere(root, random);
      if (node.is_array()) {
        node.push_back(std::move(part));
      } else {
        node = std::move(part);
      }
      return;
    }
    case 5:
      if (node.is_number_integer()) {
        node = static_cast<int64_t>(node.get<uint64_t>() + random.below(5) - 2);
        return;
      }
      node = random.of(kNumbers);
      return;
    case 6:
      if (node.is_string()) {
        auto& text = node.get_ref<std::string&>();
        text.insert(random.below(text.size() + 1), random.of(kTexts));
        return;
      }
      node = Json::array({node});
      return;
    case 7:
      if (random.one_in(60)) {
        node = kDeep;
        return;
      }
      [[fallthrough]];
    default:
      node = odd_value(random);
  }
}

std::string deep(Random& random) {
  constexpr size_t kDepths[] = {9, 260, 1030, 20000, 200000};
  const size_t depth = random.one_in(8) ? random.of(kDepths) : kDepths[random.below(3)];
  std::string text;
  const bool objects = random.one_in(2), closed = !random.one_in(8);
  for (size_t i = 0; i < depth; ++i) text += objects ? "{\"a\":" : "[";
  text += "1";
  if (closed) text.append(depth, objects ? '}' : ']');
  return text;
}

// What a serializer would not write: these go on the text.
void damage_text(std::string& text, Random& random) {
  static const std::vector<std::string> kSnippets = {"\\ud800",
                                                     "\\udc00\\ud800",
                                                     "\\u0000",
                                                     "1e999",
                                                     "-1e999",
                                                     "1E400",
                                                     "-0",
                                                     "NaN",
                                                     "Infinity",
                                                     "0x10",
                                                     "01",
                                                     "1.",
                                                     "\"",
                                                     "\\",
                                                     "{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     ",",
                                                     ":",
                                                     "#",
                                                     "\n",
                                                     "\r\n",
                                                     "=",
                                                     "''",
                                                     "'''",
                                                     "\"\"\"",
                                                     "[[a]]",
                                                     "[a.b]",
                                                     "[model]",
                                                     "true",
                                                     "inf",
                                                     "nan",
                                                     "{a=1}",
                                                     "1979-05-27T07:32:00Z",
                                                     "1_000",
                                                     "9223372036854775808",
                                                     "-9223372036854775809",
                                                     "18446744073709551616",
                                                     "\xFF",
                                                     "\xC3",
                                                     "\xED\xA0\x80",
                                                     "\xF4\x90\x80\x80",
                                                     "\xEF\xBB\xBF",
                                                     "/**/",
                                                     "99999999999999999999999999",
                                                     "\x80",
                                                     "=== 5",
                                                     " 16777215",
                                                     " 4294967296",
                                                     "YQ==",
                                                     "AAAA"};
  const size_t at = random.below(text.size() + 1);
  switch (random.below(8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random.word());
      break;
    case 1:
      if (at < text.size()) text.erase(at, 1 + random.below(random.one_in(4) ? 200 : 8));
      break;
    case 2:
      text.insert(at, text.substr(random.below(text.size() + 1), random.below(60)));
      break;
    case 3:
      if (random.one_in(4)) text.resize(at);
      break;
    case 4: {  // A word, a number or a value becomes another.
      const size_t begin = text.find_first_of("0123456789\"=:", at);
      if (begin == std::string::npos) break;
      const size_t end = std::min(text.find_first_of(",\n}] ", begin + 1), text.size());
      const std::string value = random.one_in(2)   ? std::to_string(random.of(kNumbers))
                                : random.one_in(2) ? "\"" + random.of(kTexts) + "\""
                                                   : random.of(kSnippets);
      text.replace(begin + 1, end - begin - 1, value);
      break;
    }
    case 5: {  // A line twice, or gone.
      const size_t begin = text.rfind('\n', at);
      if (begin == std::string::npos) break;
      const size_t end = std::min(text.find('\n', begin + 1), text.size());
      if (random.one_in(2)) {
        text.erase(begin, end - begin);
      } else {
        text.insert(begin, text.substr(begin, end - begin));
      }
      break;
    }
    default:
      text.insert(at, random.one_in(300) ? deep(random) : random.of(kSnippets));
  }
}

void set_number(std::string& bytes, size_t at, uint64_t value, size_t width) {
  if (at + width > bytes.size()) return;
  std::memcpy(bytes.data() + at, &value, width);
}

uint64_t number_at(const std::string& bytes, size_t at, size_t width) {
  uint64_t value = 0;
  if (at + width <= bytes.size()) std::memcpy(&value, bytes.data() + at, width);
  return value;
}

// `marks` are places where a number counts something.
void damage_bytes(std::string& bytes, const std::vector<uint32_t>& marks, const std::string& other,
                  Random& random) {
  if (bytes.empty()) return;
  size_t at = random.below(bytes.size());
  if (random.one_in(2)) at = random.below(std::min<size_t>(bytes.size(), 256));  // Headers come first.
  if (!marks.empty() && !random.one_in(3)) at = std::min<size_t>(random.of(marks), bytes.size() - 1);
  constexpr size_t kWidths[] = {1, 2, 4, 8};
  const size_t width = random.of(kWidths);
  switch (random.below(9)) {
    case 0:
      bytes[at] = static_cast<char>(random.word());
      break;
    case 1:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
      break;
    case 2:
    case 3:
      set_number(bytes, at, random.of(kNumbers), width);
      break;
    case 4:
      set_number(bytes, at, number_at(bytes, at, width) + random.below(9) - 4, width);
      break;
    case 5:
      if (random.one_in(3)) {
        bytes.resize(at);
      } else {
        bytes.erase(at, 1 + random.below(random.one_in(3) ? 64 : 8));
      }
      break;
    case 6:
      bytes.insert(at, bytes.substr(random.below(bytes.size()), 1 + random.below(64)));
      break;
    case 7:
      bytes.replace(at, 1 + random.below(32), other.substr(random.below(other.size() + 1), random.below(64)));
      break;
    default:
      if (random.one_in(2)) {
        bytes.append(1 + random.below(64), static_cast<char>(random.word()));
      } else {
        bytes.insert(at, random.of(kTexts).substr(0, 300));
      }
  }
}

// Places of GGUF files: 64-bit lengths of texts, and what follows the texts (types, counts).
std::vector<uint32_t> find_marks(const std::string& bytes) {
  std::vector<uint32_t> marks;
  for (size_t at = 0; at + 9 < bytes.size(); ++at) {
    const uint64_t length = number_at(bytes, at, 8);
    if (length < 3 || length > 64 || at + 8 + length > bytes.size()) continue;
    const std::string_view text = std::string_view(bytes).substr(at + 8, length);
    if (!std::all_of(text.begin(), text.end(), [](char c) { return c > 32 && c < 127; })) continue;
    // The vocabulary is long, and one of its texts is like the others.
    if (text.find('.') == std::string_view::npos && at % 16 != 0) continue;
    for (const size_t place : {at, at + 8, at + 8 + length, at + 12 + length, at + 16 + length,
                               at + 20 + length, at + 24 + length, at + 28 + length, at + 36 + length}) {
      marks.push_back(static_cast<uint32_t>(place));
    }
  }
  return marks;
}

// Protocol buffers: fields at the top, [begin, end).
std::vector<std::pair<size_t, size_t>> find_fields(const std::string& bytes) {
  std::vector<std::pair<size_t, size_t>> fields;
  for (size_t at = 0; at + 2 < bytes.size();) {
    const size_t begin = at;
    if ((bytes[at++] & 7) != 2) break;
    uint64_t length = 0;
    for (int shift = 0; at < bytes.size() && shift < 28; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      length |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) break;
    }
    at = std::min<size_t>(bytes.size(), at + length);
    fields.emplace_back(begin, at);
  }
  return fields;
}

std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
  return text + static_cast<char>(value);
}

void damage_protobuf(std::string& bytes, const std::string& other, Random& random) {
  const auto fields = find_fields(bytes), theirs = find_fields(other);
  if (fields.empty() || theirs.empty() || random.one_in(4)) {
    return damage_bytes(bytes, {}, other, random);
  }
  // The last two fields say how; they are few among many pieces.
  const auto pick = [&](const auto& list) {
    const size_t last = list.size() - 1;
    return list[random.one_in(2) ? random.below(list.size()) : last - std::min(last, random.below(2))];
  };
  const auto [begin, end] = pick(fields);
  const auto [from, to] = pick(theirs);
  switch (random.below(5)) {
    case 0:
      bytes.erase(begin, end - begin);
      break;
    case 1:
      bytes.insert(begin, other.substr(from, to - from));
      break;
    case 2:
      bytes.replace(begin, end - begin, other.substr(from, to - from));
      break;
    default: {  // Something inside changes, and the length with it.
      size_t data = begin + 1;
      while (data < end && static_cast<unsigned char>(bytes[data]) >= 128) ++data;
      if (data >= end) break;
      std::string inside = bytes.substr(data + 1, end - data - 1);
      if (random.one_in(3)) {
        const size_t field = 1 + random.below(60), kind = random.below(6);
        std::string value = varint(random.of(kNumbers));
        if (kind == 1) value.assign(8, '\x7f');
        if (kind == 5) value.assign(4, '\xff');
        if (kind == 2) value = varint(random.of(kTexts).size()) + random.of(kTexts);
        inside += varint(field << 3 | kind) + value;
      } else {
        damage_bytes(inside, {}, other.substr(from, to - from), random);
      }
      bytes.replace(begin, end - begin, bytes.substr(begin, 1) + varint(inside.size()) + inside);
    }
  }
}

}  // namespace

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
        for (size_t i = 0; i < edits; ++i) damage(document, seeds_->documents, random);
      }
      bytes = document.dump(-1, ' ', random.one_in(2), Json::error_handler_t::replace);
      if (in_text) {
        for (size_t i = 0; i < edits; ++i) damage_text(bytes, random);
      }
      const std::string place = "\"" + std::string(kDeep) + "\"";
      for (size_t at; (at = bytes.find(place)) != std::string::npos;)
        bytes.replace(at, place.size(), deep(random));
      if (tensors) {
        uint64_t length = bytes.size();
        if (random.one_in(20)) length += random.below(17) - 8;
        if (random.one_in(40)) length = random.of(kNumbers);
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
