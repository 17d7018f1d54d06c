#include "megalith/data/record_parser.h"

#include <simdjson.h>

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "megalith/base/error.h"
#include "megalith/base/utf8.h"

namespace megalith {

std::string_view name(Reject kind) {
  switch (kind) {
    case Reject::blank_line:
      return "blank line";
    case Reject::bad_json:
      return "bad JSON";
    case Reject::not_object:
      return "not an object";
    case Reject::missing_key:
      return "missing key";
    case Reject::not_string:
      return "not a string";
    case Reject::invalid_utf8:
      return "invalid UTF-8";
    case Reject::empty_text:
      return "empty text";
    case Reject::count:
      break;
  }
  return "";
}

struct RecordParser::State {
  std::vector<std::string> keys;
  simdjson::dom::parser parser;
};

RecordParser::RecordParser(std::vector<std::string> keys) : state_(std::make_unique<State>()) {
  state_->keys = std::move(keys);
}
RecordParser::~RecordParser() = default;
RecordParser::RecordParser(RecordParser&&) noexcept = default;

void RecordParser::parse(const RawRecord& record, ParsedRecord& parsed) {
  parsed.reject.reset();
  parsed.texts.clear();
  const std::string& text = record.text;
  if (!record.json) {
    if (text.empty()) {
      parsed.reject = Reject::empty_text;
    } else if (!is_valid_utf8(text)) {
      parsed.reject = Reject::invalid_utf8;
    } else {
      parsed.texts.emplace_back(text);
    }
    return;
  }
  if (std::all_of(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\t' || c == '\r'; })) {
    parsed.reject = Reject::blank_line;
    return;
  }
  simdjson::dom::element document;
  const auto error = state_->parser.parse(text).get(document);
  if (error != simdjson::SUCCESS) {
    parsed.reject =
        error == simdjson::UTF8_ERROR || !is_valid_utf8(text) ? Reject::invalid_utf8 : Reject::bad_json;
    return;
  }
  simdjson::dom::object object;
  if (document.get(object) != simdjson::SUCCESS) {
    parsed.reject = Reject::not_object;
    return;
  }
  bool any = false;
  for (const std::string& key : state_->keys) {
    simdjson::dom::element value;
    if (object.at_key(key).get(value) != simdjson::SUCCESS) {
      parsed.texts.emplace_back();
      continue;
    }
    std::string_view content;
    if (value.get(content) != simdjson::SUCCESS) {
      parsed.reject = Reject::not_string;
      return;
    }
    if (content.empty()) {
      parsed.reject = Reject::empty_text;
      return;
    }
    parsed.texts.emplace_back(content);
    any = true;
  }
  if (!any) parsed.reject = Reject::missing_key;
}

RejectLog::RejectLog(const std::string& reject_file, bool strict) : strict_(strict) {
  if (!reject_file.empty()) file_.emplace(reject_file);
}

void RejectLog::reject(const std::string& path, const RawRecord& record, Reject kind) {
  const std::string place = fmt::format("{}:{}", path, record.line);
  if (file_) {
    const nlohmann::ordered_json line = {{"file", path},
                                         {"line", record.line},
                                         {"reason", name(kind)},
                                         {"raw", replace_invalid_utf8(record.text)}};
    file_->write(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  if (strict_ && kind != Reject::blank_line) {
    finish();
    fail_input("{}: {} (strict mode: the first bad record ends the run)", place, name(kind));
  }
  auto& count = counts_[static_cast<size_t>(kind)];
  if (count++ == 0) first_place_[static_cast<size_t>(kind)] = place;
}

void RejectLog::missing(size_t key) {
  if (missing_.size() <= key) missing_.resize(key + 1);
  ++missing_[key];
}

void RejectLog::finish() {
  if (!file_) return;
  file_->close();
  file_.reset();
}

uint64_t RejectLog::dropped() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

std::string RejectLog::summary() const {
  std::string text = fmt::format("{} records: {} kept, {} dropped", kept_ + dropped(), kept_, dropped());
  std::string kinds;
  for (size_t kind = 0; kind < kRejectKinds; ++kind) {
    if (counts_[kind] == 0) continue;
    kinds += fmt::format("{}{} {} (first: {})", kinds.empty() ? "" : ", ", counts_[kind],
                         name(static_cast<Reject>(kind)), first_place_[kind]);
  }
  return kinds.empty() ? text : text + ": " + kinds;
}

}  // namespace megalith
