// Reads a Hugging Face tokenizer.json. What is not understood is an error that names the element, never
// skipped.
#include <simdjson.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/text/byte_alphabet.h"
#include "megalith/text/tokenizer_implementation.h"

namespace megalith {

namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

// Ids index tables, so a damaged file must not ask for gigabytes.
constexpr int64_t kMaximumId = (1 << 24) - 1;

// An element with its place in the document, for error messages.
class Node {
 public:
  Node(element value, std::string path) : value_(value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  [[noreturn]] void wrong(std::string_view problem) const { fail_input("{}: {}", path_, problem); }

  bool is_null() const { return value_.is_null(); }
  // The member, or nothing when it is absent or null.
  std::optional<Node> member(std::string_view key) const {
    element found;
    if (as_object().at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return std::nullopt;
    return Node(found, path_ + "." + std::string(key));
  }
  Node required(std::string_view key) const {
    auto found = member(key);
    if (!found) fail_input("{}.{}: missing", path_, key);
    return *found;
  }
  object as_object() const {
    object result;
    if (value_.get(result) != simdjson::SUCCESS) wrong("expected an object");
    return result;
  }
  std::vector<Node> as_array() const {
    array items;
    if (value_.get(items) != simdjson::SUCCESS) wrong("expected an array");
    std::vector<Node> result;
    for (const element item : items) result.emplace_back(item, fmt::format("{}[{}]", path_, result.size()));
    return result;
  }
  array raw_array() const {
    array items;
    if (value_.get(items) != simdjson::SUCCESS) wrong("expected an array");
    return items;
  }
  std::string_view text() const {
    std::string_view result;
    if (value_.get(result) != simdjson::SUCCESS) wrong("expected a string");
    return result;
  }
  bool boolean() const {
    bool result = false;
    if (value_.get(result) != simdjson::SUCCESS) wrong("expected true or false");
    return result;
  }
  bool boolean(std::string_view key, bool absent) const {
    const auto found = member(key);
    return found ? found->boolean() : absent;
  }
  int32_t id() const {
    int64_t result = 0;
    if (value_.get(result) != simdjson::SUCCESS || result < 0 || result > kMaximumId) {
      wrong(fmt::format("expected a token id from 0 to {}", kMaximumId));
    }
    return static_cast<int32_t>(result);
  }
  void only_keys(std::initializer_list<std::string_view> known) const {
    for (const auto field : as_object()) {
      if (std::find(known.begin(), known.end(), field.key) == known.end()) {
        fail_input("{}.{}: not supported", path_, field.key);
      }
    }
  }

 private:
  element value_;
  std::string path_;
};

SplitBehavior read_behavior(const Node& node, bool invert) {
  const std::string_view name = node.text();
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  // Removing what does not match keeps the matches; text in between is kept too here, as pieces of its own.
  if (name == "Removed" && invert) return SplitBehavior::isolated;
  if (name == "Removed") node.wrong("'Removed' would lose text, which is not supported");
  node.wrong(fmt::format("'{}' is not a known split behavior", name));
}

class Reader {
 public:
  Reader(Tokenizer::Implementation& out, const Node& root) : out_(out), root_(root) {}

  void read() {
    root_.only_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "model"});
    if (const auto version = root_.member("version"); version && version->text() != "1.0") {
      version->wrong("only version 1.0 is supported");
    }
    for (const char* key : {"truncation", "padding"}) {
      if (const auto setting = root_.member(key)) {
        log_warning("{}: texts are neither cut nor padded here; the setting is ignored", setting->path());
      }
    }
    if (const auto normalizer = root_.member("normalizer")) {
      normalizer->wrong(fmt::format("normalizer '{}' is not supported", normalizer->required("type").text()));
    }
    read_pre_tokenizer();
    read_decoder();
    read_model();
    if (const auto post_processor = root_.member("post_processor")) read_post_processor(*post_processor);
  }

