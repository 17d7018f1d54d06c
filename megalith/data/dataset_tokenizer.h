// Which tokenizer a token dataset was made with: PREFIX.tokenizer.json beside PREFIX.bin and PREFIX.idx, in
// which the same number means another word to another tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace megalith {

/// What a record says of a tokenizer.json: {"checksum": "xxh3:..."} of its bytes.
struct DatasetTokenizer {
  std::string checksum;
};

/// The description of a tokenizer from the bytes of its file.
DatasetTokenizer describe_tokenizer(const std::string& tokenizer_json);

void write_dataset_tokenizer(const std::filesystem::path& prefix, const DatasetTokenizer& tokenizer);

/// Throws InputError when the dataset says that it was made with another tokenizer. Datasets without a record
/// (Megatron-LM writes none) pass.
void check_dataset_tokenizer(const std::filesystem::path& prefix, const DatasetTokenizer& tokenizer);

/// Records for a merged dataset what all `inputs` agree on; throws InputError when two of them differ.
void merge_dataset_tokenizers(const std::vector<std::string>& inputs, const std::filesystem::path& output);

}  // namespace megalith
