#include "megalith/data/tokenize_dataset.h"

#include <omp.h>

#include <exception>
#include <memory>
#include <set>

#include "megalith/base/error.h"
#include "megalith/data/dataset_tokenizer.h"
#include "megalith/data/record_parser.h"
#include "megalith/data/text_source.h"
#include "megalith/formats/indexed_dataset.h"

namespace megalith {

namespace {

// A batch is what is held in memory at once: enough to keep many workers busy.
constexpr size_t kBatchBytes = size_t{16} << 20;
constexpr size_t kBatchRecords = 1 << 14;
// A document this big is cut among the workers instead of given to one.
constexpr size_t kBigDocumentBytes = size_t{4} << 20;

struct EncodedRecord {
  std::optional<Reject> reject;
  std::vector<std::optional<std::vector<int32_t>>> tokens;  // By key.
};

}  // namespace

TokenizeResult tokenize_dataset(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  check_input(options.workers >= 1, "workers {}: must be at least 1", options.workers);
  check_input(!options.json_keys.empty(), "no JSON key is given");
  std::set<std::string> seen;
  for (const std::string& key : options.json_keys) {
    check_input(!key.empty() && key.find('/') == std::string::npos,
                "JSON key '{}': cannot be part of a file name", key);
    check_input(seen.insert(key).second, "JSON key '{}' is given twice", key);
  }
  const auto end_of_document = tokenizer.end_of_document();
  check_input(!options.append_end_of_document || end_of_document.has_value(),
              "the tokenizer has no end-of-document token to append");

  RecordReader reader(find_input_files(options.inputs, options.stdin_is_json),
                      {.document_separator = options.document_separator});
  RejectLog log(options.reject_file, options.strict);
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers;
  TokenizeResult result;
  for (const std::string& key : options.json_keys) {
    result.outputs.push_back({.prefix = options.output_prefix + "_" + key + "_document"});
    writers.push_back(std::make_unique<IndexedDatasetWriter>(result.outputs.back().prefix,
                                                             optimal_token_type(tokenizer.vocab_size())));
  }
  std::vector<RecordParser> parsers;
  for (int i = 0; i < options.workers; ++i) parsers.emplace_back(options.json_keys);

  std::vector<RawRecord> batch;
  std::vector<EncodedRecord> encoded;
  const auto encode = [&](RecordParser& parser, const RawRecord& record, EncodedRecord& out, int threads) {
    ParsedRecord parsed;
    parser.parse(record, parsed);
    out.reject = parsed.reject;
    out.tokens.clear();
    if (parsed.reject) return;
    for (const auto& text : parsed.texts) {
      out.tokens.emplace_back();
      if (!text) continue;
      auto& ids = out.tokens.back().emplace();
      if (threads > 1) {
        ids = tokenizer.encode_parallel(*text, threads);
      } else {
        tokenizer.encode_append(*text, {}, ids);
      }
      if (options.append_end_of_document) ids.push_back(*end_of_document);
    }
  };
  const auto write_batch = [&] {
    encoded.resize(batch.size());
    std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic) num_threads(options.workers)
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].text.size() >= kBigDocumentBytes) continue;
      try {
        encode(parsers[static_cast<size_t>(omp_get_thread_num())], batch[i], encoded[i], 1);
      } catch (...) {
#pragma omp critical(megalith_tokenize_dataset)
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    for (size_t i = 0; i < batch.size(); ++i) {
      const RawRecord& record = batch[i];
      if (record.text.size() >= kBigDocumentBytes) encode(parsers[0], record, encoded[i], options.workers);
      if (encoded[i].reject) {
        log.reject(reader.path(record.file), record, *encoded[i].reject);
        continue;
      }
      log.keep();
      for (size_t key = 0; key < writers.size(); ++key) {
        if (key < encoded[i].tokens.size() && encoded[i].tokens[key]) {
          writers[key]->add_document(*encoded[i].tokens[key]);
        } else {
          log.missing(key);
        }
      }
    }
    batch.clear();
    if (options.progress) options.progress(reader.bytes_read());
  };

  size_t batch_bytes = 0;
  for (RawRecord record; reader.next(record);) {
    batch_bytes += record.text.size();
    batch.push_back(std::move(record));
    record = {};
    if (batch_bytes >= kBatchBytes || batch.size() >= kBatchRecords) {
      write_batch();
      batch_bytes = 0;
    }
  }
  write_batch();
  log.finish();
  check_input(log.kept() > 0, "no document to tokenise: {}", log.summary());
  for (size_t key = 0; key < writers.size(); ++key) {
    if (!options.tokenizer_json.empty()) {
      write_dataset_tokenizer(result.outputs[key].prefix, describe_tokenizer(options.tokenizer_json));
    }
    writers[key]->finish();
    result.outputs[key].documents = writers[key]->documents();
    result.outputs[key].tokens = writers[key]->tokens();
    result.outputs[key].missing = log.missing_count(key);
  }
  result.kept = log.kept();
  result.dropped = log.dropped();
  result.bytes = reader.bytes_read();
  result.summary = log.summary();
  return result;
}

}  // namespace megalith
