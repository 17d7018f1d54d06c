#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "megalith/base/error.h"
#include "megalith/formats/checkpoint_directory.h"

namespace megalith {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  const fs::path path = fs::path(::testing::TempDir()) / "megalith-checkpoint" / name;
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

void write_checkpoint(const fs::path& path, int64_t step, float first) {
  const Tensor a(DType::f32, {3, 2}), b(DType::bf16, {5});
  a.data<float>()[0] = first;
  CheckpointWriter writer(path);
  writer.write_tensors("model.safetensors", {{"a", a}, {"b", b}});
  writer.write_tensors("optimizer.safetensors", {{"m/a", a}});
  writer.write_file("note.txt", "hello");
  writer.commit(step, "{\"x\": 1}");
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

void flip_bit(const fs::path& path, size_t at) {
  std::string bytes = read_file(path);
  bytes[at < bytes.size() ? at : bytes.size() - 1] ^= 1;
  write_file_atomic(path, bytes);
}

TEST(Checkpoint, GivesBackWhatWasWritten) {
  const fs::path path = scratch("run") / "checkpoints" / checkpoint_name(12);
  write_checkpoint(path, 12, 2.5f);
  const CheckpointReader reader(path);
  EXPECT_EQ(reader.step(), 12);
  EXPECT_EQ(reader.state(), "{\"x\":1}");
  EXPECT_EQ(reader.read_file("note.txt"), "hello");
  EXPECT_EQ(reader.tensor("a").data<float>()[0], 2.5f);
  EXPECT_EQ(reader.tensor_names(), (std::vector<std::string>{"a", "b", "m/a"}));
  EXPECT_NO_THROW(reader.verify());
  EXPECT_FALSE(fs::exists(path.string() + ".partial"));
}

TEST(Checkpoint, ReplacesOneOfTheSameStepAndIgnoresUnfinishedOnes) {
  const fs::path run = scratch("replace");
  const fs::path path = run / "checkpoints" / checkpoint_name(12);
  write_checkpoint(path, 12, 1);
  write_checkpoint(path, 12, 2);
  EXPECT_EQ(CheckpointReader(path).tensor("a").data<float>()[0], 2.0f);
  {
    CheckpointWriter unfinished(run / "checkpoints" / checkpoint_name(13));
    unfinished.write_file("note.txt", "x");
  }
  fs::create_directories(run / "checkpoints" / "step-00000014.partial");
  fs::create_directories(run / "checkpoints" / "step-00000015");  // no manifest
  write_checkpoint(run / "checkpoints" / checkpoint_name(9), 9, 1);
  const auto found = list_checkpoints(run);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].first, 9);
  EXPECT_EQ(found[1].first, 12);
  EXPECT_EQ(find_checkpoint(run), path);
  EXPECT_EQ(find_checkpoint(path), path);
  EXPECT_EQ(find_checkpoint(run / "nothing"), std::nullopt);
}

