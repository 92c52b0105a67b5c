#include "study/tuning/devices.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "study/scenario/scenario.h"

namespace tulle::tuning {
namespace {

scenario::Setup setup_of(const std::string& keys) {
  auto scenario = scenario::Scenario::parse(
      "[topology]\nhosts = 4\nlink_rate = \"100Gbps\"\n[traffic]\nbytes = \"1MB\"\n" + keys,
      "s.toml", "", {});
  EXPECT_TRUE(scenario);
  auto setup = scenario->build(0);
  EXPECT_TRUE(setup) << setup.error().message;
  return std::move(*setup);
}

constexpr char dcqcn[] = R"(
[fabric]
ecn = { kmin = "100KB", kmax = "400KB", pmax = 0.05 }
pfc = { alpha = 0.25 }
[congestion]
control = "dcqcn"
g = 0.0048828125
alpha_interval = "2us"
decrease_interval = "4us"
increase_interval = "300us"
increase_bytes = "0B"
fast_recovery_rounds = 5
additive = "50Mbps"
hyper = "500Mbps"
least = "100Mbps"
clamp_target = false
notification_interval = "4us"
)";

TEST(Devices, SonicHasThresholdsInBytesAndPowersOfTwo) {
  const auto config = nlohmann::json::parse(sonic_config(setup_of(dcqcn)));
  const auto& wred = config["WRED_PROFILE"]["TULLE_ECN"];
  EXPECT_EQ(wred["ecn"], "ecn_all");
  EXPECT_EQ(wred["green_min_threshold"], "100000");
  EXPECT_EQ(wred["green_max_threshold"], "400000");
  EXPECT_EQ(wred["green_drop_probability"], "5");
  const auto& buffer = config["BUFFER_PROFILE"]["TULLE_LOSSLESS"];
  EXPECT_EQ(buffer["dynamic_th"], "-2") << "alpha is 2^-2";
  EXPECT_EQ(buffer.count("static_th"), 0u);
}

TEST(Devices, AFixedThresholdIsStatic) {
  const auto config = nlohmann::json::parse(
      sonic_config(setup_of("[fabric]\npfc = { xoff = \"300KB\", xon_gap = \"20KB\" }\n")));
  const auto& buffer = config["BUFFER_PROFILE"]["TULLE_LOSSLESS"];
  EXPECT_EQ(buffer["static_th"], "300000");
  EXPECT_EQ(buffer["xon_offset"], "20000");
  EXPECT_EQ(buffer.count("dynamic_th"), 0u);
  EXPECT_EQ(config.count("WRED_PROFILE"), 0u);
}

TEST(Devices, AdaptersHaveDcqcnsParameters) {
  const std::string script = adapter_script(setup_of(dcqcn));
  for (const char* line :
       {"put roce_rp/dce_tcp_g 1019\n", "put roce_rp/dce_tcp_rtt 2\n",
        "put roce_rp/rate_reduce_monitor_period 4\n", "put roce_rp/rpg_time_reset 300\n",
        "put roce_rp/rpg_byte_reset 0\n", "put roce_rp/rpg_threshold 5\n",
        "put roce_rp/rpg_ai_rate 50\n", "put roce_rp/rpg_hai_rate 500\n",
        "put roce_rp/rpg_min_rate 100\n", "put roce_rp/clamp_tgt_rate 0\n",
        "put roce_np/min_time_between_cnps 4\n"}) {
    EXPECT_NE(script.find(line), std::string::npos) << line << script;
  }
  EXPECT_NE(script.find("echo 1 || echo 0"), std::string::npos) << "PFC is on";
}

TEST(Devices, WhatAnAdapterCannotHoldIsSaid) {
  const std::string script = adapter_script(setup_of(R"(
[fabric]
ecn = {}
flow_control = "none"
[congestion]
control = "dcqcn"
g = 0.5
alpha_interval = "1.5us"
)"));
  EXPECT_NE(script.find("put roce_rp/dce_tcp_g 512\n"), std::string::npos);
  EXPECT_NE(script.find("put roce_rp/dce_tcp_rtt 2  # 1.5 was simulated\n"), std::string::npos);
  EXPECT_NE(script.find("# no increase by bytes: 10000000 were simulated"), std::string::npos);
  EXPECT_NE(script.find("put roce_rp/rpg_byte_reset 0\n"), std::string::npos);
  EXPECT_NE(script.find("echo 0 || echo 0"), std::string::npos) << "PFC is off";
}

TEST(Devices, WhatIsOutOfAParametersRangeIsHeldAtItsEnd) {
  const auto with = [](const std::string& keys) {
    return adapter_script(
        setup_of("[fabric]\necn = {}\n[congestion]\ncontrol = \"dcqcn\"\n" + keys));
  };
  // An interval between notifications may be 0, and nothing else.
  const std::string slow = with(R"(
alpha_interval = "100ns"
decrease_interval = "100ns"
increase_interval = "100ns"
additive = "100Kbps"
hyper = "200Kbps"
least = "300Kbps"
fast_recovery_rounds = 0
notification_interval = "0s"
)");
  for (const char* line : {"put roce_rp/dce_tcp_rtt 1  # 0.1 was simulated\n",
                           "put roce_rp/rate_reduce_monitor_period 1  # 0.1 was simulated\n",
                           "put roce_rp/rpg_time_reset 1  # 0.1 was simulated\n",
                           "put roce_rp/rpg_threshold 1  # 0 was simulated\n",
                           "put roce_rp/rpg_ai_rate 1  # 0.1 was simulated\n",
                           "put roce_rp/rpg_hai_rate 1  # 0.2 was simulated\n",
                           "put roce_rp/rpg_min_rate 1  # 0.3 was simulated\n",
                           "put roce_np/min_time_between_cnps 0\n"}) {
    EXPECT_NE(slow.find(line), std::string::npos) << line << slow;
  }
  const std::string fast = with(R"(
alpha_interval = "200ms"
decrease_interval = "200ms"
increase_interval = "200ms"
increase_bytes = "32767B"
fast_recovery_rounds = 40
notification_interval = "5ms"
)");
  for (const char* line :
       {"put roce_rp/dce_tcp_rtt 131071  # 200000 was simulated\n",
        "put roce_rp/rate_reduce_monitor_period 200000\n",
        "put roce_rp/rpg_time_reset 131071  # 200000 was simulated\n",
        "put roce_rp/rpg_byte_reset 32767\n", "put roce_rp/rpg_threshold 31  # 40 was simulated\n",
        "put roce_np/min_time_between_cnps 4095  # 5000 was simulated\n"}) {
    EXPECT_NE(fast.find(line), std::string::npos) << line << fast;
  }
}

TEST(Devices, StepsOfDevicesAreSaid) {
  const auto setup = setup_of(R"(
[fabric]
ecn = { kmin = "100KB", kmax = "400KB", pmax = 0.001 }
pfc = { alpha = 1.28 }
[congestion]
control = "dcqcn"
g = 0.0014
hyper = "80Gbps"
)");
  const std::string script = adapter_script(setup);
  EXPECT_NE(script.find("put roce_rp/dce_tcp_g 1023  # 0.0014 was simulated\n"), std::string::npos)
      << script;
  EXPECT_NE(script.find("put roce_rp/rpg_hai_rate 80000\n"), std::string::npos) << "100 Gb/s links";
  const auto differences = sonic_differences(setup);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0], "its drop probability is 1 %, and 0.001 was simulated");
  EXPECT_EQ(differences[1], "its dynamic_th is 0, which is an alpha of 1, and 1.28 was simulated");
  EXPECT_TRUE(sonic_differences(setup_of(dcqcn)).empty());
}

TEST(Devices, OtherFabricsHaveNone) {
  const auto infiniband = setup_of("[fabric]\nkind = \"infiniband\"\n");
  EXPECT_EQ(sonic_config(infiniband), "");
  EXPECT_EQ(adapter_script(infiniband), "");
  EXPECT_EQ(adapter_script(setup_of("")), "") << "no DCQCN";
}

}  // namespace
}  // namespace tulle::tuning
