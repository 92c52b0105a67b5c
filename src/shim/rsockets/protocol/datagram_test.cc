#include "shim/rsockets/protocol/datagram.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <random>
#include <vector>

namespace tulle::rsockets {
namespace {

sockaddr_storage ipv4(const char* text, std::uint16_t port) {
  sockaddr_storage out = {};
  auto& address = reinterpret_cast<sockaddr_in&>(out);
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
  return out;
}

sockaddr_storage ipv6(const char* text, std::uint16_t port) {
  sockaddr_storage out = {};
  auto& address = reinterpret_cast<sockaddr_in6&>(out);
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  return out;
}

const sockaddr& as_address(const sockaddr_storage& from) {
  return reinterpret_cast<const sockaddr&>(from);
}

std::vector<std::byte> with_data(const HeaderBytes& header, std::string_view data) {
  std::vector<std::byte> bytes(header.span().begin(), header.span().end());
  const auto more = std::as_bytes(std::span(data));
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(DatagramHeaders, CarryTheSender) {
  for (const sockaddr_storage& sender : {ipv4("10.0.0.2", 7174), ipv6("fd00::2", 7175)}) {
    const auto bytes = with_data(datagram_header(as_address(sender)), "hello");
    EXPECT_EQ(bytes.size(), (sender.ss_family == AF_INET ? 8u : 24u) + 5);
    const auto read = read_datagram(bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(std::memcmp(&read->sender, &sender, sizeof sender), 0);
    EXPECT_EQ(text_of(read->data), "hello");
  }
}

TEST(DatagramHeaders, OverUdpCarryTheQueuePair) {
  for (const sockaddr_storage& sender : {ipv4("10.0.0.2", 7174), ipv6("fd00::2", 7175)}) {
    const auto bytes = with_data(udp_header(as_address(sender), 0x12'3456, true), "hello");
    EXPECT_EQ(bytes.size(), (sender.ss_family == AF_INET ? 16u : 28u) + 5);
    const auto read = read_udp(bytes, sender.ss_family);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->qp_number, 0x12'3456u);
    EXPECT_TRUE(read->has_data);
    EXPECT_EQ(text_of(read->data), "hello");
    EXPECT_FALSE(read_udp(bytes, sender.ss_family == AF_INET ? AF_INET6 : AF_INET));
    EXPECT_FALSE(read_udp(udp_header(as_address(sender), 1, false).span(), sender.ss_family)
                     .value()
                     .has_data);
  }
}

TEST(DatagramHeaders, ShortOnesAreNone) {
  for (const sockaddr_storage& sender : {ipv4("10.0.0.2", 7174), ipv6("fd00::2", 7175)}) {
    const HeaderBytes header = datagram_header(as_address(sender));
    for (std::size_t length = 0; length < header.length; ++length) {
      EXPECT_FALSE(read_datagram(header.span().first(length))) << length;
    }
    EXPECT_TRUE(read_datagram(header.span()).value().data.empty());
    const HeaderBytes udp = udp_header(as_address(sender), 1, true);
    for (std::size_t length = 0; length < udp.length; ++length) {
      EXPECT_FALSE(read_udp(udp.span().first(length), sender.ss_family)) << length;
    }
    EXPECT_TRUE(read_udp(udp.span(), sender.ss_family).value().data.empty());
  }
}

TEST(DatagramHeaders, VersionAndLengthGoTogether) {
  auto bytes = with_data(datagram_header(as_address(ipv4("10.0.0.2", 1))), std::string(40, 'x'));
  for (const auto& [version, length] : {std::pair{4, 24}, {6, 8}, {5, 8}, {4, 255}, {6, 255}}) {
    bytes[0] = static_cast<std::byte>(version);
    bytes[1] = static_cast<std::byte>(length);
    EXPECT_FALSE(read_datagram(bytes)) << version << " " << length;
  }
  auto udp = with_data(udp_header(as_address(ipv4("10.0.0.2", 1)), 1, true), std::string(40, 'x'));
  udp[6] = std::byte{28};
  EXPECT_FALSE(read_udp(udp, AF_INET));
  udp[6] = std::byte{16};
  EXPECT_TRUE(read_udp(udp, AF_INET));
  udp[0] = std::byte{0};
  EXPECT_FALSE(read_udp(udp, AF_INET)) << "the tag is another";
}

TEST(DatagramHeaders, AQueuePairsNumberHas24Bits) {
  const auto bytes = udp_header(as_address(ipv4("10.0.0.2", 1)), 0xFF12'3456, true);
  EXPECT_EQ(read_udp(bytes.span(), AF_INET).value().qp_number, 0x12'3456u);
}

}  // namespace
}  // namespace tulle::rsockets
