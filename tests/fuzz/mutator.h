// Damaged files: input number I of seed S is always the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace megalith::fuzz {

class Mutator {
 public:
  /// For the parser of this name; good files to damage come from `tests`, the directory tests/ of the
  /// sources, and are written into scratch().
  Mutator(std::string_view parser, const std::filesystem::path& tests, uint64_t seed);
  ~Mutator();

  /// The good files.
  const std::vector<std::string>& originals() const;
  std::string input(uint64_t number) const;

 private:
  struct Seeds;
  std::unique_ptr<Seeds> seeds_;
  uint64_t seed_;
};

}  // namespace megalith::fuzz
