#include "megalith/base/config.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>

#include "megalith/base/error.h"

namespace megalith {
namespace {

enum class Color { red, green };
constexpr std::array<std::string_view, 2> kColors = {"red", "green"};

struct Settings {
  int64_t steps = 10;
  double rate = 0.1;
  bool fast = false;
  std::string name = "plain";
  Color color = Color::red;
  std::vector<WeightedPath> paths;

  void describe(ConfigVisitor& v) {
    v.table("run", "A run.");
    v.integer("steps", steps, 1, 1000000000000, "steps", "How long.");
    v.real("rate", rate, 0.0, 1.0, "", "How fast.");
    v.boolean("fast", fast, "Whether.");
    v.table("looks", "Looks.");
    v.text("name", name, "A name.");
    v.choice("color", color, kColors, "A color.");
    v.weighted_paths("paths", paths, "Paths.");
  }
  ConfigDescription description() {
    return [this](ConfigVisitor& v) { describe(v); };
  }
};

Settings read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  Settings settings;
  ConfigSource::from_text(text, "recipe.toml", overrides).read(settings.description());
  return settings;
}

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    read(text, overrides);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, ReadsEveryKindOfValue) {
  const Settings settings = read(
      "[run]\nsteps = 1e9\nrate = 1\nfast = true\n[looks]\nname = \"a \\\"b\\\"\"\ncolor = \"green\"\n"
      "paths = [{ path = \"x\", weight = 2 }, \"y\"]\n");
  EXPECT_EQ(settings.steps, 1000000000);
  EXPECT_EQ(settings.rate, 1.0);
  EXPECT_TRUE(settings.fast);
  EXPECT_EQ(settings.name, "a \"b\"");
  EXPECT_EQ(settings.color, Color::green);
  EXPECT_EQ(settings.paths, (std::vector<WeightedPath>{{"x", 2.0}, {"y", 1.0}}));
}

TEST(Config, OverridesWinAndMayBeBareWords) {
  const Settings settings =
      read("[run]\nsteps = 5\n", {"run.steps=7", "looks.name=bare", "looks.color=\"green\""});
  EXPECT_EQ(settings.steps, 7);
  EXPECT_EQ(settings.name, "bare");
  EXPECT_EQ(settings.color, Color::green);
}

TEST(Config, ErrorsNameFileLineKeyAndRange) {
  EXPECT_EQ(error_of("[run]\n\nstep = 5\n"), "recipe.toml:3: unknown key run.step; did you mean \"steps\"?");
  EXPECT_EQ(error_of("[rum]\nsteps = 5\n"), "recipe.toml:1: unknown table [rum]; did you mean \"run\"?");
  EXPECT_EQ(error_of("[run]\nsteps = \"many\"\n"), "recipe.toml:2: run.steps must be an integer");
  EXPECT_EQ(error_of("[run]\nsteps = 0\n"),
            "recipe.toml:2: run.steps = 0 is out of range; allowed is 1 to 1000000000000");
  EXPECT_EQ(error_of("[run]\nrate = nan\n"),
            "recipe.toml:2: run.rate = nan is out of range; allowed is 0 to 1");
  EXPECT_EQ(error_of("[looks]\ncolor = \"blue\"\n"),
            "recipe.toml:2: looks.color = \"blue\" is not known; choose one of red, green");
  EXPECT_EQ(error_of("", {"run.steps=-1"}),
            "--set run.steps=-1: run.steps = -1 is out of range; allowed is 1 to 1000000000000");
  EXPECT_EQ(error_of("", {"run.stops=1"}),
            "--set run.stops=1: unknown key run.stops; did you mean \"steps\"?");
  EXPECT_EQ(error_of("", {"steps=1"}),
            "--set steps=1: write it as table.key=value, for example --set train.steps=100");
  EXPECT_TRUE(error_of("[run\n").starts_with("recipe.toml:1:"));
}

TEST(Config, WrittenTomlReadsBackEqual) {
  Settings settings;
  settings.rate = 0.1 + 1e-17 * 3;
  settings.name = "tab\t quote\" back\\slash \x01";
  settings.color = Color::green;
  settings.paths = {{"a b", 0.3333333333333333}};
  const Settings back = read(config_to_toml(settings.description()));
  EXPECT_EQ(back.rate, settings.rate);
  EXPECT_EQ(back.name, settings.name);
  EXPECT_EQ(back.color, settings.color);
  EXPECT_EQ(back.paths, settings.paths);
}

TEST(Config, ReferenceFitsAnEightyColumnTerminal) {
  Settings settings;
  const std::string text = config_reference(settings.description());
  EXPECT_NE(text.find("steps = 10 steps"), std::string::npos);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(Config, MutatedFilesGiveInputErrorsOnly) {
  const std::string good =
      "[run]\nsteps = 1_000\nrate = 3e-4\nfast = false\n[looks]\nname = \"x\"\ncolor = \"red\"\n"
      "paths = [{ path = \"a\", weight = 1.0 }]\n";
  std::mt19937 generator(11);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (unsigned edits = 1 + generator() % 3; edits > 0 && !text.empty(); --edits) {
      const size_t at = generator() % text.size();
      switch (generator() % 4) {
        case 0:
          text[at] = static_cast<char>(generator());
          break;
        case 1:
          text.erase(at, 1 + generator() % 8);
          break;
        case 2:
          text.insert(at, 1, "[]{}=\"'\n.0x"[generator() % 11]);
          break;
        default:
          text.insert(at, good.substr(generator() % good.size(), 10));
      }
    }
    try {
      read(text);
      ++accepted;
    } catch (const InputError& error) {
      ASSERT_NE(std::string(error.what()).find("recipe.toml"), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace megalith