 private:
  void read_pre_tokenizer() {
    const Node node = root_.required("pre_tokenizer");
    std::vector<Node> steps = {node};
    if (node.required("type").text() == "Sequence") steps = node.required("pretokenizers").as_array();
    bool byte_level = false;
    for (const Node& step : steps) {
      if (byte_level) step.wrong("nothing may follow ByteLevel");
      const Node type = step.required("type");
      if (type.text() == "ByteLevel") {
        byte_level = true;
        if (step.boolean("add_prefix_space", true)) {
          if (steps.size() > 1)
            fail_input("{}.add_prefix_space: only supported when ByteLevel is the only step", step.path());
          out_.pre_tokenizer.add_prefix_space = true;
        }
        if (step.boolean("use_regex", true)) {
          out_.pre_tokenizer.steps.emplace_back(kGpt2Pattern, SplitBehavior::isolated, false, step.path());
        }
      } else if (type.text() == "Split") {
        const Node pattern = step.required("pattern");
        const auto regex = pattern.member("Regex");
        const auto literal = pattern.member("String");
        if (!regex == !literal) pattern.wrong("expected one of Regex and String");
        const bool invert = step.boolean("invert", false);
        const Node& which = regex ? *regex : *literal;
        if (which.text().empty()) which.wrong("the pattern is empty");
        out_.pre_tokenizer.steps.emplace_back(regex ? std::string(which.text()) : quote_regex(which.text()),
                                              read_behavior(step.required("behavior"), invert), invert,
                                              which.path());
      } else if (type.text() == "Digits") {
        const bool one_by_one = step.boolean("individual_digits", false);
        out_.pre_tokenizer.steps.emplace_back(
            "\\p{N}", one_by_one ? SplitBehavior::isolated : SplitBehavior::contiguous, false, step.path());
      } else {
        type.wrong(fmt::format("pre-tokenizer '{}' is not supported", type.text()));
      }
    }
    if (!byte_level) node.wrong("only byte-level tokenizers are supported, and there is no ByteLevel step");
  }

  void read_decoder() {
    Node node = root_.required("decoder");
    if (node.required("type").text() == "Sequence") {
      const auto steps = node.required("decoders").as_array();
      if (steps.size() != 1) node.wrong("only a sequence of one ByteLevel decoder is supported");
      node = steps[0];
    }
    const Node type = node.required("type");
    if (type.text() != "ByteLevel") type.wrong(fmt::format("decoder '{}' is not supported", type.text()));
  }

  void read_model() {
    const Node model = root_.required("model");
    if (const auto type = model.member("type"); type && type->text() != "BPE") {
      type->wrong(fmt::format("model '{}' is not supported", type->text()));
    }
    model.only_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                     "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (const auto dropout = model.member("dropout")) dropout->wrong("merge dropout is not supported");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (const auto affix = model.member(key); affix && !affix->text().empty())
        affix->wrong("not supported");
    }
    out_.model.ignore_merges = model.boolean("ignore_merges", false);
    read_tokens(model);
    read_merges(model.required("merges"));
  }

  void read_tokens(const Node& model) {
    const Node vocabulary = model.required("vocab");
    std::vector<std::pair<std::string_view, int32_t>> entries;
    int64_t largest = -1;
    for (const auto field : vocabulary.as_object()) {
      const auto where = [&] { return fmt::format("{}['{}']", vocabulary.path(), field.key); };
      int64_t id = 0;
      if (field.value.get(id) != simdjson::SUCCESS || id < 0 || id > kMaximumId) {
        fail_input("{}: expected a token id from 0 to {}", where(), kMaximumId);
      }
      largest = std::max(largest, id);
      entries.emplace_back(field.key, static_cast<int32_t>(id));
    }
    read_added_tokens(largest);
    out_.pieces = PieceTable(largest + 1);
    out_.special.assign(static_cast<size_t>(largest + 1), false);
    piece_ids_.reserve(entries.size());
    for (const auto& [piece, id] : entries) {
      const auto where = [&, text = piece] { return fmt::format("{}['{}']", vocabulary.path(), text); };
      if (out_.pieces.has(id)) fail_input("{}: id {} is given twice", where(), id);
      if (piece.empty()) fail_input("{}: an empty piece", where());
      if (!piece_ids_.emplace(piece, id).second) fail_input("{}: the piece is given twice", where());
      const auto bytes = unspell_bytes(piece);
      const auto added = out_.added_by_content.find(piece);
      if (added != out_.added_by_content.end() && bytes && *bytes != piece) {
        fail_input("{}: the piece is also an added token, so that its id could mean either text", where());
      }
      // A piece outside the byte alphabet cannot come from the merges; it stands for its own text.
      out_.pieces.set(id, bytes ? std::string_view(*bytes) : piece);
      if (bytes) {
        out_.pieces.index(id);
        if (bytes->size() == 1) {
          out_.model.byte_ids[static_cast<unsigned char>((*bytes)[0])] = id;
          ++bytes_found_;
        }
      }
    }
    if (bytes_found_ == 0) vocabulary.wrong("no byte has a piece, so no text could be encoded");
    if (bytes_found_ != 256 && (model.member("unk_token") || model.boolean("byte_fallback", false))) {
      vocabulary.wrong(
          fmt::format("{} of the 256 bytes have no piece, and what unk_token and byte_fallback put there is "
                      "not supported",
                      256 - bytes_found_));
    }
    for (const AddedToken& token : out_.added_tokens) {
      const auto piece = piece_ids_.find(token.content);
      if (piece != piece_ids_.end() && piece->second != token.id) {
        fail_input("{}.added_tokens: '{}' has id {}, but {} in the vocabulary", root_.path(), token.content,
                   token.id, piece->second);
      }
      if (piece == piece_ids_.end()) {
        if (out_.pieces.has(token.id)) {
          fail_input("{}.added_tokens: '{}' has id {}, which belongs to another piece", root_.path(),
                     token.content, token.id);
        }
        out_.pieces.set(token.id, token.content);
      }
      out_.special[static_cast<size_t>(token.id)] = token.special;
    }
    out_.added_token_finder = AddedTokenFinder(out_.added_tokens);
  }

