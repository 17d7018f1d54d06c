#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/infer/embedder.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

// What sentence-transformers writes beside a model; values of another type are refused by name.
TEST(EmbedOptions, FilesOfSentenceTransformers) {
  const fs::path directory = fs::path(::testing::TempDir()) / "megalith-embed-options";
  fs::remove_all(directory);
  fs::create_directories(directory / "1_Pooling");
  const auto error = [&](const char* file, const std::string& text) -> std::string {
    write_file_atomic(directory / file, text);
    try {
      embed_options_of(directory);
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(error("modules.json", "[{\"type\": \"a.Transformer\"}, {\"type\": \"a.Normalize\"}]"),
            "no error");
  EXPECT_TRUE(embed_options_of(directory).normalize);
  EXPECT_THAT(error("modules.json", "[{\"type\": 7}]"), HasSubstr("modules.json: the module"));
  EXPECT_THAT(error("modules.json", std::string(100000, '[')), HasSubstr("nested more than 256 deep"));
  fs::remove(directory / "modules.json");
  EXPECT_EQ(error("1_Pooling/config.json", "{\"pooling_mode_cls_token\": true}"), "no error");
  EXPECT_EQ(embed_options_of(directory).pooling, Pooling::first);
  EXPECT_THAT(error("1_Pooling/config.json", "{\"pooling_mode_cls_token\": 1}"),
              HasSubstr("\"pooling_mode_cls_token\" must be true or false"));
  EXPECT_THAT(error("1_Pooling/config.json", "{\"pooling_mode_max_tokens\": true}"),
              HasSubstr("exactly one of"));
  fs::remove_all(directory / "1_Pooling");
  EXPECT_EQ(error("sentence_bert_config.json", "{\"max_seq_length\": 17}"), "no error");
  EXPECT_EQ(embed_options_of(directory).max_tokens, 17);
  EXPECT_THAT(error("modules.json", "[{\"type\": \"sentence_transformers.models.Dense\"}]"),
              HasSubstr("Dense"));
  fs::remove_all(directory);
}

}  // namespace
}  // namespace megalith
