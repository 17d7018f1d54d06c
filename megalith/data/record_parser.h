// From records to texts: reads JSON lines, counts what is refused and why.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/base/file.h"
#include "megalith/data/text_source.h"

namespace megalith {

/// Why a record gives no document.
enum class Reject {
  blank_line,    // A line of a JSON lines file without content.
  bad_json,      // Not JSON (NaN and lone surrogates included), or nested deeper than 1024.
  not_object,    // JSON, but no object.
  missing_key,   // None of the wanted keys is there.
  not_string,    // A wanted key holds something else (null, a number, a list).
  invalid_utf8,  // Bytes that are no UTF-8.
  empty_text,    // A text without any byte.
  count
};
constexpr size_t kRejectKinds = static_cast<size_t>(Reject::count);
std::string_view name(Reject kind);

/// The texts of a record, one for each wanted key; a key is empty when the record lacks it. A plain text has
/// one text.
struct ParsedRecord {
  std::optional<Reject> reject;
  std::vector<std::optional<std::string>> texts;
};

/// Parses records; one a thread. A record is refused when its line is bad, when a wanted key holds no string
/// or an empty one, or when no wanted key is there; a key that only some records lack is counted by its name.
/// Of repeated keys the first one counts.
class RecordParser {
 public:
  explicit RecordParser(std::vector<std::string> keys);
  ~RecordParser();
  RecordParser(RecordParser&&) noexcept;

  void parse(const RawRecord& record, ParsedRecord& parsed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Counts kept and refused records, and writes the refused ones to a file.
class RejectLog {
 public:
  /// `reject_file` may be empty. In `strict` mode the first refused record (blank lines excepted) throws
  /// InputError with its place. Throws Error when the file cannot be written.
  RejectLog(const std::string& reject_file, bool strict);

  void keep() { ++kept_; }
  /// `path` and the record's line say where it was. The reject file gets one JSON object a line: file, line,
  /// reason, and the record itself as `raw` (with U+FFFD for bytes that are no UTF-8).
  void reject(const std::string& path, const RawRecord& record, Reject kind);
  void missing(size_t key);
  void finish();

  uint64_t kept() const { return kept_; }
  uint64_t dropped() const;
  uint64_t dropped(Reject kind) const { return counts_[static_cast<size_t>(kind)]; }
  uint64_t missing_count(size_t key) const { return key < missing_.size() ? missing_[key] : 0; }
  /// "100 records: 97 kept, 3 dropped (2 bad JSON, 1 empty text)", and where the first of each kind was.
  std::string summary() const;

 private:
  bool strict_;
  std::optional<OutputFile> file_;
  uint64_t kept_ = 0;
  std::array<uint64_t, kRejectKinds> counts_{};
  std::array<std::string, kRejectKinds> first_place_;
  std::vector<uint64_t> missing_;
};

}  // namespace megalith
