#include "live/connections/network.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace tulle::live {
namespace {

constexpr Gid address = Gid::from_ipv4(0x0A00'0001);

SocketAddress socket_address(std::uint8_t first, std::uint8_t last) {
  SocketAddress made;
  made.family = AF_INET;
  made.address[0] = std::byte{first};
  made.address[3] = std::byte{last};
  return made;
}

DeviceInfo device(std::vector<GidEntry> gids) {
  DeviceInfo made;
  made.gids = std::move(gids);
  return made;
}

TEST(LocalAddressTest, OfBothVersionsOfRoceTheSecondIsMeant) {
  const DeviceInfo both = device({{address, 2, "a", true}, {address, 2, "a", false}});
  const auto found = local_address(both, socket_address(10, 1), address);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->gid_index, 1);
  EXPECT_FALSE(found->is_roce_v1);
  const auto alias = local_address(both, socket_address(127, 1), Gid::from_ipv4(0x7F00'0001));
  ASSERT_TRUE(alias);
  EXPECT_EQ(alias->gid_index, 1);
}

TEST(LocalAddressTest, ARequestByVersionOneIsForAnAddressOfVersionOne) {
  const DeviceInfo both = device({{address, 2, "a", true}, {address, 2, "a", false}});
  const auto found = local_address(both, socket_address(10, 1), address, true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->gid_index, 0);
  EXPECT_TRUE(found->is_roce_v1);
}

TEST(LocalAddressTest, AnAddressOfOneVersionIsFoundForBoth) {
  for (const bool is_roce_v1 : {true, false}) {
    const DeviceInfo one = device({{address, 2, "a", is_roce_v1}});
    const auto found = local_address(one, socket_address(10, 1), address, !is_roce_v1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->is_roce_v1, is_roce_v1);
  }
}

TEST(LocalAddressTest, AForeignAddressIsNotFound) {
  const DeviceInfo one = device({{address, 2, "a", false}});
  EXPECT_FALSE(local_address(one, socket_address(10, 2), Gid::from_ipv4(0x0A00'0002)));
}

}  // namespace
}  // namespace tulle::live
