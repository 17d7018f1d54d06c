#include "megalith/model/gguf_pre_tokenizers.h"

#include "megalith/text/split_pattern.h"

namespace megalith {

namespace {

PreTokenizerStep byte_level(bool use_regex) {
  return {.kind = PreTokenizerKind::byte_level, .add_prefix_space = false, .use_regex = use_regex};
}

// One split by each pattern, then bytes.
std::vector<PreTokenizerStep> splits(std::initializer_list<std::string_view> patterns) {
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view pattern : patterns)
    steps.push_back({.kind = PreTokenizerKind::split, .pattern = {std::string(pattern), true}});
  steps.push_back(byte_level(false));
  return steps;
}

constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295})"
    R"(-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x)"
    R"({38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5})"
    R"(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x)"
    R"({1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x)"
    R"({1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x)"
    R"({1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113})"
    R"(\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x)"
    R"({2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E})"
    R"(-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x)"
    R"({A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x)"
    R"({FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x)"
    R"({104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";

}  // namespace

const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers() {
  static const std::vector<GgufPreTokenizer> known = [] {
    const std::string_view llama3 = split_pattern("llama3"), gpt2 = split_pattern("gpt2");
    const std::vector<PreTokenizerStep> digits = {
        {.kind = PreTokenizerKind::digits, .individual_digits = true}, byte_level(true)};
    return std::vector<GgufPreTokenizer>{
        {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "mellum", "mpt",
          "olmo", "jais", "trillion", "granite-docling", "exaone4"},
         {byte_level(true)}},
        {.names = {"roberta-bpe", "jina-v1-en", "jina-v2-code"},
         .steps = {byte_level(true)},
         .add_separator = true},
        {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                   "jina-v5-nano"},
         .steps = splits({llama3}),
         .ignore_merges = true,
         .add_bos = true},
        {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, splits({llama3})},
        {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
         digits},
        {{"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2", "hunyuan", "solar-open",
          "grok-2"},
         splits({split_pattern("qwen2")})},
        {{"qwen35"}, splits({kQwen35})},
        {{"deepseek-llm"},
         splits({"[\r\n]", kDeepseekLetters,
                 "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
                 "\\s+$", "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}+"})},
        {{"deepseek-coder"},
         splits({"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                 "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"})},
        {{"deepseek-v3", "hunyuan-dense", "joyai-llm"},
         splits({"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", kDeepseek3})},
        {{"falcon"}, splits({"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, "[0-9][0-9][0-9]"})},
        {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, splits({split_pattern("o200k")})},
        {.names = {"tekken"}, .steps = splits({kTekken}), .ignore_merges = true, .add_bos = true},
        {{"bloom", "poro-chat", "gpt3-finnish"}, splits({kBloom})},
        {{"viking"}, splits({kBloom, "\\p{N}"})},
        {{"bailingmoe", "bailingmoe2", "llada-moe"}, splits({kBailing})},
        {{"seed-coder"}, splits({kSeedCoder})},
        {{"superbpe"}, splits({"\\p{N}+", "(?=(\\d{3})+(?!\\d))"})},
        {{"tiny_aya", "cohere2moe"}, splits({"\\d{1,3}(?=(?:\\d{3})*\\b)", split_pattern("o200k")})},
        {{"exaone-moe"}, splits({kExaoneMoe})},
    };
  }();
  return known;
}

}  // namespace megalith
