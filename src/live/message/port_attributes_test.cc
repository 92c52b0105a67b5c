#include "live/message/port_attributes.h"

#include <gtest/gtest.h>

namespace tulle::live {
namespace {

DeviceInfo device_with_hole() {
  DeviceInfo device;
  device.gids = {{Gid::from_ipv4(0x0A000001), 2, "eth0"}, {}, {Gid::from_ipv4(0x0A000002), 3, "b"}};
  return device;
}

TEST(PortAttributes, EntriesInUseHaveAddressTypeAndInterface) {
  const DeviceInfo device = device_with_hole();
  EXPECT_EQ(port_attribute(device, "gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001");
  EXPECT_EQ(port_attribute(device, "gids/2"), "0000:0000:0000:0000:0000:ffff:0a00:0002");
  EXPECT_EQ(port_attribute(device, "gid_attrs/types/2"), "RoCE v2");
  EXPECT_EQ(port_attribute(device, "gid_attrs/ndevs/0"), "eth0");
  EXPECT_EQ(port_attribute(device, "gid_attrs/ndevs/2"), "b");
}

TEST(PortAttributes, AddressesOfRoceV1HaveLinuxsNameForTheirType) {
  DeviceInfo device;
  device.gids = {{Gid::from_ipv4(0x0A000001), 2, "eth0", true},
                 {Gid::from_ipv4(0x0A000001), 2, "eth0", false}};
  EXPECT_EQ(port_attribute(device, "gid_attrs/types/0"), "IB/RoCE v1");
  EXPECT_EQ(port_attribute(device, "gid_attrs/types/1"), "RoCE v2");
}

TEST(PortAttributes, HolesHaveNeitherTypeNorInterface) {
  const DeviceInfo device = device_with_hole();
  for (const char* index : {"1", "3", "255"}) {
    EXPECT_EQ(port_attribute(device, std::string("gids/") + index),
              "0000:0000:0000:0000:0000:0000:0000:0000");
    EXPECT_FALSE(port_attribute(device, std::string("gid_attrs/types/") + index));
    EXPECT_FALSE(port_attribute(device, std::string("gid_attrs/ndevs/") + index));
  }
}

TEST(PortAttributes, State) {
  DeviceInfo device;
  EXPECT_EQ(port_attribute(device, "state"), "4: ACTIVE");
  EXPECT_EQ(port_attribute(device, "phys_state"), "5: LinkUp");
  device.port_active = false;
  EXPECT_EQ(port_attribute(device, "state"), "1: DOWN");
  EXPECT_EQ(port_attribute(device, "phys_state"), "3: Disabled");
}

TEST(PortAttributes, OtherFilesHaveNoText) {
  const DeviceInfo device = device_with_hole();
  for (const char* file : {"", "gids", "gids/", "gids/x", "gids/0x", "gids/-1", "rate",
                           "gids/99999999999999999999999"}) {
    EXPECT_FALSE(port_attribute(device, file)) << file;
  }
}

}  // namespace
}  // namespace tulle::live
