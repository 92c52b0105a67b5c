#include "live/agent/interfaces.h"

#include <gtest/gtest.h>

#include "live/test_network_test.h"

namespace tulle::live {
namespace {

// A list is bounded by its letters, and each interface costs all its addresses.
TEST(Interfaces, ANameThatComesAgainSaysNothingNew) {
  enter_test_network();
  auto once = describe_device({.name = "tulle0", .interfaces = "lo"});
  auto often = describe_device({.name = "tulle0", .interfaces = "lo,lo,lo,lo"});
  ASSERT_TRUE(once && often);
  ASSERT_FALSE(once->gids.empty());
  EXPECT_EQ(often->gids, once->gids);
}

}  // namespace
}  // namespace tulle::live