TEST(Checkpoint, DamageIsFoundAndNamed) {
  const fs::path path = scratch("damage") / "step";
  const auto verify = [&] { CheckpointReader(path).verify(); };
  write_checkpoint(path, 1, 1);
  const size_t model_bytes = read_file(path / "model.safetensors").size();
  flip_bit(path / "model.safetensors", model_bytes - 1);
  EXPECT_NE(error_of(verify).find("tensor b in model.safetensors is damaged"), std::string::npos);
  write_checkpoint(path, 1, 1);
  flip_bit(path / "optimizer.safetensors", read_file(path / "optimizer.safetensors").size() - 3);
  EXPECT_NE(error_of(verify).find("tensor m/a in optimizer.safetensors is damaged"), std::string::npos);
  write_checkpoint(path, 1, 1);
  flip_bit(path / "note.txt", 2);
  EXPECT_NE(error_of(verify).find("note.txt is damaged"), std::string::npos);
  write_checkpoint(path, 1, 1);
  fs::resize_file(path / "model.safetensors", model_bytes - 1);
  EXPECT_NE(error_of(verify).find("model.safetensors has"), std::string::npos);
  write_checkpoint(path, 1, 1);
  fs::remove(path / "optimizer.safetensors");
  EXPECT_NE(error_of(verify).find("optimizer.safetensors is missing"), std::string::npos);
  // A shard of another step has the right shape but other bytes.
  const fs::path other = scratch("other") / "step";
  write_checkpoint(path, 1, 1);
  write_checkpoint(other, 2, 7);
  fs::copy_file(other / "model.safetensors", path / "model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(error_of(verify).find("tensor a in model.safetensors is damaged"), std::string::npos);
  // Two shards swapped.
  write_checkpoint(path, 1, 1);
  fs::rename(path / "model.safetensors", path / "x");
  fs::rename(path / "optimizer.safetensors", path / "model.safetensors");
  fs::rename(path / "x", path / "optimizer.safetensors");
  EXPECT_NE(error_of(verify), "no error");
}

// The library that parses calls itself for each level, and would run out of stack.
TEST(Checkpoint, DeepManifestsAreRefused) {
  const fs::path path = scratch("deep") / "step";
  write_checkpoint(path, 1, 1);
  std::string text = read_file(path / "manifest.json");
  text.replace(text.find("{\"x\": 1}"), 8,
               "{\"x\":" + std::string(200000, '[') + std::string(200000, ']') + "}");
  write_file_atomic(path / "manifest.json", text);
  EXPECT_NE(error_of([&] { CheckpointReader reader(path); }).find("nested more than 256 deep"),
            std::string::npos);
}

// The parts fit each other, but not the files: no memory is asked for before that is known.
TEST(Checkpoint, PartsOfAbsurdSizeAreRefused) {
  const fs::path path = scratch("absurd") / "step";
  {
    const Tensor half(DType::f32, {3});
    CheckpointWriter writer(path);
    for (const int64_t first : {0, 3}) {
      writer.write_tensors(first == 0 ? "a.safetensors" : "b.safetensors",
                           {{"w", half, {6}, TensorSlice{}, first}});
    }
    writer.commit(1, "{}");
  }
  EXPECT_EQ(CheckpointReader(path).tensor("w").elements(), 6);
  std::string text = read_file(path / "manifest.json");
  const auto change = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
  };
  const std::string half = std::to_string(int64_t{1} << 47), all = std::to_string(int64_t{1} << 48);
  change("\"elements\":3", "\"elements\":" + half);
  change("\"first_element\":3", "\"first_element\":" + half);
  change("[6]", "[" + all + "]");
  write_file_atomic(path / "manifest.json", text);
  EXPECT_NE(error_of([&] { CheckpointReader(path).tensor("w"); }).find("than the manifest says"),
            std::string::npos);
}

TEST(Checkpoint, MutatedManifestsGiveInputErrorsOnly) {
  const fs::path path = scratch("fuzz") / "step";
  write_checkpoint(path, 1, 1);
  const std::string good = read_file(path / "manifest.json");
  std::mt19937 generator(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (unsigned edits = 1 + generator() % 3; edits > 0 && !text.empty(); --edits) {
      const size_t at = generator() % text.size();
      if (generator() % 2 == 0) {
        text[at] = static_cast<char>(generator());
      } else {
        text.erase(at, 1 + generator() % 20);
      }
    }
    OutputFile file(path / "manifest.json");
    file.write(text);
    file.close();
    try {
      CheckpointReader(path).verify();
    } catch (const InputError&) {
    }
  }
}

