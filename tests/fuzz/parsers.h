// Every parser of files, as a function of a file's bytes.
//
// A parser accepts a file, or refuses it with an InputError, whatever the bytes are; and it takes at most
// `constant + factor x bytes` of memory. All that follows from opening a file is part of it: what is accepted
// is also used.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace megalith::fuzz {

void parse_safetensors(std::span<const std::byte> bytes);
void parse_gguf(std::span<const std::byte> bytes);
void parse_config_json(std::span<const std::byte> bytes);
void parse_tokenizer_json(std::span<const std::byte> bytes);
void parse_sentencepiece(std::span<const std::byte> bytes);
void parse_tiktoken(std::span<const std::byte> bytes);
void parse_index(std::span<const std::byte> bytes);
void parse_manifest(std::span<const std::byte> bytes);
void parse_recipe(std::span<const std::byte> bytes);
/// What lies beside the weights in a Hugging Face directory.
void parse_side_files(std::span<const std::byte> bytes);
void parse_run_log(std::span<const std::byte> bytes);
void parse_records(std::span<const std::byte> bytes);

struct Parser {
  std::string_view name;
  void (*parse)(std::span<const std::byte>);
  /// Memory that an empty file may take.
  size_t constant;
  /// Whether an Error is right where it is no InputError: a regular expression of a tokenizer that gives up.
  bool may_fail = false;
};

/// Memory that each byte of a file may take.
inline constexpr size_t kFactor = 64;

std::span<const Parser> parsers();

/// Where files lie that need a name; the caller makes and removes it. To be set before any parser is called.
void set_scratch(const std::filesystem::path& directory);
const std::filesystem::path& scratch();

/// Writes the checkpoint whose manifest parse_manifest() replaces; returns its manifest.
std::string write_checkpoint_around();
/// Bytes of PREFIX.bin beside the PREFIX.idx that parse_index() writes.
inline constexpr size_t kTokenBytes = 64;

}  // namespace megalith::fuzz
