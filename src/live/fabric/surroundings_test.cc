#include "live/fabric/surroundings.h"

#include <gtest/gtest.h>

namespace tulle::live {
namespace {

// Managers that know the key are let in, as those of OpenSM that have the same SM_Key.
TEST(FabricSurroundingsTest, AGivenKeyIsTheManagersAndThePorts) {
  FabricOptions options;
  options.manager_key = 0x1234;
  const auto settings = manager_settings(options);
  EXPECT_EQ(settings.ports.key, 0x1234u);
  EXPECT_EQ(settings.manager_key, 0x1234u);
  EXPECT_TRUE(settings.shares_keys);
}

// OpenSM ignores managers that have another SM_Key than the usual one.
TEST(FabricSurroundingsTest, WithoutAGivenKeyTheManagersKeyIsTheUsualOne) {
  const std::uint64_t usual = management::subnet::ManagerSettings().manager_key;
  FabricOptions options;
  const auto secret = manager_settings(options);
  EXPECT_EQ(secret.manager_key, usual);
  EXPECT_FALSE(secret.shares_keys);
  EXPECT_NE(secret.ports.key, 0u);
  EXPECT_NE(secret.ports.key, manager_settings(options).ports.key) << "nobody can predict it";
  options.manager_key = 0;
  const auto open = manager_settings(options);
  EXPECT_EQ(open.ports.key, 0u);
  EXPECT_EQ(open.manager_key, usual);
  EXPECT_FALSE(open.shares_keys);
}

}  // namespace
}  // namespace tulle::live
