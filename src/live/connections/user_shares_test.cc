#include "live/connections/user_shares.h"

#include <gtest/gtest.h>

namespace tulle::live {
namespace {

constexpr ChannelOwner limited(uid_t user) { return {1, user, true}; }
constexpr ChannelOwner trusted{1, 0, false};

TEST(UserSharesTest, AUserWhoIsLimitedHasAPartOfTheEndpoints) {
  UserShares shares;
  for (std::size_t i = 0; i < UserShares::endpoints_max; ++i) {
    ASSERT_TRUE(shares.may_have_endpoint(limited(7)));
    shares.add_endpoint(limited(7));
  }
  EXPECT_FALSE(shares.may_have_endpoint(limited(7)));
  EXPECT_TRUE(shares.may_have_endpoint(limited(8)));
  shares.remove_endpoint(limited(7));
  EXPECT_TRUE(shares.may_have_endpoint(limited(7)));
}

TEST(UserSharesTest, UsersWhoAreLimitedLeaveEndpointsToOthers) {
  UserShares shares;
  std::size_t count = 0;
  for (uid_t user = 7; user < 10; ++user) {
    for (; shares.may_have_endpoint(limited(user)); ++count) shares.add_endpoint(limited(user));
  }
  EXPECT_EQ(count, UserShares::endpoints_of_all_max);
  EXPECT_TRUE(shares.may_have_endpoint(trusted));
}

TEST(UserSharesTest, PortsAreCountedAloneAndTogether) {
  UserShares shares;
  for (uid_t user : {7, 8}) shares.add_endpoint(limited(user));
  shares.add_endpoint(trusted);
  std::size_t first = 0;
  for (; shares.may_have_port(limited(7)); ++first) shares.add_port(limited(7));
  EXPECT_EQ(first, UserShares::ports_max);
  std::size_t second = 0;
  for (; shares.may_have_port(limited(8)); ++second) shares.add_port(limited(8));
  EXPECT_EQ(first + second, UserShares::ports_of_all_max);
  EXPECT_TRUE(shares.may_have_port(trusted));
  shares.remove_port(limited(7));
  EXPECT_TRUE(shares.may_have_port(limited(8)));
}

TEST(UserSharesTest, GroupsAreCountedByUser) {
  UserShares shares;
  for (uid_t user : {7, 8}) shares.add_endpoint(limited(user));
  for (std::size_t i = 0; i < UserShares::groups_max; ++i) shares.add_group(limited(7));
  EXPECT_FALSE(shares.may_have_group(limited(7)));
  EXPECT_TRUE(shares.may_have_group(limited(8)));
  shares.remove_groups(limited(7), 2);
  EXPECT_TRUE(shares.may_have_group(limited(7)));
}

}  // namespace
}  // namespace tulle::live