  void read_added_tokens(int64_t& largest) {
    const auto list = root_.member("added_tokens");
    if (!list) return;
    for (const Node& node : list->as_array()) {
      node.only_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token;
      token.content = node.required("content").text();
      token.id = node.required("id").id();
      token.special = node.boolean("special", false);
      token.single_word = node.boolean("single_word", false);
      token.lstrip = node.boolean("lstrip", false);
      token.rstrip = node.boolean("rstrip", false);
      token.normalized = node.boolean("normalized", !token.special);
      if (token.content.empty()) fail_input("{}.content: empty", node.path());
      if (!out_.added_by_content.emplace(token.content, token.id).second) {
        fail_input("{}.content: '{}' is given twice", node.path(), token.content);
      }
      largest = std::max<int64_t>(largest, token.id);
      out_.added_tokens.push_back(std::move(token));
    }
  }

  void read_merges(const Node& merges) {
    const array list = merges.raw_array();
    out_.model.merges = MergeTable(list.size());
    uint32_t rank = 0;
    std::string joined;
    for (const element item : list) {
      const auto where = [&] { return fmt::format("{}[{}]", merges.path(), rank); };
      std::string_view left, right;
      array pair;
      std::string_view line;
      if (item.get(line) == simdjson::SUCCESS) {
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
          fail_input("{}: expected two pieces and one space between them", where());
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else if (item.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
                 pair.at(0).get(left) != simdjson::SUCCESS || pair.at(1).get(right) != simdjson::SUCCESS) {
        fail_input("{}: expected two pieces", where());
      }
      joined.assign(left).append(right);
      const auto id_of = [&](std::string_view piece) {
        const auto found = piece_ids_.find(piece);
        if (found == piece_ids_.end()) fail_input("{}: '{}' is not in the vocabulary", where(), piece);
        return found->second;
      };
      out_.model.merges.insert(id_of(left), id_of(right), {rank, id_of(joined)});
      ++rank;
    }
  }

  void read_post_processor(const Node& node) {
    const Node type = node.required("type");
    if (type.text() == "ByteLevel") return;  // Concerns offsets alone, which are never trimmed here.
    if (type.text() == "Sequence") {
      for (const Node& step : node.required("processors").as_array()) {
        if (step.required("type").text() == "Sequence")
          step.wrong("a sequence inside a sequence is not supported");
        read_post_processor(step);
      }
      return;
    }
    if (type.text() != "TemplateProcessing") {
      type.wrong(fmt::format("post-processor '{}' is not supported", type.text()));
    }
    if (template_read_) node.wrong("a second template is not supported");
    template_read_ = true;
    bool text_seen = false;
    for (const Node& part : node.required("single").as_array()) {
      if (part.member("Sequence")) {
        if (text_seen) part.wrong("the text may come only once");
        text_seen = true;
        continue;
      }
      const Node name = part.required("SpecialToken").required("id");
      const Node token = node.required("special_tokens").required(name.text());
      for (const Node& id : token.required("ids").as_array()) {
        if (!out_.pieces.has(id.id())) id.wrong("no token has this id");
        (text_seen ? out_.suffix_ids : out_.prefix_ids).push_back(id.id());
      }
    }
    if (!text_seen) node.wrong("the template has no place for the text");
  }

  Tokenizer::Implementation& out_;
  const Node& root_;
  std::unordered_map<std::string_view, int32_t> piece_ids_;
  int bytes_found_ = 0;
  bool template_read_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer::Implementation> read_tokenizer_json(std::string_view json, std::string_view name) {
  auto out = std::make_unique<Tokenizer::Implementation>();
  out->json = json;
  simdjson::dom::parser parser;
  element document;
  const auto error = parser.parse(json.data(), json.size()).get(document);
  if (error != simdjson::SUCCESS) fail_input("{}: not valid JSON: {}", name, simdjson::error_message(error));
  const Node root(document, std::string(name));
  if (!document.is_object()) root.wrong("expected an object");
  Reader(*out, root).read();
  return out;
}

}  // namespace megalith
