#include "rdma/wire/ip_udp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "base/random.h"
#include "rdma/wire/vectors_test.h"

namespace tulle::wire {
namespace {

IpUdp random_headers(bool ipv4, Random& random) {
  const auto bits = [&random](unsigned count) { return random.next() >> (64 - count); };
  IpUdp headers;
  if (ipv4) {
    headers.source = Gid::from_ipv4(static_cast<std::uint32_t>(bits(32)));
    headers.destination = Gid::from_ipv4(static_cast<std::uint32_t>(bits(32)));
    headers.identification = static_cast<std::uint16_t>(bits(16));
    headers.dont_fragment = bits(1) != 0;
  } else {
    for (auto& byte : headers.source.bytes) byte = static_cast<std::uint8_t>(bits(8));
    for (auto& byte : headers.destination.bytes) byte = static_cast<std::uint8_t>(bits(8));
    headers.source.bytes[0] = headers.destination.bytes[0] = 0x20;
    headers.flow_label = static_cast<std::uint32_t>(bits(20));
  }
  headers.source_port = static_cast<std::uint16_t>(bits(16));
  headers.destination_port = static_cast<std::uint16_t>(bits(16));
  headers.traffic_class = static_cast<std::uint8_t>(bits(8));
  headers.hop_limit = static_cast<std::uint8_t>(bits(8));
  headers.udp_checksum = static_cast<std::uint16_t>(bits(16));
  return headers;
}

using Bytes = std::vector<std::byte>;

Bytes encoded(const IpUdp& headers, std::size_t udp_payload_bytes) {
  Bytes bytes(ip_udp_header_bytes(headers) + udp_payload_bytes);
  EXPECT_EQ(encode(headers, udp_payload_bytes, bytes), ip_udp_header_bytes(headers));
  return bytes;
}

TEST(IpUdpTest, random_headers_survive_encoding_and_decoding) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 2000; ++round) {
    const bool ipv4 = round % 2 == 0;
    const IpUdp headers = random_headers(ipv4, random);
    const std::size_t payload = random.below(4200);
    const Bytes bytes = encoded(headers, payload);
    EXPECT_EQ(bytes.size() - payload, ipv4 ? 28u : 48u);
    IpUdp read;
    const DecodedIpUdp decoded = decode(bytes, read);
    ASSERT_TRUE(decoded.ok);
    EXPECT_EQ(decoded.header_bytes, bytes.size() - payload);
    EXPECT_EQ(decoded.udp_payload_bytes, payload);
    EXPECT_EQ(read, headers);
  }
}

TEST(IpUdpTest, the_longest_datagrams_have_headers) {
  Random random(1);
  for (const bool ipv4 : {true, false}) {
    const IpUdp headers = random_headers(ipv4, random);
    const std::size_t longest = udp_payload_bytes_max(headers);
    EXPECT_EQ(longest, ipv4 ? 65'507u : 65'527u);
    IpUdp read;
    const DecodedIpUdp decoded = decode(encoded(headers, longest), read);
    ASSERT_TRUE(decoded.ok);
    EXPECT_EQ(decoded.udp_payload_bytes, longest);
    EXPECT_EQ(read, headers);
  }
}

