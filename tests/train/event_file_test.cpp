#include "megalith/train/event_file.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace megalith {
namespace {

TEST(EventFile, IsByteEqualToTensorBoards) {
  const std::filesystem::path golden = std::filesystem::path(std::getenv("MEGALITH_TEST_DATA")) /
                                       "golden/tensorboard/events.out.tfevents.1700000000.golden";
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "events.out.tfevents.test";
  {
    EventFile events(path, 1700000000.0);
    events.scalar(1700000001.0, 1, "train/loss", 4.25f);
    events.scalar(1700000002.0, 2, "train/loss", 3.5f);
    events.scalar(1700000003.0, 2, "train/lr", 0.001f);
    events.flush();
  }
  EXPECT_EQ(read_file(path), read_file(golden));
}

}  // namespace
}  // namespace megalith
