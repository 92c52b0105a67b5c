#include "live/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

namespace tulle::live {
namespace {

TEST(Settings, ATextWithoutMeaningLeavesTheDefault) {
  const Settings defaults;
  for (const char* text : {"", "-1", "-2147483648", "1s", "99999999999", " 5"}) {
    setenv("TULLE_IDLE_EXIT", text, 1);
    setenv("TULLE_PORT", text, 1);
    const Settings settings = read_settings();
    EXPECT_EQ(settings.idle_exit_seconds, defaults.idle_exit_seconds) << text;
    EXPECT_EQ(settings.port, defaults.port) << text;
  }
  setenv("TULLE_IDLE_EXIT", "0", 1);
  setenv("TULLE_PORT", "65535", 1);
  EXPECT_EQ(read_settings().idle_exit_seconds, 0);
  EXPECT_EQ(read_settings().port, 65'535);
  unsetenv("TULLE_IDLE_EXIT");
  unsetenv("TULLE_PORT");
}

TEST(Settings, ABusyPollIsBounded) {
  for (const auto& [text, microseconds] :
       {std::pair{"0", 0u}, {"1", 1u}, {"1000", 1'000u}, {"4000000000", busy_poll_max}}) {
    setenv("TULLE_BUSY_POLL", text, 1);
    EXPECT_EQ(read_settings().busy_poll_microseconds, microseconds) << text;
  }
  unsetenv("TULLE_BUSY_POLL");
}

TEST(Settings, RecoveryIsGoBackNUnlessAnotherIsNamed) {
  for (const char* text : {"", "go-back-n", "selective", "selective-repeat "}) {
    setenv("TULLE_RECOVERY", text, 1);
    EXPECT_EQ(read_settings().recovery, transport::Recovery::go_back_n) << text;
  }
  setenv("TULLE_RECOVERY", "selective-repeat", 1);
  EXPECT_EQ(read_settings().recovery, transport::Recovery::selective_repeat);
  unsetenv("TULLE_RECOVERY");
  EXPECT_EQ(read_settings().recovery, transport::Recovery::go_back_n);
}

// Alone, it would be ignored, and a program would run on the machine's own network.
TEST(Settings, AHostNeedsItsFabric) {
  setenv("TULLE_HOST", "h0", 1);
  EXPECT_EQ(wrong_setting(), "TULLE_HOST=h0 needs TULLE_FABRIC: `tulle run --host` sets both");
  setenv("TULLE_FABRIC", "/run/socket", 1);
  EXPECT_EQ(wrong_setting(), "");
  unsetenv("TULLE_FABRIC");
  unsetenv("TULLE_HOST");
}

TEST(Settings, ADeviceNameIsNoPath) {
  for (const char* text :
       {"/etc/cron.d", "../../etc", ".", "..", "a/b", "a\nb", "a b", "\x1b[2J"}) {
    setenv("TULLE_DEVICE", text, 1);
    EXPECT_EQ(read_settings().device.name, Settings().device.name) << text;
    EXPECT_NE(wrong_setting().find("names no device"), std::string::npos) << text;
  }
  for (const char* text : {"mlx5_0", "rocep1s0", "a.b-c", "..."}) {
    setenv("TULLE_DEVICE", text, 1);
    EXPECT_EQ(read_settings().device.name, text);
    EXPECT_EQ(wrong_setting(), "");
  }
  EXPECT_TRUE(is_device_name(std::string(63, 'x')));
  EXPECT_FALSE(is_device_name(std::string(64, 'x')));
  unsetenv("TULLE_DEVICE");
}

}  // namespace
}  // namespace tulle::live
