// Damage to JSON documents and to texts.
#include <algorithm>

#include "tests/fuzz/damage.h"

namespace megalith::fuzz {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDeep = "@deep@";

Json odd_value(Random& random) {
  switch (random.below(12)) {
    case 0:
      return nullptr;
    case 1:
      return random.one_in(2);
    case 2:
      return random.of(odd_reals());
    case 3:
      return static_cast<int64_t>(~random.of(odd_numbers()) + 1);  // Negative ones.
    case 4:
      return Json::array();
    case 5:
      return Json::object();
    case 6:
      return Json::array({random.of(odd_numbers()), random.of(odd_texts())});
    case 7: {
      Json object = Json::object();
      object[random.of(odd_texts())] = random.of(odd_numbers());
      return object;
    }
    case 8:
    case 9:
      return random.of(odd_texts());
    default:
      return random.of(odd_numbers());
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
      object.emplace_back(random.of(odd_texts()), std::move(value));
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

}  // namespace

void damage_json(Json& root, const std::vector<Json>& others, Random& random) {
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
      node = random.of(odd_numbers());
      return;
    case 6:
      if (node.is_string()) {
        auto& text = node.get_ref<std::string&>();
        text.insert(random.below(text.size() + 1), random.of(odd_texts()));
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

void deepen(std::string& json, Random& random) {
  const std::string place = "\"" + std::string(kDeep) + "\"";
  for (size_t at; (at = json.find(place)) != std::string::npos;) json.replace(at, place.size(), deep(random));
}

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
      const std::string value = random.one_in(2)   ? std::to_string(random.of(odd_numbers()))
                                : random.one_in(2) ? "\"" + random.of(odd_texts()) + "\""
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

}  // namespace megalith::fuzz
