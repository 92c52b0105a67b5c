#include "rdma/wire/path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace tulle::wire {
namespace {

const Gid one = Gid::from_ipv4(0x0A00'0001), two = Gid::from_ipv4(0x0A00'0002);

Gid global_gid(std::uint8_t last) {
  Gid gid;
  gid.bytes = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, last};
  return gid;
}

IpUdp ip_udp() {
  IpUdp ip;
  ip.source = one;
  ip.destination = two;
  ip.traffic_class = 0x68 | ecn_capable;
  return ip;
}

LocalPath local(bool has_global) {
  LocalPath path;
  path.local.source = Lid(4);
  path.local.destination = Lid(9);
  path.has_global = has_global;
  path.global = {global_gid(1), global_gid(2), 0x21, 7, 0xABCDE};
  return path;
}

EthernetPath ethernet() {
  EthernetPath path;
  path.global = {one, two, 0x21, 7, 0};
  return path;
}

TEST(Path, SaysWhoseItIsAndForWhom) {
  EXPECT_EQ(source_of(ip_udp()), PortAddress(one));
  EXPECT_EQ(destination_of(ip_udp()), PortAddress(two));
  EXPECT_EQ(source_of(local(false)), PortAddress(Lid(4)));
  EXPECT_EQ(destination_of(local(false)), PortAddress(Lid(9)));
  EXPECT_EQ(source_of(local(true)), PortAddress(Lid(4), global_gid(1)));
  EXPECT_EQ(destination_of(local(true)), PortAddress(Lid(9), global_gid(2)));
  EXPECT_EQ(source_of(ethernet()), PortAddress(one));
  EXPECT_EQ(destination_of(ethernet()), PortAddress(two));
}

// A connection between LIDs must not take a packet with a GRH, nor one of another LID.
TEST(Path, AddressesDifferByEitherMember) {
  EXPECT_NE(source_of(local(false)), source_of(local(true)));
  EXPECT_NE(PortAddress(Lid(4)), PortAddress(Lid(5)));
  EXPECT_NE(PortAddress(one), PortAddress(two));
}

TEST(Path, OnlyAnIpHeaderCarriesAMark) {
  IpUdp marked = ip_udp();
  EXPECT_FALSE(is_marked(Path(marked)));
  marked.traffic_class |= ecn_congestion_experienced;
  EXPECT_TRUE(is_marked(Path(marked)));
  LocalPath with_bits = local(true);
  with_bits.global.traffic_class = 0xFF;
  EXPECT_FALSE(is_marked(Path(with_bits)));
}

TEST(Path, TheTrafficClassIsTheGlobalHeaders) {
  EXPECT_EQ(traffic_class_of(ip_udp()), 0x6A);
  EXPECT_EQ(traffic_class_of(local(true)), 0x21);
  EXPECT_EQ(traffic_class_of(local(false)), 0);
  EXPECT_EQ(traffic_class_of(ethernet()), 0x21);
  EXPECT_TRUE(has_global_route(ip_udp()) && has_global_route(local(true)));
  EXPECT_FALSE(has_global_route(local(false)));
  EXPECT_TRUE(is_ipv4(Path(ip_udp())));
  EXPECT_FALSE(is_ipv4(Path(ethernet()))) << "a GRH holds the address, not an IPv4 header";
}

using Grh = std::array<std::byte, grh_bytes>;

TEST(Path, WritesTheGlobalRouteHeader) {
  Grh grh;
  encode_grh(local(true), 0x123, grh);
  const std::array<std::uint8_t, 8> front = {0x62, 0x1A, 0xBC, 0xDE, 0x01, 0x23, 0x1B, 7};
  for (std::size_t i = 0; i < front.size(); ++i) {
    EXPECT_EQ(std::to_integer<std::uint8_t>(grh[i]), front[i]) << i;
  }
  EXPECT_EQ(std::to_integer<std::uint8_t>(grh[23]), 1) << "the source's last byte";
  EXPECT_EQ(std::to_integer<std::uint8_t>(grh[39]), 2) << "the destination's last byte";
}

TEST(Path, WritesZerosWhereThereIsNoGlobalRouteHeader) {
  Grh grh;
  grh.fill(std::byte{0xFF});
  encode_grh(local(false), 100, grh);
  EXPECT_TRUE(std::ranges::all_of(grh, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Path, WritesTheIpHeaderInItsPlace) {
  Grh of_path, of_ip;
  const IpUdp ip = ip_udp();
  encode_grh(Path(ip), 100, of_path);
  encode_grh(ip, 100, of_ip);
  EXPECT_EQ(of_path, of_ip);
}

}  // namespace
}  // namespace tulle::wire
