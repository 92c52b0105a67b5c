#include "ranks/profile.h"

#include <gtest/gtest.h>

namespace tulle::ranks {
namespace {

TEST(ProfileTest, HasTheKeysOfServers) {
  Calibration calibration;
  calibration.ranks = 4;
  calibration.cores = 2;
  calibration.sizes = {{8, 5e-6, 2e-6, 3e-6, 1.5}};
  calibration.bytes_per_second = 1e9;
  calibration.added_bytes_per_second = 5e8;
  calibration.message_work = 1e-6;
  calibration.latency = 2e-6;
  const std::string toml = profile_of(calibration);
  for (const char* line :
       {"title = \"4 processes on 2 cores, calibrated\"\n", "gpus = 4\nadapters = 1\n",
        "cores = 2\n", "scale_up_rate = \"8.000Gbps\"\n", "message_work = \"1000ns\"\n",
        "reduce_rate = \"4.000Gbps\"\n", "scale_up_latency = \"2000ns\"\n",
        "#         8         5.0     0.00         2.0         3.0        1.50\n"}) {
    EXPECT_NE(toml.find(line), std::string::npos) << line << toml;
  }
}

}  // namespace
}  // namespace tulle::ranks
