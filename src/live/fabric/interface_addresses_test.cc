#include "live/fabric/interface_addresses.h"

#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstring>

namespace tulle::live {
namespace {

constexpr int index = 7;

// A message of the kernel about an address with these attributes.
std::vector<std::byte> message(
    std::uint16_t type, std::uint8_t family, std::uint8_t prefix,
    std::initializer_list<std::pair<unsigned, std::vector<std::uint8_t>>> attributes,
    unsigned of = index) {
  std::vector<std::byte> out(sizeof(nlmsghdr) + sizeof(ifaddrmsg));
  ifaddrmsg about{};
  about.ifa_family = family;
  about.ifa_prefixlen = prefix;
  about.ifa_index = of;
  std::memcpy(out.data() + sizeof(nlmsghdr), &about, sizeof(about));
  for (const auto& [kind, bytes] : attributes) {
    rtattr attribute{};
    attribute.rta_len = static_cast<unsigned short>(sizeof(attribute) + bytes.size());
    attribute.rta_type = static_cast<unsigned short>(kind);
    const std::size_t at = out.size();
    out.resize(at + RTA_ALIGN(attribute.rta_len));
    std::memcpy(out.data() + at, &attribute, sizeof(attribute));
    std::memcpy(out.data() + at + sizeof(attribute), bytes.data(), bytes.size());
  }
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(out.size());
  header.nlmsg_type = type;
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

const std::vector<std::uint8_t> ipv4 = {10, 1, 0, 1};
const std::vector<std::uint8_t> ipv6 = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1};

TEST(InterfaceAddressesTest, ComeAndGo) {
  InterfaceAddresses addresses(index);
  EXPECT_TRUE(addresses.take(message(RTM_NEWADDR, AF_INET, 16, {{IFA_ADDRESS, ipv4}})));
  EXPECT_TRUE(addresses.take(message(RTM_NEWADDR, AF_INET6, 64, {{IFA_ADDRESS, ipv6}})));
  ASSERT_EQ(addresses.addresses().size(), 2u);
  EXPECT_EQ(addresses.addresses()[0], (ipoib::HostAddress{Gid::from_ipv4(0x0A01'0001), 112}));
  EXPECT_EQ(addresses.addresses()[1].prefix_bits, 64u);
  EXPECT_FALSE(addresses.take(message(RTM_NEWADDR, AF_INET, 16, {{IFA_ADDRESS, ipv4}})));
  EXPECT_TRUE(addresses.take(message(RTM_DELADDR, AF_INET, 16, {{IFA_ADDRESS, ipv4}})));
  EXPECT_EQ(addresses.addresses().size(), 1u);
}

// A point-to-point link has two addresses, of which the host's own counts.
TEST(InterfaceAddressesTest, TheLocalEnd) {
  InterfaceAddresses addresses(index);
  const std::vector<std::uint8_t> other = {10, 1, 0, 9};
  addresses.take(message(RTM_NEWADDR, AF_INET, 32, {{IFA_ADDRESS, other}, {IFA_LOCAL, ipv4}}));
  addresses.take(message(RTM_NEWADDR, AF_INET, 32, {{IFA_LOCAL, ipv4}, {IFA_ADDRESS, other}}));
  ASSERT_EQ(addresses.addresses().size(), 1u);
  EXPECT_EQ(addresses.addresses()[0].ip, Gid::from_ipv4(0x0A01'0001));
}

TEST(InterfaceAddressesTest, WhatIsNoAddressOfTheInterface) {
  InterfaceAddresses addresses(index);
  EXPECT_FALSE(addresses.take(message(RTM_NEWADDR, AF_INET, 16, {{IFA_ADDRESS, ipv4}}, 8)));
  EXPECT_FALSE(addresses.take(message(RTM_NEWADDR, AF_INET, 16, {{IFA_ADDRESS, ipv6}})));
  EXPECT_FALSE(addresses.take(message(RTM_NEWADDR, AF_INET, 200, {{IFA_ADDRESS, ipv4}})));
  auto cut = message(RTM_NEWADDR, AF_INET, 16, {{IFA_ADDRESS, ipv4}});
  for (std::size_t bytes = 0; bytes < cut.size(); ++bytes) {
    EXPECT_FALSE(addresses.take(std::span(cut).first(bytes))) << bytes;
  }
}

TEST(InterfaceAddressesTest, ThereAreNotAnyNumberOfThem) {
  InterfaceAddresses addresses(index);
  for (int i = 0; i < 1'000; ++i) {
    const std::vector<std::uint8_t> one = {10, 2, static_cast<std::uint8_t>(i >> 8),
                                           static_cast<std::uint8_t>(i)};
    addresses.take(message(RTM_NEWADDR, AF_INET, 16, {{IFA_ADDRESS, one}}));
  }
  EXPECT_EQ(addresses.addresses().size(), 256u);
}

}  // namespace
}  // namespace tulle::live
