#include "shim/rsockets/protocol/wire.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tulle::rsockets {
namespace {

TEST(RsocketsWire, ConnectionDataAsTheProtocolGuideLaysItOut) {
  ConnectionData data;
  data.flags = flag_maps;
  data.credits = 384;
  data.scaled_maps = 5;
  data.targets = {0x0102'0304'0506'0708, 0x1112'1314, target_entries};
  data.buffer = {0x2122'2324'2526'2728, 0x3132'3334, 0x1'0000};
  const std::array<std::uint8_t, 40> expected = {
      1,    2,    0x01, 0x80, 0,    0,    0,    5,                             // head
      0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x12, 0x13, 0x14,  // list
      0,    0,    0,    2,                                                     //
      0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34,  // buffer
      0,    1,    0,    0};
  EXPECT_EQ(std::memcmp(&data, expected.data(), expected.size()), 0);
}

TEST(RsocketsWire, MessagesAreThreeBitsOfTypeAnd29OfValue) {
  EXPECT_EQ(to_message(MessageType::data, 0x1FFF'FFFF), 0x1FFF'FFFFu);
  EXPECT_EQ(to_message(MessageType::credits, 384), 0x8000'0180u);
  EXPECT_EQ(to_message(MessageType::map, 3), 0xC000'0003u);
  EXPECT_EQ(to_message(MessageType::control, static_cast<std::uint32_t>(Control::shutdown)),
            0xE000'0002u);
  for (const MessageType type : {MessageType::data, MessageType::direct, MessageType::credits,
                                 MessageType::map, MessageType::control}) {
    const std::uint32_t message = to_message(type, 12345);
    EXPECT_EQ(type_of(message), type);
    EXPECT_EQ(value_of(message), 12345u);
  }
  // A value that does not fit does not change the type.
  EXPECT_EQ(type_of(to_message(MessageType::data, 0xFFFF'FFFF)), MessageType::data);
}

TEST(RsocketsWire, CountsOfMapsInEightBits) {
  for (const std::uint32_t exact : {0u, 1u, 127u, 128u}) {
    EXPECT_EQ(from_scaled(to_scaled(exact)), exact);
  }
  EXPECT_EQ(from_scaled(to_scaled(256)), 256u);
  EXPECT_EQ(from_scaled(to_scaled(1000)), 768u);  // whole steps, rounded down
}

TEST(RsocketsWire, HeadersOfDatagrams) {
  DatagramHeader header;
  header.length = datagram_header_ipv4_bytes;
  header.port = 7174;
  header.address = {10, 0, 0, 2};
  const std::array<std::uint8_t, 8> expected = {4, 8, 0x1C, 0x06, 10, 0, 0, 2};
  EXPECT_EQ(std::memcmp(&header, expected.data(), expected.size()), 0);

  UdpHeader udp;
  udp.length = udp_header_ipv4_bytes;
  udp.qp_number = 0x12'3456;
  udp.address = {10, 0, 0, 1};
  const std::array<std::uint8_t, 16> expected_udp = {0x55, 0x55, 0x55, 0x55, 4,  0, 16, 0,
                                                     0,    0x12, 0x34, 0x56, 10, 0, 0,  1};
  EXPECT_EQ(std::memcmp(&udp, expected_udp.data(), expected_udp.size()), 0);
}

}  // namespace
}  // namespace tulle::rsockets
