#include "live/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

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

}  // namespace
}  // namespace tulle::live
