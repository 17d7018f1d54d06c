// The commands in a row, from text to a report; help; errors.
#include <zlib.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/program.h"

namespace megalith {
namespace {

using testing::ProgramTest;
using testing::Result;
using testing::sentences;
using testing::slurp;
using testing::fs::path;
using Json = nlohmann::json;
namespace fs = testing::fs;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

constexpr const char* kRecipe = R"([model]
num_layers = 2
hidden_size = 32
num_heads = 4
max_positions = 32
[data]
tokenizer = "tokenizer.json"
train = "corpus_text_document"
split = "80,20,0"
[train]
steps = 30
micro_batch = 4
global_batch = 8
precision = "fp32"
threads = 2
[optimizer]
learning_rate = 1e-2
[schedule]
warmup_steps = 3
[checkpoint]
every = 10
[log]
every = 5
validate_every = 10
validation_samples = 4
)";

class Pipeline : public ProgramTest {
 protected:
  // Text, tokenizer, dataset and recipe.
  void prepare() {
    write("texts/plain.txt", sentences(6000, 1));
    std::string records;
    for (unsigned i = 0; i < 40; ++i)
      records += Json{{"text", sentences(300, 10 + i)}, {"id", i}}.dump() + "\n";
    write("texts/good.jsonl", records);
    gzip("texts/more.jsonl.gz", Json{{"text", sentences(2000, 2)}}.dump() + "\n");
    write("held-out.txt", sentences(1500, 99));
    output({"tokenizer", "train", "--input", "texts", "--vocab-size", "320", "--output", "tokenizer.json"});
    output({"data", "tokenize", "--input", "texts", "--tokenizer", "tokenizer.json", "--output", "corpus",
            "--append-eod"});
    write("recipe.toml", kRecipe);
  }
  void gzip(const std::string& name, const std::string& text) {
    gzFile file = gzopen((folder / name).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
  }
  Json json_of(const std::vector<std::string>& arguments) const {
    const Json json = Json::parse(output(arguments), nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << arguments[0];
    return json;
  }
};

TEST_F(Pipeline, FromTextToReport) {
  prepare();

  // Ids and back, byte for byte, through a pipe as well.
  const std::string text = slurp(folder / "held-out.txt");
  const std::string ids =
      output({"tokenizer", "encode", "--tokenizer", "tokenizer.json", "--input", "held-out.txt"});
  EXPECT_EQ(output({"tokenizer", "decode", "--tokenizer", "tokenizer.json"}, {.input = ids}), text);
  EXPECT_EQ(output({"tokenizer", "encode", "--tokenizer", "tokenizer.json"}, {.input = text}), ids);
  // Escapes are text: a backslash and an n are no line end.
  const auto encoded = [&](const std::string& input) {
    return output({"tokenizer", "encode", "--tokenizer", "tokenizer.json"}, {.input = input});
  };
  EXPECT_NE(encoded("a\\nb"), encoded("a\nb"));
  for (const std::string input : {"a\\nb", "a\nb", "\\u0041\\x41"}) {
    EXPECT_EQ(output({"tokenizer", "decode", "--tokenizer", "tokenizer.json"}, {.input = encoded(input)}),
              input);
  }
  const std::string as_json =
      output({"tokenizer", "encode", "--tokenizer", "tokenizer.json", "--json"}, {.input = text});
  EXPECT_EQ(output({"tokenizer", "decode", "--tokenizer", "tokenizer.json"}, {.input = as_json}), text);
  EXPECT_EQ(Json::parse(as_json)["token_ids"].size(),
            lines_of(ids).size() == 1 ? static_cast<size_t>(std::count(ids.begin(), ids.end(), ' ') + 1) : 0);

  // One document a plain file and a record: 1 + 40 + 1.
  const Json dataset = json_of({"data", "inspect", "corpus_text_document", "--json"});
  EXPECT_EQ(dataset["documents"], 42);
  EXPECT_EQ(dataset["dtype"], "uint16");
  EXPECT_GT(dataset["tokens"].get<int>(), 3000);
  EXPECT_NE(output({"data", "inspect", "corpus_text_document.bin"}).find("42 ("), std::string::npos);
  output({"data", "merge", "--input", "corpus_text_document", "corpus_text_document", "--output", "twice"});
  EXPECT_EQ(json_of({"data", "inspect", "twice", "--json"})["tokens"], 2 * dataset["tokens"].get<int>());

  // Training.
  EXPECT_NE(output({"train", "recipe.toml", "--dry-run"}).find("predicted memory"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "runs")) << "a dry run wrote something";
  const Result trained = run({"train", "recipe.toml", "--output", "run"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(trained.out, "");
  EXPECT_NE(trained.err.find("done: 30 steps"), std::string::npos) << trained.err;
  std::vector<int> training, validation;
  double first_loss = 0, last_loss = 0;
  for (const std::string& line : lines_of(slurp(folder / "run" / "log.jsonl"))) {
    const Json record = Json::parse(line);
    if (record.contains("loss")) {
      training.push_back(record["step"]);
      for (const char* key : {"learning_rate", "gradient_norm", "tokens_per_second", "consumed_samples"})
        EXPECT_TRUE(record.contains(key) && record[key].is_number()) << key << ": " << line;
      EXPECT_EQ(record["consumed_samples"], record["step"].get<int>() * 8);
      if (training.size() == 1) first_loss = record["loss"];
      last_loss = record["loss"];
    } else if (record.contains("validation_loss")) {
      validation.push_back(record["step"]);
    }
  }
  EXPECT_EQ(training, (std::vector<int>{5, 10, 15, 20, 25, 30}));
  EXPECT_EQ(validation, (std::vector<int>{10, 20, 30}));
  EXPECT_LT(last_loss, first_loss - 0.5);
  EXPECT_TRUE(fs::exists(folder / "run" / "checkpoints" / "step-00000030" / "manifest.json"));
  EXPECT_TRUE(fs::exists(folder / "run" / "checkpoints" / "step-00000020"));
  EXPECT_FALSE(fs::exists(folder / "run" / "checkpoints" / "step-00000010")) << "keep_last is 2";
  EXPECT_FALSE(fs::is_empty(folder / "run" / "tensorboard"));
  // The stored recipe is complete and the same run.
  EXPECT_EQ(output({"config", "run/recipe.toml"}), slurp(folder / "run" / "recipe.toml"));
  // Once more: nothing is left to do.
  EXPECT_EQ(run({"train", "recipe.toml", "--output", "run"}).status, 0);
  expect_error({"train", "recipe.toml", "--output", "run", "--resume", "none"}, "run holds a run already");
  expect_error({"train", "recipe.toml", "--output", "run", "--set", "model.num_layers=3"},
               "step-00000030 has another model: it says num_layers = 2, the recipe num_layers = 3\n");

  // Perplexity, beside baselines that must be worse, and the untrained one near uniform.
  const std::vector<std::string> eval = {"eval", "perplexity", "--model", "run", "--input", "held-out.txt"};
  auto with_json = eval;
  with_json.insert(with_json.end(), {"--json", "--baselines"});
  const Json perplexity = json_of(with_json);
  ASSERT_EQ(perplexity["results"].size(), 3u);
  EXPECT_EQ(perplexity["window"], 32);
  EXPECT_EQ(perplexity["stride"], 16);
  EXPECT_EQ(perplexity["words"], 0 + static_cast<int>([&] {
                                   std::istringstream words(text);
                                   return std::distance(std::istream_iterator<std::string>(words), {});
                                 }()));
  const double mine = perplexity["results"][0]["bits_per_byte"];
  EXPECT_LT(mine, perplexity["results"][1]["bits_per_byte"].get<double>());
  EXPECT_EQ(perplexity["results"][2]["model"], "untrained model");
  EXPECT_NEAR(perplexity["results"][2]["token_perplexity"].get<double>(), 320, 32);
  EXPECT_NE(output(eval).find("bits per byte = nll"), std::string::npos);

  // Generation: one object a prompt; the same seed, the same text.
  const std::vector<std::string> generate = {"generate", "--model", "run", "--max-tokens",
                                             "12",       "--seed",  "5",   "--json"};
  const std::string said = output(generate, {.input = "the king\nAnna \\n\n"});
  ASSERT_EQ(lines_of(said).size(), 2u);
  const Json second = Json::parse(lines_of(said)[1]);
  EXPECT_EQ(second["prompt"], "Anna \\n");  // nothing is unescaped
  EXPECT_LE(second["token_ids"].size(), 12u);
  EXPECT_TRUE(second["finish_reason"] == "length" || second["finish_reason"] == "stop");
  EXPECT_EQ(output(generate, {.input = "the king\nAnna \\n\n"}), said);
  auto threads = generate;
  threads.insert(threads.end(), {"--threads", "1"});
  EXPECT_EQ(output(threads, {.input = "the king\nAnna \\n\n"}), said);
  const std::string plain =
      output({"generate", "--model", "run", "--prompt", "Anna \\n", "--max-tokens", "12", "--seed", "5"});
  EXPECT_EQ(plain, "Anna \\n" + second["text"].get<std::string>() + "\n");

  // Out to a Hugging Face directory and back: the same numbers everywhere.
  output({"convert", "--from", "run", "--to", "hf"});
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
    EXPECT_TRUE(fs::exists(folder / "hf" / file)) << file;
  EXPECT_EQ(slurp(folder / "hf" / "tokenizer.json"), slurp(folder / "tokenizer.json"));
  output({"convert", "--from", "hf", "--to", "back", "--format", "megalith"});
  const double nll = perplexity["results"][0]["negative_log_likelihood"];
  for (const char* model : {"hf", "back", "run/checkpoints/step-00000030"}) {
    const Json other = json_of({"eval", "perplexity", "--model", model, "--input", "held-out.txt", "--json"});
    EXPECT_EQ(other["results"][0]["negative_log_likelihood"], nll) << model;
  }
  expect_error({"eval", "perplexity", "--model", "hf", "--input", "held-out.txt", "--baselines"},
               "--baselines");

  // Inspect everything.
  EXPECT_NE(output({"inspect", "run", "--verify"}).find("checksums             all correct"),
            std::string::npos);
  EXPECT_NE(output({"inspect", "hf"}).find("Hugging Face directory hf"), std::string::npos);
  EXPECT_NE(output({"inspect", "hf/model.safetensors"}).find("transformer.wte.weight"), std::string::npos);
  EXPECT_NE(output({"inspect", "tokenizer.json"}).find("320 tokens"), std::string::npos);
  EXPECT_NE(output({"inspect", "corpus_text_document.idx"}).find("42 documents"), std::string::npos);
  EXPECT_NE(output({"inspect", "recipe.toml"}).find("recipe: 30 steps"), std::string::npos);

  // The report stands alone.
  output({"report", "run"});
  const std::string page = slurp(folder / "run" / "report.html");
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("validation"), std::string::npos);
  for (const char* outside : {"http://", "https://", "<script", "<link", "<img", "src=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  // A line of another type is named with its member.
  const std::string log = slurp(folder / "run" / "log.jsonl");
  const auto lines = std::count(log.begin(), log.end(), '\n');
  for (const auto& [line, what] : std::vector<std::pair<std::string, std::string>>{
           {R"({"step": "x", "loss": 1})", "\"step\" must be a whole number, not negative"},
           {R"({"step": 1, "loss": []})", "\"loss\" must be a number or null"},
           {R"({"step": 1, "loss": 1, "tokens_per_second": null})", "\"tokens_per_second\" must be a number"},
           {R"({"kind": 1})", "\"kind\" must be a string"},
           {R"({"kind": "profile", "seconds": {"a": "b"}})", "\"seconds.a\" must be a number"},
           {R"({"kind": "profile", "memory": {"a": {"measured": -1}}})",
            "\"memory.a.measured\" must be a whole number, not negative"}}) {
    write("run/log.jsonl", log + line + "\n");
    expect_error({"report", "run", "--no-samples"}, fmt::format("log.jsonl:{}: {}", lines + 1, what));
  }
  write("run/log.jsonl", log + "{\"step\": 9");
  output({"report", "run", "--no-samples"});
  write("run/log.jsonl", log);

  // Damage is named. The manifest's own text holds the name of every tensor.
  const path weights = folder / "run" / "checkpoints" / "step-00000030" / "model.safetensors";
  std::string bytes = slurp(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(weights, std::ios::binary) << bytes;
  const Result damaged = run({"inspect", "run", "--verify"});
  EXPECT_EQ(damaged.status, 2);
  EXPECT_NE(damaged.err.find("model.safetensors is damaged"), std::string::npos) << damaged.err;
  expect_error({"generate", "--model", "run", "--prompt", "x"}, "model.safetensors is damaged");
}

TEST_F(Pipeline, RecordsThatAreNoTextAreCountedAndKeptAside) {
  output({"tokenizer", "train", "--input", "-", "--vocab-size", "260", "--output", "tokenizer.json"},
         {.input = "some text"});
  std::string records;
  for (int i = 0; i < 97; ++i) records += Json{{"text", "record " + std::to_string(i)}}.dump() + "\n";
  write("mixed.jsonl", records + "7\n{\"text\": null}\nnot json\n");
  const std::vector<std::string> tokenize = {"data",        "tokenize",       "--input",  "mixed.jsonl",
                                             "--tokenizer", "tokenizer.json", "--output", "mixed"};
  auto with_file = tokenize;
  with_file.insert(with_file.end(), {"--reject-file", "rejects.jsonl"});
  const Result result = run(with_file);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("100 records: 97 kept, 3 dropped"), std::string::npos) << result.err;
  const auto rejects = lines_of(slurp(folder / "rejects.jsonl"));
  ASSERT_EQ(rejects.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Json::parse(rejects[i])["line"], 98 + i) << rejects[i];
  EXPECT_EQ(Json::parse(output({"data", "inspect", "mixed_text_document", "--json"}))["documents"], 97);
  const std::vector<std::string> train = {"tokenizer",    "train", "--input",  "mixed.jsonl",
                                          "--vocab-size", "260",   "--output", "mixed.json"};
  auto train_with_file = train;
  train_with_file.insert(train_with_file.end(), {"--reject-file", "train-rejects.jsonl"});
  EXPECT_EQ(run(train_with_file).status, 0);
  EXPECT_EQ(slurp(folder / "train-rejects.jsonl"), slurp(folder / "rejects.jsonl"));
  auto train_strict = train;
  train_strict.push_back("--strict");
  EXPECT_EQ(run(train_strict).status, 2);
  auto strict = tokenize;
  strict.push_back("--strict");
  const Result refused = run(strict);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("mixed.jsonl:98"), std::string::npos) << refused.err;
}

TEST_F(ProgramTest, BracketsOfAnOptionArePartOfItsText) {
  write("text.txt", "some words, and some more words\n");
  output({"tokenizer", "train", "--input", "text.txt", "--vocab-size", "259", "--output", "tokenizer.json",
          "--special-token", "[MASK]", "--special-token", "[A,B]"});
  const Json tokenizer = Json::parse(slurp(folder / "tokenizer.json"));
  std::vector<std::string> added;
  for (const Json& token : tokenizer["added_tokens"]) added.push_back(token["content"].get<std::string>());
  EXPECT_EQ(added, (std::vector<std::string>{"[MASK]", "[A,B]"}));
}

TEST_F(ProgramTest, LostOutputIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"config"}, {"config", std::string(MEGALITH_RECIPES) + "/quickstart.toml"}}) {
    const Result result = run(command, {.output_file = "/dev/full"});
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_NE(result.err.find("standard output"), std::string::npos) << result.err;
  }
}

// Help of every command, found from the lists of subcommands.
TEST_F(ProgramTest, HelpFitsEightyColumns) {
  std::set<std::string> seen;
  std::vector<std::vector<std::string>> commands = {{}};
  while (!commands.empty()) {
    std::vector<std::string> command = commands.back();
    commands.pop_back();
    auto with_help = command;
    with_help.push_back("--help");
    const std::string help = output(with_help);
    bool inside = false;
    for (const std::string& line : lines_of(help)) {
      EXPECT_LE(line.size(), 80u) << line;
      if (inside && line.starts_with("  ") && line[2] != ' ') {
        auto inner = command;
        inner.push_back(line.substr(2, line.find(' ', 2) - 2));
        if (seen.insert(fmt::format("{}", fmt::join(inner, " "))).second) commands.push_back(inner);
      }
      if (!line.starts_with(" ")) inside = line == "Subcommands:";
    }
  }
  for (const char* name :
       {"tokenizer train", "tokenizer encode", "tokenizer decode", "data tokenize", "data merge",
        "data inspect", "train", "eval perplexity", "generate", "embed", "convert", "inspect", "report",
        "config", "bench gemm", "bench memory", "bench train", "bench decode", "bench prefill"}) {
    EXPECT_TRUE(seen.contains(name)) << name;
  }
  for (const std::string& line : lines_of(output({"--help-all"}))) EXPECT_LE(line.size(), 80u) << line;
  for (const std::string& line : lines_of(output({"config"}))) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_TRUE(output({"--version"}).starts_with("megalith "));
}

// MT-NLG 530B on 280 nodes: sizes that follow from its published layout.
void expect_published_layout(const std::string& plan) {
  for (const char* fact :
       {"529,581,506,560", "2,240 ranks = 35 pipeline stages x 8 data parallel x 8 tensor parallel",
        "micro-batches     240 a step", "bubble            14.2 %", "1088-1151     51-53",
        // activations to a neighbour; layers, forward, again and backward, for 240 micro-batches
        "960 x  83.9 MB", "3,600 x  83.9 MB",
        // a rank's gradients, in F32 and as the paper counts them
        "7.55 GB", "3.78 GB in 16 bits"}) {
    EXPECT_NE(plan.find(fact), std::string::npos) << fact << "\n" << plan;
  }
}

TEST_F(ProgramTest, ShippedRecipesAreValid) {
  int recipes = 0;
  for (const auto& entry : fs::directory_iterator(MEGALITH_RECIPES)) {
    ++recipes;
    const std::string resolved = output({"config", entry.path().string()});
    // Written out, it reads back as the same.
    write("resolved.toml", resolved);
    EXPECT_EQ(output({"config", "resolved.toml"}), resolved) << entry.path();
    const std::string name = entry.path().filename();
    if (name == "quickstart.toml") continue;  // takes its vocabulary from a tokenizer that its script trains
    const std::string plan = output({"train", entry.path().string(), "--dry-run"});
    EXPECT_NE(plan.find("predicted memory"), std::string::npos) << name;
    if (name == "gpt2-124m.toml") {
      EXPECT_NE(plan.find("124,439,808"), std::string::npos) << plan;
    }
    if (name == "mt-nlg-530b.toml")
      expect_published_layout(output({"train", entry.path().string(), "--dry-run", "--ranks", "2240"}));
  }
  EXPECT_GE(recipes, 4);
}

TEST_F(ProgramTest, CommandLinesThatAreWrong) {
  expect_error({}, "subcommand is required");
  expect_error({"--frobnicate"}, "unknown option --frobnicate");
  expect_error({"trian"}, "unknown command trian; did you mean train?");
  expect_error({"tokenizer", "trian"},
               "unknown command trian; did you mean train? (see megalith tokenizer --help)");
  expect_error({"train"}, "recipe is required");
  expect_error({"train", "a.toml", "--sett", "x=1"}, "unknown option --sett; did you mean --set?");
  expect_error({"train", "a.toml", "b.toml"}, "unexpected argument b.toml");
  expect_error({"generate"}, "--model is required");
  expect_error({"generate", "--model", "x", "--max-tokens", "-5"},
               "--max-tokens: -5 is out of range; allowed is 0 or more");
  expect_error({"generate", "--model", "x", "--max-tokens", "99999999999999999999"},
               "99999999999999999999 is out of range; allowed is 0 to 9223372036854775807");
  expect_error({"generate", "--model", "x", "--max-tokens", "ten"}, "ten is not a whole number");
  expect_error({"generate", "--model", "x", "--seed", "-1"}, "--seed: -1 is out of range");
  expect_error({"generate", "--model", "x", "--threads", "5000"},
               "--threads: 5000 is out of range; allowed is 0 to 4096");
  expect_error({"generate", "--model", "x", "--prompt", "p", "--temperature", "-1"},
               "temperature -1 is out of range; allowed is 0 or more");
  expect_error({"generate", "--model", "x", "--prompt", "p", "--temperature", "nan"},
               "temperature nan is out of range");
  expect_error({"generate", "--model", "x", "--prompt", "p", "--top-p", "1.5"},
               "top-p 1.5 is out of range; allowed is 0 to 1");
  expect_error({"eval", "perplexity", "--model", "x", "--input", "y", "--batch", "0"},
               "--batch: 0 is out of range; allowed is 1 to 65536");
  expect_error({"eval", "perplexity", "--model", "x", "--input", "y", "--window", "0"},
               "--window: 0 is out of range");
  expect_error({"tokenizer", "train", "--input", "x", "--output", "y", "--vocab-size", "0"},
               "--vocab-size: 0 is out of range");
  expect_error({"convert", "--from", "x", "--to", "y", "--format", "pickle"},
               "--format pickle: choose huggingface, gguf or megalith");
  expect_error({"convert", "--from", "x", "--to", "y", "--dtype", "int3"},
               "--dtype int3: choose f32, bf16 or f16");
}

TEST_F(ProgramTest, PathsThatAreWrong) {
  fs::create_directories(folder / "folder");
  write("empty", "");
  write("text.txt", "some text\n");
  write("binary", std::string("\x7f\0\xff\xfe garbage", 12));
  for (const char* model : {"missing", "folder", "empty", "text.txt"}) {
    expect_error({"generate", "--model", model, "--prompt", "x"}, model);
    expect_error({"eval", "perplexity", "--model", model, "--input", "text.txt"}, model);
    expect_error({"convert", "--from", model, "--to", "out"}, model);
    expect_error({"inspect", model}, model);
    expect_error({"report", model}, model);
    expect_error({"train", model}, std::string(model) == "empty" ? "the run has no length" : model);
    expect_error({"data", "inspect", model}, model);
    expect_error({"tokenizer", "encode", "--tokenizer", model, "--input", "text.txt"}, model);
  }
  expect_error({"inspect"}, "give a path, or --machine");
  expect_error({"tokenizer", "train", "--input", "missing", "--vocab-size", "300", "--output", "t.json"},
               "missing");
  expect_error({"tokenizer", "train", "--input", "text.txt", "--vocab-size", "3", "--output", "t.json"},
               "vocabulary size 3: must be from 257");
  expect_error({"tokenizer", "encode", "--tokenizer", "binary", "--input", "text.txt"}, "binary");
  ASSERT_EQ(
      run({"tokenizer", "train", "--input", "text.txt", "--vocab-size", "260", "--output", "t.json"}).status,
      0);
  for (const char* input : {"missing", "folder"})
    expect_error({"tokenizer", "encode", "--tokenizer", "t.json", "--input", input}, input);
  expect_error({"data", "tokenize", "--input", "missing", "--tokenizer", "t.json", "--output", "c"},
               "missing");
  expect_error({"data", "tokenize", "--input", "text.txt", "--tokenizer", "t.json", "--output", "no/such/c"},
               "no/such/c", 1);
  write("c.idx", "");
  write("c.bin", "");
  expect_error({"data", "inspect", "c"}, "c.idx");
  expect_error({"tokenizer", "decode", "--tokenizer", "t.json"}, "'x' is not a token id", 2,
               {.input = "1 2 x"});
  expect_error({"tokenizer", "decode", "--tokenizer", "t.json"}, "token id 99999", 2, {.input = "99999"});
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST_F(Pipeline, RecipesThatAreWrong) {
  prepare();
  write("typo.toml", "[train]\nstesp = 3\n");
  expect_error({"train", "typo.toml"}, "typo.toml:2: unknown key train.stesp; did you mean \"steps\"?");
  write("broken.toml", "[train\nsteps = 3\n");
  expect_error({"train", "broken.toml"}, "broken.toml:1:");
  write("type.toml", "[train]\nsteps = \"many\"\n");
  expect_error({"train", "type.toml"}, "type.toml:2");
  const auto with = [](const std::string& setting) {
    return std::vector<std::string>{"train", "recipe.toml", "--output", "out", "--set", setting};
  };
  expect_error(with("nonsense"), "--set nonsense: write it as table.key=value");
  expect_error(with("a.b=1"), "unknown table [a]");
  expect_error(with("train.stesp=1"), "did you mean \"steps\"?");
  expect_error(with("train.steps=-1"), "train.steps = -1 is out of range; allowed is 0 or more");
  expect_error(with("train.steps=99999999999999999999"), "train.steps");
  expect_error(with("model.num_layers=1000000000000"), "allowed is 1 to 100000");
  expect_error(with("train.micro_batch=0"), "train.micro_batch = 0 is out of range; allowed is 1 to 1048576");
  expect_error(with("optimizer.learning_rate=nan"), "optimizer.learning_rate");
  expect_error(with("model.num_heads=5"), "model.hidden_size = 32 is not a multiple of model.num_heads = 5");
  expect_error(with("data.train=missing"), "missing.idx");
  expect_error(with("data.tokenizer=missing.json"), "missing.json");
  expect_error(with("data.split=1,x"), "split");
  expect_error(with("data.sequence_length=64"), "data.sequence_length = 64 exceeds model.max_positions = 32");
  expect_error(with("train.precision=fp12"), "fp32, bf16, fp16");
  // A dataset of another tokenizer's ids.
  expect_error(with("model.vocab_size=300"), "model.vocab_size = 300 is smaller than the tokenizer's 320");
  output({"tokenizer", "train", "--input", "held-out.txt", "--vocab-size", "258", "--output", "small.json"});
  expect_error(with("data.tokenizer=small.json"),
               "corpus_text_document was made with another tokenizer than data.tokenizer");
  expect_error({"train", "recipe.toml", "--output", "out", "--resume", "nowhere"}, "--resume nowhere");
  expect_error({"train", "recipe.toml", "--output", "recipe.toml"}, "recipe.toml");
  // And a model with the wrong tokenizer.
  ASSERT_EQ(run({"train", "recipe.toml", "--output", "run", "--set", "train.steps=1"}).status, 0);
  // Going on with ids that mean something else is refused; what else is new is said.
  output({"tokenizer", "train", "--input", "held-out.txt", "--vocab-size", "320", "--output", "other.json"});
  output({"data", "tokenize", "--input", "texts", "--tokenizer", "other.json", "--output", "other"});
  expect_error({"train", "recipe.toml", "--output", "run", "--set", "train.steps=2", "--set",
                "data.tokenizer=other.json", "--set", "data.train=other_text_document"},
               "was trained with another tokenizer");
  const Result changed =
      run({"train", "recipe.toml", "--output", "run", "--set", "train.steps=2", "--set", "train.seed=7"});
  EXPECT_EQ(changed.status, 0) << changed.err;
  EXPECT_NE(changed.err.find("train.seed: 1234 -> 7; train.steps: 1 -> 2"), std::string::npos) << changed.err;
  expect_error(
      {"data", "merge", "--input", "corpus_text_document", "other_text_document", "--output", "both"},
      "were made with different tokenizers");
  output({"tokenizer", "train", "--input", "texts", "--vocab-size", "400", "--output", "large.json"});
  expect_error({"generate", "--model", "run", "--tokenizer", "large.json", "--prompt", "x"},
               "tokens, the model only 320: they do not belong together");
  expect_error({"generate", "--model", "run", "--prompt", "x", "--stop", ""},
               "a stop string cannot be empty");
  expect_error({"generate", "--model", "run", "--input", "missing"}, "missing");
  write("empty", "");
  expect_error({"eval", "perplexity", "--model", "run", "--input", "empty"}, "empty: there is no text");
  expect_error({"eval", "perplexity", "--model", "run", "--input", "texts"}, "texts");
  expect_error({"eval", "perplexity", "--model", "run", "--input", "held-out.txt", "--window", "33"},
               "window 33 exceeds the model's 32 positions");
  expect_error({"eval", "perplexity", "--model", "run", "--input", "held-out.txt", "--stride", "33"},
               "stride 33");
}

}  // namespace
}  // namespace megalith
