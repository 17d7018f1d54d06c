// Runs the tests at the level that MEGALITH_ISA asks for, or says that this machine lacks it.
#include <gtest/gtest.h>

#include <cstdio>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"

int main(int argc, char** argv) {
  try {
    std::printf("kernels for %s\n", std::string(megalith::name(megalith::active_isa())).c_str());
  } catch (const megalith::InputError& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