TEST(IpUdpTest, headers_of_packets_built_by_scapy) {
  for (const Vector& vector : scapy_vectors()) {
    SCOPED_TRACE(vector.name);
    IpUdp headers;
    const DecodedIpUdp decoded = decode(vector.packet, headers);
    ASSERT_TRUE(decoded.ok);
    EXPECT_EQ(decoded.header_bytes + decoded.udp_payload_bytes, vector.packet.size());
    EXPECT_EQ(headers.source_port, vector.field("source_port"));
    EXPECT_EQ(headers.destination_port, 4791);
    EXPECT_EQ(headers.traffic_class, vector.field("traffic_class"));
    EXPECT_EQ(headers.hop_limit, vector.field("hop_limit"));
    EXPECT_EQ(headers.identification, vector.field("identification"));
    EXPECT_EQ(headers.dont_fragment, vector.field("dont_fragment", 1) != 0);
    EXPECT_EQ(headers.flow_label, vector.field("flow_label"));
    if (headers.source.is_ipv4_mapped()) {
      EXPECT_EQ(headers.source.ipv4(), 0x0A01'0203u);
      EXPECT_EQ(headers.destination.ipv4(), 0xC0A8'FFFEu);
    } else {
      EXPECT_EQ(headers.source.bytes[0], 0xFE);
      EXPECT_EQ(headers.destination.bytes[15], 0x02);
    }
    const auto payload = std::span<const std::byte>(vector.packet).subspan(decoded.header_bytes);
    const std::size_t cut = payload.size() / 3;  // odd as often as not
    EXPECT_EQ(udp_checksum(headers, std::array{payload.first(cut), payload.subspan(cut)}),
              headers.udp_checksum);
    // Scapy computed the IPv4 checksum, too.
    std::array<std::byte, 48> bytes;
    const std::size_t written = encode(headers, decoded.udp_payload_bytes, bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + written, vector.packet.begin()));
  }
}

TEST(IpUdpTest, the_icrc_sees_ones_in_the_fields_that_vary_and_only_there) {
  Random random(1);
  const IpUdp v4 = random_headers(true, random);
  std::array<std::byte, 48> plain{}, masked{};
  encode(v4, 100, plain);
  EXPECT_EQ(encode_for_icrc(v4, 100, masked), 28u);
  for (const std::size_t i : {1, 8, 10, 11, 26, 27}) plain[i] = std::byte{0xFF};
  EXPECT_EQ(masked, plain);

  const IpUdp v6 = random_headers(false, random);
  plain = masked = {};
  encode(v6, 100, plain);
  EXPECT_EQ(encode_for_icrc(v6, 100, masked), 48u);
  plain[0] |= std::byte{0x0F};
  for (const std::size_t i : {1, 2, 3, 7, 46, 47}) plain[i] = std::byte{0xFF};
  EXPECT_EQ(masked, plain);
}

// Changes one byte of a good packet. Returns true if the packet is still accepted.
bool accepts(Bytes bytes, std::size_t offset, unsigned value) {
  bytes[offset] = static_cast<std::byte>(value);
  IpUdp headers;
  return decode(bytes, headers).ok;
}

TEST(IpUdpTest, what_is_no_plain_udp_datagram_is_refused) {
  Random random(2);
  IpUdp headers = random_headers(true, random);
  headers.dont_fragment = false;
  const Bytes v4 = encoded(headers, 100);
  ASSERT_TRUE(accepts(v4, 0, 0x45));
  EXPECT_FALSE(accepts(v4, 0, 0x46));  // options
  EXPECT_FALSE(accepts(v4, 0, 0x44));  // header too short
  EXPECT_FALSE(accepts(v4, 0, 0x55));  // version
  EXPECT_FALSE(accepts(v4, 3, 127));   // a byte less than UDP says
  EXPECT_FALSE(accepts(v4, 2, 1));     // longer than the input
  EXPECT_TRUE(accepts(v4, 6, 0x40));   // DF
  EXPECT_FALSE(accepts(v4, 6, 0x80));  // reserved flag
  EXPECT_FALSE(accepts(v4, 6, 0x20));  // more fragments
  EXPECT_FALSE(accepts(v4, 7, 0x01));  // fragment offset
  EXPECT_FALSE(accepts(v4, 9, 6));     // TCP
  EXPECT_FALSE(accepts(v4, 25, 107));  // UDP length
  EXPECT_FALSE(accepts(v4, 25, 109));

  const Bytes v6 = encoded(random_headers(false, random), 100);
  ASSERT_TRUE(accepts(v6, 6, 17));
  EXPECT_FALSE(accepts(v6, 6, 44));    // fragment header
  EXPECT_FALSE(accepts(v6, 5, 109));   // longer than the input
  EXPECT_FALSE(accepts(v6, 45, 107));  // UDP length
}

TEST(IpUdpTest, mapped_addresses_inside_ipv6_are_refused) {
  Random random(3);
  Bytes bytes = encoded(random_headers(false, random), 100);
  const Gid mapped = Gid::from_ipv4(0x0A00'0001);
  std::copy(std::begin(mapped.bytes), std::end(mapped.bytes),
            reinterpret_cast<std::uint8_t*>(bytes.data()) + 8);
  IpUdp headers;
  EXPECT_FALSE(decode(bytes, headers).ok);
}

TEST(IpUdpTest, datagrams_cut_short_are_refused) {
  Random random(4);
  for (const bool ipv4 : {true, false}) {
    const Bytes bytes = encoded(random_headers(ipv4, random), 16);
    IpUdp headers;
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode(std::span(bytes).first(length), headers).ok);
    }
    Bytes longer = bytes;  // padding of the link's frame
    longer.resize(bytes.size() + 10);
    EXPECT_TRUE(decode(longer, headers).ok);
  }
}

TEST(IpUdpTest, the_grh_of_a_receive_buffer) {
  Random random(5);
  std::array<std::byte, grh_bytes> grh;
  const IpUdp v6 = random_headers(false, random);
  encode_grh(v6, 100, grh);
  const Bytes bytes6 = encoded(v6, 100);
  EXPECT_TRUE(std::equal(grh.begin(), grh.end(), bytes6.begin()));

  const IpUdp v4 = random_headers(true, random);
  encode_grh(v4, 100, grh);
  const Bytes bytes4 = encoded(v4, 100);
  EXPECT_TRUE(std::all_of(grh.begin(), grh.begin() + 20,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_TRUE(std::equal(grh.begin() + 20, grh.end(), bytes4.begin()));
}

}  // namespace
}  // namespace tulle::wire
