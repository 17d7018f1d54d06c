#include "megalith/data/text_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "megalith/base/error.h"
#include "megalith/text/stretch.h"

namespace megalith {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const std::string& path) : path_(path) {
    if (path == "-") {
      descriptor_ = STDIN_FILENO;
    } else {
      descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      check_input(descriptor_ >= 0, "{}: cannot be opened: {}", path, std::strerror(errno));
    }
  }
  ~PlainStream() override {
    if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
  }
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;

  size_t read(char* buffer, size_t size) override {
    while (true) {
      const ssize_t got = ::read(descriptor_, buffer, size);
      if (got >= 0) return static_cast<size_t>(got);
      check_input(errno == EINTR, "{}: cannot be read: {}", path_, std::strerror(errno));
    }
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Gives back the first bytes that were read to tell the format, then the rest of the stream.
class PeekedStream : public ByteStream {
 public:
  explicit PeekedStream(const std::string& path) : plain_(path) {
    while (peeked_ < first_.size()) {
      const size_t got = plain_.read(first_.data() + peeked_, first_.size() - peeked_);
      if (got == 0) break;
      peeked_ += got;
    }
  }
  size_t read(char* buffer, size_t size) override {
    if (given_ == peeked_) return plain_.read(buffer, size);
    const size_t part = std::min(size, peeked_ - given_);
    std::memcpy(buffer, first_.data() + given_, part);
    given_ += part;
    return part;
  }
  std::string_view first() const { return {first_.data(), peeked_}; }
  const std::string& path() const { return plain_.path(); }

 private:
  PlainStream plain_;
  std::array<char, 4> first_{};
  size_t peeked_ = 0;
  size_t given_ = 0;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(std::unique_ptr<PeekedStream> source)
      : source_(std::move(source)), input_(kBufferBytes) {
    check(inflateInit2(&state_, 15 + 16) == Z_OK, "{}: gzip: out of memory", source_->path());
  }
  ~GzipStream() override { inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(char* buffer, size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(buffer);
    state_.avail_out = static_cast<uInt>(std::min<size_t>(size, 1u << 30));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (state_.avail_in == 0) {
        state_.next_in = reinterpret_cast<Bytef*>(input_.data());
        state_.avail_in = static_cast<uInt>(source_->read(input_.data(), input_.size()));
        if (state_.avail_in == 0) {
          check_input(member_done_, "{}: gzip: the file ends in the middle", source_->path());
          return 0;
        }
      }
      if (member_done_) {  // Another member follows, or padding of zero bytes.
        while (state_.avail_in > 0 && *state_.next_in == 0) {
          ++state_.next_in;
          --state_.avail_in;
        }
        if (state_.avail_in == 0) continue;
        inflateReset(&state_);
        member_done_ = false;
      }
      const int result = inflate(&state_, Z_NO_FLUSH);
      check_input(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR,
                  "{}: gzip: the file is damaged: {}", source_->path(),
                  state_.msg == nullptr ? "bad data" : state_.msg);
      member_done_ = result == Z_STREAM_END;
    }
    return wanted - state_.avail_out;
  }

 private:
  std::unique_ptr<PeekedStream> source_;
  std::vector<char> input_;
  z_stream state_{};
  bool member_done_ = false;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(std::unique_ptr<PeekedStream> source)
      : source_(std::move(source)), input_(kBufferBytes), state_(ZSTD_createDStream()) {
    check(state_ != nullptr, "{}: zstd: out of memory", source_->path());
  }
  ~ZstdStream() override { ZSTD_freeDStream(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

  size_t read(char* buffer, size_t size) override {
    ZSTD_outBuffer out{buffer, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size && !output_waits_) {
        in_ = {input_.data(), source_->read(input_.data(), input_.size()), 0};
        if (in_.size == 0) {
          check_input(frame_done_, "{}: zstd: the file ends in the middle", source_->path());
          return 0;
        }
      }
      const size_t result = ZSTD_decompressStream(state_, &out, &in_);
      check_input(ZSTD_isError(result) == 0, "{}: zstd: the file is damaged: {}", source_->path(),
                  ZSTD_getErrorName(result));
      frame_done_ = result == 0;
      output_waits_ = out.pos == out.size && result != 0;
    }
    return out.pos;
  }

 private:
  std::unique_ptr<PeekedStream> source_;
  std::vector<char> input_;
  ZSTD_DStream* state_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool frame_done_ = false;
  bool output_waits_ = false;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
}

std::string_view without_compression(std::string_view path) {
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (ends_with(path, ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

bool is_json_lines(std::string_view path) {
  const std::string_view name = without_compression(path);
  return ends_with(name, ".jsonl") || ends_with(name, ".ndjson") || ends_with(name, ".json");
}

bool is_plain_text(std::string_view path) {
  const std::string_view name = without_compression(path);
  return ends_with(name, ".txt") || ends_with(name, ".text") || ends_with(name, ".md") ||
         ends_with(name, ".rst");
}

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
  auto source = std::make_unique<PeekedStream>(path);
  if (source->first().substr(0, 2) == "\x1f\x8b") return std::make_unique<GzipStream>(std::move(source));
  if (source->first() == "\x28\xb5\x2f\xfd") return std::make_unique<ZstdStream>(std::move(source));
  return source;
}

std::vector<InputFile> find_input_files(const std::vector<std::string>& paths, bool stdin_is_json) {
  std::vector<InputFile> files;
  for (const std::string& path : paths) {
    if (path == "-") {
      files.push_back({path, stdin_is_json});
      continue;
    }
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    check_input(std::filesystem::exists(status), "{}: no such file or directory", path);
    if (!std::filesystem::is_directory(status)) {
      files.push_back({path, is_json_lines(path)});
      continue;
    }
    std::vector<std::string> found;
    for (auto entry = std::filesystem::recursive_directory_iterator(
             path, std::filesystem::directory_options::skip_permission_denied, error);
         !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
      std::error_code ignored;
      const std::string name = entry->path().string();
      if (entry->is_regular_file(ignored) && (is_json_lines(name) || is_plain_text(name)))
        found.push_back(name);
    }
    check_input(!error, "{}: cannot be listed: {}", path, error.message());
    check_input(!found.empty(),
                "{}: no .txt .text .md .rst .jsonl .ndjson .json file (also .gz, .zst) in this directory",
                path);
    std::sort(found.begin(), found.end());
    for (const std::string& name : found) files.push_back({name, is_json_lines(name)});
  }
  return files;
}

RecordReader::RecordReader(std::vector<InputFile> files, RecordReaderOptions options)
    : files_(std::move(files)), options_(std::move(options)) {}

RecordReader::~RecordReader() = default;

bool RecordReader::open_next() {
  if (next_file_ == files_.size()) return false;
  stream_ = open_byte_stream(files_[next_file_].path);
  ++next_file_;
  begin_ = end_ = 0;
  at_end_ = false;
  line_ = 0;
  file_gave_record_ = false;
  while (end_ - begin_ < 3 && fill()) {
  }
  if (end_ - begin_ >= 3 && std::memcmp(buffer_.data() + begin_, "\xEF\xBB\xBF", 3) == 0) begin_ += 3;
  return true;
}

bool RecordReader::fill() {
  if (at_end_) return false;
  if (begin_ > 0 && (begin_ == end_ || end_ == buffer_.size())) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    check_input(buffer_.size() <= options_.maximum_record_bytes, "{}:{}: a record is longer than {} bytes",
                files_[next_file_ - 1].path, line_ + 1, options_.maximum_record_bytes);
    buffer_.resize(std::max(kBufferBytes, 2 * buffer_.size()));
  }
  const size_t got = stream_->read(buffer_.data() + end_, buffer_.size() - end_);
  end_ += got;
  bytes_read_ += got;
  at_end_ = got == 0;
  return got > 0;
}

bool RecordReader::next_line(std::string& line) {
  size_t searched = 0;
  while (true) {
    const void* found = begin_ + searched < end_
                            ? std::memchr(buffer_.data() + begin_ + searched, '\n', end_ - begin_ - searched)
                            : nullptr;
    if (found != nullptr) {
      const size_t length = static_cast<size_t>(static_cast<const char*>(found) - buffer_.data()) - begin_;
      line.assign(buffer_.data() + begin_, length);
      begin_ += length + 1;
      break;
    }
    searched = end_ - begin_;
    if (fill()) continue;
    if (begin_ == end_) return false;
    line.assign(buffer_.data() + begin_, end_ - begin_);
    begin_ = end_;
    break;
  }
  ++line_;
  return true;
}

bool RecordReader::next_text(RawRecord& record) {
  record.line = line_ + 1;
  if (!options_.document_separator.empty()) {
    record.text.clear();
    std::string line;
    bool any = false;
    while (next_line(line)) {
      any = true;
      const std::string_view bare =
          !line.empty() && line.back() == '\r' ? std::string_view(line).substr(0, line.size() - 1) : line;
      if (bare == options_.document_separator) {
        if (!record.text.empty()) return true;
        record.line = line_ + 1;  // Nothing between two separators: no document.
        any = false;
        continue;
      }
      record.text.append(line).push_back('\n');
      check_input(record.text.size() <= options_.maximum_record_bytes,
                  "{}:{}: a document is longer than {} bytes", files_[next_file_ - 1].path, record.line,
                  options_.maximum_record_bytes);
    }
    return any && !record.text.empty();
  }
  const size_t wanted = options_.part_bytes;
  while ((wanted == 0 || end_ - begin_ <= wanted) && fill()) {
  }
  const std::string_view ready(buffer_.data() + begin_, end_ - begin_);
  size_t length = ready.size();
  if (wanted > 0 && !at_end_) {
    const size_t cut = safe_cut(ready, wanted);
    if (cut > 0) length = cut;
    if (cut == 0) {  // No place to cut yet: go on to the end of the file.
      while (fill()) {
      }
      length = end_ - begin_;
    }
  }
  record.text.assign(buffer_.data() + begin_, length);
  begin_ += length;
  line_ += static_cast<uint64_t>(std::count(record.text.begin(), record.text.end(), '\n'));
  return length > 0;
}

bool RecordReader::next(RawRecord& record) {
  while (true) {
    if (stream_ == nullptr && !open_next()) return false;
    const InputFile& file = files_[next_file_ - 1];
    record.file = static_cast<uint32_t>(next_file_ - 1);
    record.json = file.json_lines;
    if (file.json_lines) {
      if (next_line(record.text)) {
        record.line = line_;
        if (!record.text.empty() && record.text.back() == '\r') record.text.pop_back();
        return true;
      }
    } else {
      const bool found = next_text(record);
      // An empty file is a document without text, to be counted.
      const bool empty_document = !found && !file_gave_record_ && options_.document_separator.empty();
      file_gave_record_ = true;
      if (empty_document) record.text.clear();
      if (found || empty_document) return true;
    }
    stream_ = nullptr;
  }
}

}  // namespace megalith
