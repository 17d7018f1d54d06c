#include "megalith/ops/machine_peak.h"

#include "megalith/base/cpu.h"
#include "tests/ops/support.h"

namespace megalith::test {

TEST(MachinePeakTest, MeasuresEveryCeiling) {
  Arena arena("test workspace");
  ExecContext context{arena};
  const MachinePeak peak = measure_machine_peak(context, 0.2);
  EXPECT_GT(peak.fp32_flops, 1e9);
  EXPECT_GE(peak.bf16_flops, peak.fp32_flops);
  EXPECT_GT(peak.read_bandwidth, 1e8);
  EXPECT_GT(peak.copy_bandwidth, 1e8);
  EXPECT_EQ(peak.amx_flops > 0, active_isa() == IsaLevel::amx);
}

}  // namespace megalith::test
