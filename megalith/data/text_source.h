// Finds and reads text: plain files, JSON lines, directories, gzip and Zstandard streams, standard input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// A stream of bytes, decompressed as its first bytes say (gzip and Zstandard, also several members one after
/// the other).
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Reads up to `size` bytes; 0 at the end only. Throws InputError naming the file when it is damaged or
  /// unreadable.
  virtual size_t read(char* buffer, size_t size) = 0;
};

/// Opens a file, or standard input for "-".
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

/// A file to read, and how.
struct InputFile {
  std::string path;  // "-" for standard input.
  bool json_lines = false;
};

/// The files of a list of paths. A directory stands for all files below it with a known ending (.txt .text
/// .md .rst .jsonl .ndjson .json, each also with .gz or .zst), sorted by path. Files given by name are read
/// whatever their ending: as JSON lines when it is .jsonl, .ndjson or .json (before .gz or .zst), else as
/// plain text; standard input as JSON lines with `stdin_is_json`. Throws InputError for a path that does not
/// exist and for a directory without such files.
std::vector<InputFile> find_input_files(const std::vector<std::string>& paths, bool stdin_is_json = false);

/// One document before it is parsed: a line of a JSON lines file, or a text.
struct RawRecord {
  uint32_t file = 0;  // Index in the list of files.
  uint64_t line = 0;  // Line of its begin, from 1.
  bool json = false;
  std::string text;
};

struct RecordReaderOptions {
  /// Plain files: a line equal to this ends a document (the line itself is not part of any). Empty: a file is
  /// one document.
  std::string document_separator = {};
  /// Plain files without separator: documents are cut into parts of about this many bytes where no word is
  /// cut, for callers that do not care about documents. 0: never.
  size_t part_bytes = 0;
  /// Longer records of any kind are refused, so that memory stays bounded.
  size_t maximum_record_bytes = size_t{1} << 31;
};

/// Reads the records of files in order. A byte order mark at the begin of a file is dropped; "\r\n" ends a
/// line of a JSON lines file like "\n", and stays as it is in plain text.
class RecordReader {
 public:
  RecordReader(std::vector<InputFile> files, RecordReaderOptions options);
  ~RecordReader();

  /// False at the end of the last file. Throws InputError when a file cannot be read or a record is too long.
  bool next(RawRecord& record);
  const std::string& path(uint32_t file) const { return files_[file].path; }
  /// Decompressed bytes read so far.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  bool open_next();
  bool fill();
  bool next_line(std::string& line);
  bool next_text(RawRecord& record);

  std::vector<InputFile> files_;
  RecordReaderOptions options_;
  std::unique_ptr<ByteStream> stream_;
  size_t next_file_ = 0;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_end_ = true;
  uint64_t line_ = 0;
  uint64_t bytes_read_ = 0;
  bool file_gave_record_ = false;
};

}  // namespace megalith
