// Runs the tests at the level that MEGALITH_ISA asks for, or says why not: this machine lacks it, or (with
// --only-lower-levels) it is the machine's best, which runs without being asked for.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "megalith/base/cpu.h"
#include "megalith/base/error.h"

int main(int argc, char** argv) {
  try {
    std::printf("kernels for %s\n", std::string(megalith::name(megalith::active_isa())).c_str());
    if (argc > 1 && std::string_view(argv[1]) == "--only-lower-levels" &&
        megalith::active_isa() == megalith::detected_isa()) {
      std::printf("skipped: the best level of this machine\n");
      return 77;
    }
  } catch (const megalith::InputError& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
