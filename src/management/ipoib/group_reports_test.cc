#include "management/ipoib/group_reports.h"

#include <gtest/gtest.h>

#include <map>
#include <string_view>
#include <vector>

namespace tulle::ipoib {
namespace {

std::vector<std::byte> bytes_of(std::string_view hex) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

using Reports = std::map<Gid, bool>;

Reports reports_of(std::span<const std::byte> packet) {
  Reports found;
  read_group_reports(packet, [&](const Gid& group, bool joins) { found[group] = joins; });
  return found;
}

// IPv4 with the option "router alert", as Linux sends IGMP.
constexpr std::string_view ipv4 = "46c0002c00004000010200000a000001e000001694040000";
// IPv6 with a hop-by-hop header that has this option, to ff02::16.
constexpr std::string_view ipv6 =
    "6000000000000001fe800000000000000000000000000001ff0200000000000000000000000000163a000502000001"
    "00"
    "";

std::vector<std::byte> packet(std::string_view header, std::string_view message) {
  return bytes_of(std::string(header) + std::string(message));
}

Gid mdns4() { return Gid::from_ipv4(0xE000'00FB); }
Gid mdns6() { return {{0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFB}}; }

TEST(GroupReports, Igmp) {
  EXPECT_EQ(reports_of(packet(ipv4, "16000000e00000fb")), (Reports{{mdns4(), true}}));
  EXPECT_EQ(reports_of(packet(ipv4, "12000000e00000fb")), (Reports{{mdns4(), true}}));
  EXPECT_EQ(reports_of(packet(ipv4, "17000000e00000fb")), (Reports{{mdns4(), false}}));
  EXPECT_EQ(reports_of(packet(ipv4, "160000000a000001")), Reports{});  // no group
  EXPECT_EQ(reports_of(packet(ipv4, "11000000e00000fb")), Reports{});  // a query
}

TEST(GroupReports, IgmpVersion3) {
  // A change to "exclude nothing" joins, and one to "include nothing" leaves.
  EXPECT_EQ(reports_of(packet(ipv4, "220000000000000204000000e00000fb03000000efffffff")),
            (Reports{{mdns4(), true}, {Gid::from_ipv4(0xEFFF'FFFF), false}}));
  // One source of a group is wanted.
  EXPECT_EQ(reports_of(packet(ipv4, "220000000000000105000001e00000fb0a000009")),
            (Reports{{mdns4(), true}}));
  // A source is not wanted any more, which says nothing about the group.
  EXPECT_EQ(reports_of(packet(ipv4, "220000000000000106000001e00000fb0a000009")), Reports{});
}

TEST(GroupReports, Mld) {
  constexpr std::string_view group = "ff0200000000000000000000000000fb";
  const auto with = [&](std::string_view fixed) {
    return packet(ipv6, std::string(fixed) + std::string(group));
  };
  EXPECT_EQ(reports_of(with("8300000000000000")), (Reports{{mdns6(), true}}));
  EXPECT_EQ(reports_of(with("8400000000000000")), (Reports{{mdns6(), false}}));
  EXPECT_EQ(reports_of(with("8f0000000000000104000000")), (Reports{{mdns6(), true}}));
  EXPECT_EQ(reports_of(with("8f0000000000000103000000")), (Reports{{mdns6(), false}}));
  EXPECT_EQ(reports_of(with("8200000000000000")), Reports{});
}

// Whatever is cut off is not read.
TEST(GroupReports, PacketsThatEndEarly) {
  const auto whole = packet(ipv4, "220000000000000204000000e00000fb03000000efffffff");
  const std::size_t until_second = whole.size() - 1;
  for (std::size_t bytes = 0; bytes <= until_second; ++bytes) {
    EXPECT_LE(reports_of(std::span(whole).first(bytes)).size(), 1u) << bytes;
  }
  const auto long_list = packet(ipv4, "220000000000ffff04ff0fffe00000fb");
  EXPECT_EQ(reports_of(long_list).size(), 1u);
  const auto six = packet(ipv6, "8f000000000000ff04000000ff0200000000000000000000000000fb");
  for (std::size_t bytes = 0; bytes < six.size(); ++bytes) {
    EXPECT_EQ(reports_of(std::span(six).first(bytes)).size(), 0u) << bytes;
  }
}

}  // namespace
}  // namespace tulle::ipoib
