// Good files, cut small so that many can be tried.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace megalith::fuzz {

enum class FileKind { json, text, binary, safetensors, protobuf };

struct SeedFiles {
  FileKind kind = FileKind::binary;
  std::vector<std::string> files;
};

SeedFiles seed_files(std::string_view parser, const std::filesystem::path& tests);

}  // namespace megalith::fuzz