TEST(Safetensors, MutatedFilesGiveInputErrorsOnly) {
  const fs::path path = scratch("fuzz-safetensors") / "x.safetensors";
  SafetensorsPlan plan;
  plan.metadata["note"] = "é \"quoted\"";
  plan.add("a", DType::f32, {2, 3});
  plan.add("b/ü😀", DType::u8, {});
  plan.add("empty", DType::i64, {0, 4});
  {
    SafetensorsWriter writer(path, plan);
    const std::vector<char> zeros(64, 0);
    for (const SafetensorsEntry& entry : plan.entries) writer.write(entry.name, zeros.data(), entry.bytes());
    writer.finish();
  }
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.metadata().at("note"), "é \"quoted\"");
  EXPECT_EQ(file.view(*file.find("b/ü😀")).shape(), Shape());
  const std::string good = read_file(path);
  std::mt19937 generator(3);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (unsigned edits = 1 + generator() % 3; edits > 0 && !bytes.empty(); --edits) {
      const size_t at = generator() % bytes.size();
      switch (generator() % 4) {
        case 0:
          bytes[at] = static_cast<char>(generator());
          break;
        case 1:
          bytes.erase(at, 1 + generator() % 9);
          break;
        case 2:
          bytes.insert(at, 1, "0123456789[]{},\"-"[generator() % 17]);
          break;
        default:
          bytes.resize(at);
      }
    }
    OutputFile out(path);
    out.write(bytes);
    out.close();
    try {
      const SafetensorsFile mutated(path);
      for (const SafetensorsEntry& entry : mutated.entries()) {
        ASSERT_LE(entry.end, bytes.size());
        if (entry.bytes() > 0) {
          ASSERT_EQ(mutated.bytes(entry).size(), entry.bytes());
        }
      }
      ++accepted;
    } catch (const InputError& error) {
      ASSERT_NE(std::string(error.what()).find("x.safetensors"), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 0);
}

// Writes a file with this header and so many data bytes.
std::string open_header(const fs::path& path, const std::string& header, size_t data) {
  OutputFile file(path);
  const uint64_t size = header.size();
  file.write(&size, 8);
  file.write(header);
  file.write(std::string(data, '\0'));
  file.close();
  return error_of([&] { SafetensorsFile opened(path); });
}

TEST(Safetensors, FaultsAreNamed) {
  const fs::path path = scratch("faults") / "x.safetensors";
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  EXPECT_EQ(open_header(path, tensor("F32", "[1]", "[0,4]"), 4), "no error");
  EXPECT_EQ(open_header(path, "{}", 0), "no error");
  EXPECT_EQ(open_header(path, "{\"__metadata__\":{\"a\":\"b\\u0000\"}}   ", 0), "no error");
  EXPECT_NE(
      open_header(path, tensor("F32", "[1000,1000]", "[0,4]"), 4).find("\"t\": data_offsets span 4 bytes"),
      std::string::npos);
  EXPECT_NE(open_header(path, tensor("F32", "[1]", "[4,0]"), 4).find("\"t\": data_offsets"),
            std::string::npos);
  EXPECT_NE(open_header(path, tensor("F32", "[2]", "[0,8]"), 4).find("outside"), std::string::npos);
  EXPECT_NE(open_header(path, tensor("F32", "[1]", "[-4,0]"), 4).find("\"t\""), std::string::npos);
  EXPECT_NE(open_header(path, tensor("F32", "[8589934592,8589934592]", "[0,4]"), 4).find("overflows"),
            std::string::npos);
  EXPECT_NE(open_header(path, tensor("Q4", "[1]", "[0,4]"), 4).find("unknown tensor type"),
            std::string::npos);
  EXPECT_NE(open_header(path, tensor("F32", "[1]", "[4,8]"), 8).find("hole"), std::string::npos);
  EXPECT_NE(open_header(path, tensor("F32", "[1]", "[0,4]"), 8).find("end at byte 4"), std::string::npos);
  EXPECT_NE(open_header(path,
                        "{\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"t\":{\"dtype\":"
                        "\"U8\",\"shape\":[0],"
                        "\"data_offsets\":[0,0]}}",
                        0)
                .find("twice"),
            std::string::npos);
  EXPECT_NE(open_header(path, "{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0)
                .find("empty name"),
            std::string::npos);
  EXPECT_NE(open_header(path, std::string(100000, '['), 0).find("JSON"), std::string::npos);
}

}  // namespace
}  // namespace megalith
