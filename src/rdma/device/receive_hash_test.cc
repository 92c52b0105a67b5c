// Compares the hash of receive-side scaling with the values that Microsoft publishes ("Verifying
// the RSS hash calculation", Windows driver documentation).

#include "rdma/device/receive_hash.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>

namespace tulle::device {
namespace {

constexpr ReceiveHashKey published_key = {
    0x6D, 0x5A, 0x56, 0xDA, 0x25, 0x5B, 0x0E, 0xC2, 0x41, 0x67, 0x25, 0x3D, 0x43, 0xA3,
    0x8F, 0xB0, 0xD0, 0xCA, 0x2B, 0xCB, 0xAE, 0x7B, 0x30, 0xB4, 0x77, 0xCB, 0x2D, 0xA3,
    0x80, 0x30, 0xF2, 0x0C, 0x6A, 0x42, 0xB7, 0x3B, 0xBE, 0xAC, 0x01, 0xFA};

struct Published {
  const char* destination;
  std::uint16_t destination_port;
  const char* source;
  std::uint16_t source_port;
  std::uint32_t of_addresses;
  std::uint32_t with_ports;
};
constexpr Published published[] = {
    {"161.142.100.80", 1766, "66.9.149.187", 2794, 0x323E8FC2, 0x51CCC178},
    {"65.69.140.83", 4739, "199.92.111.2", 14230, 0xD718262A, 0xC626B0EA},
    {"12.22.207.184", 38024, "24.19.198.95", 12898, 0xD2D0A5DE, 0x5C2B394A},
    {"209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xAFC7327F},
    {"202.188.127.2", 1303, "153.39.163.191", 44251, 0x5D1809C5, 0x10E828A2},
    {"3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2CC18CD5, 0x40207D3D},
    {"ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0F0C461C, 0xDDE51BBF},
    {"fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4B61E985,
     0x02D1FEEF},
};

FlowFields fields_of(const Published& from) {
  FlowFields fields;
  const bool is_ipv6 = inet_pton(AF_INET6, from.source, fields.source.data()) == 1;
  if (is_ipv6) {
    inet_pton(AF_INET6, from.destination, fields.destination.data());
  } else {
    inet_pton(AF_INET, from.source, fields.source.data());
    inet_pton(AF_INET, from.destination, fields.destination.data());
  }
  fields.add(is_ipv6 ? FlowHeader::ipv6 : FlowHeader::ipv4);
  fields.add(FlowHeader::tcp);
  fields.source_port = from.source_port;
  fields.destination_port = from.destination_port;
  return fields;
}

const HashFields addresses = HashFields(HashField::source_ipv4) | HashField::destination_ipv4 |
                             HashField::source_ipv6 | HashField::destination_ipv6;
const HashFields tcp_ports =
    HashFields(HashField::source_port_tcp) | HashField::destination_port_tcp;

TEST(ReceiveHashTest, is_the_published_one) {
  for (const Published& each : published) {
    SCOPED_TRACE(each.source);
    const FlowFields fields = fields_of(each);
    EXPECT_EQ((ReceiveHash{published_key, addresses}.of(fields)), each.of_addresses);
    EXPECT_EQ((ReceiveHash{published_key, addresses | tcp_ports}.of(fields)), each.with_ports);
  }
}

TEST(ReceiveHashTest, takes_no_field_that_the_frame_lacks) {
  const FlowFields fields = fields_of(published[0]);
  const HashFields udp_ports =
      HashFields(HashField::source_port_udp) | HashField::destination_port_udp;
  EXPECT_EQ((ReceiveHash{published_key, addresses | udp_ports}.of(fields)),
            published[0].of_addresses);
  EXPECT_EQ((ReceiveHash{published_key, udp_ports}.of(fields)), 0u);
  EXPECT_EQ((ReceiveHash{published_key, addresses}.of(FlowFields{})), 0u);
  EXPECT_EQ((ReceiveHash{published_key, {}}.of(fields)), 0u);
}

TEST(ReceiveHashTest, one_bit_of_input_gives_its_window_of_the_key) {
  std::array<std::uint8_t, 36> input{};
  EXPECT_EQ(toeplitz(published_key, input), 0u);
  input[0] = 0x80;
  EXPECT_EQ(toeplitz(published_key, input), 0x6D5A56DAu);
  input[0] = 0;
  input[35] = 1;
  EXPECT_EQ(toeplitz(published_key, input), 0x3BBEAC01u << 7 | 0xFA >> 1);
}

}  // namespace
}  // namespace tulle::device
