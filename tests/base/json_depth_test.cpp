#include "megalith/base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

#include "megalith/base/error.h"

namespace megalith {
namespace {

TEST(JsonDepth, CountsListsAndObjectsOutsideOfTexts) {
  const std::string open(kMaxJsonDepth, '['), close(kMaxJsonDepth, ']');
  EXPECT_NO_THROW(check_json_depth(open + close + open, "x"));
  EXPECT_NO_THROW(check_json_depth("[\"" + open + open + "\\\"" + open + "\"]", "x"));
  EXPECT_THROW(check_json_depth("[" + open, "x"), InputError);
  EXPECT_THROW(check_json_depth("{\"a\\\\\":" + open, "x"), InputError);
  EXPECT_NO_THROW(check_json_depth("", "x"));
  EXPECT_NO_THROW(check_json_depth("]]]]\"\\", "x"));
}

}  // namespace
}  // namespace megalith
