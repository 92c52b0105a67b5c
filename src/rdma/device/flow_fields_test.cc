// Tests of reading the fields of a frame's headers and of comparing rules with them.

#include "rdma/device/flow_fields.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "rdma/port/framing/pcap_test.h"

namespace tulle::device {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes(std::initializer_list<int> values) {
  Bytes made;
  for (const int value : values) made.push_back(static_cast<std::byte>(value));
  return made;
}
Bytes operator+(Bytes front, const Bytes& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

// These headers are written by hand from the RFCs' figures.
const Bytes macs = bytes({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
const Bytes is_ipv4 = bytes({0x08, 0x00});
const Bytes is_ipv6 = bytes({0x86, 0xDD});
const Bytes tag_of_5 = bytes({0x81, 0x00, 0x60, 0x05});
const Bytes udp = bytes({0x04, 0xD2, 0x16, 0x2E, 0, 8, 0, 0});  // 1234 to 5678
const Bytes tcp =
    bytes({0x04, 0xD2, 0x16, 0x2E, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0xFF, 0xFF, 0, 0, 0, 0});

Bytes ipv4(int protocol, int flags = 0, int offset = 0) {
  return bytes(
      {0x45, 0x1C, 0, 60, 0, 1, flags, offset, 63, protocol, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2});
}
Bytes ipv6(int next) {
  Bytes header = bytes({0x61, 0xC0, 0xBC, 0xDE, 0, 8, next, 62});
  for (int i = 0; i < 32; ++i) header.push_back(static_cast<std::byte>(0xA0 + i));
  return header;
}

TEST(FlowFieldsTest, reads_ethernet) {
  const FlowFields read = read_flow_fields(macs + bytes({0x08, 0x06, 0, 1}));
  EXPECT_EQ(read.destination_mac, (wire::MacAddress{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read.source_mac, (wire::MacAddress{7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(read.ether_type, 0x0806);
  EXPECT_EQ(read.headers, 0);
}

TEST(FlowFieldsTest, reads_ipv4_and_udp) {
  const FlowFields read = read_flow_fields(macs + is_ipv4 + ipv4(17, 0x40) + udp);
  EXPECT_TRUE(read.has(FlowHeader::ipv4) && read.has(FlowHeader::udp));
  EXPECT_FALSE(read.has(FlowHeader::tcp) || read.has(FlowHeader::ipv6));
  EXPECT_EQ(read.source[0], 1);
  EXPECT_EQ(read.source[4], 0);
  EXPECT_EQ(read.destination[3], 2);
  EXPECT_EQ(read.protocol, 17);
  EXPECT_EQ(read.traffic_class, 0x1C);
  EXPECT_EQ(read.hop_limit, 63);
  EXPECT_EQ(read.fragment_flags, FlowFields::dont_fragment);
  EXPECT_EQ(read.source_port, 1234);
  EXPECT_EQ(read.destination_port, 5678);
}

TEST(FlowFieldsTest, steps_over_options) {
  Bytes header = ipv4(6);
  header[0] = std::byte{0x46};
  const FlowFields read = read_flow_fields(macs + is_ipv4 + header + bytes({1, 1, 1, 0}) + tcp);
  EXPECT_TRUE(read.has(FlowHeader::tcp));
  EXPECT_EQ(read.destination_port, 5678);
}

TEST(FlowFieldsTest, only_the_first_fragment_has_ports) {
  const FlowFields first = read_flow_fields(macs + is_ipv4 + ipv4(17, 0x20) + udp);
  EXPECT_EQ(first.fragment_flags, FlowFields::more_fragments);
  EXPECT_TRUE(first.has(FlowHeader::udp));
  const FlowFields later = read_flow_fields(macs + is_ipv4 + ipv4(17, 0, 1) + udp);
  EXPECT_EQ(later.protocol, 17);
  EXPECT_FALSE(later.has(FlowHeader::udp));
  EXPECT_EQ(later.source_port, 0);
}

TEST(FlowFieldsTest, reads_ipv6_and_steps_over_its_extensions) {
  const Bytes hop_by_hop = bytes({60, 0, 0, 0, 0, 0, 0, 0});
  const Bytes options = bytes({6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  const FlowFields read = read_flow_fields(macs + is_ipv6 + ipv6(0) + hop_by_hop + options + tcp);
  EXPECT_TRUE(read.has(FlowHeader::ipv6) && read.has(FlowHeader::tcp));
  EXPECT_EQ(read.traffic_class, 0x1C);
  EXPECT_EQ(read.flow_label, 0x0'BCDEu);
  EXPECT_EQ(read.hop_limit, 62);
  EXPECT_EQ(read.protocol, 6);
  EXPECT_EQ(read.source[15], 0xAF);
  EXPECT_EQ(read.destination[0], 0xB0);
  EXPECT_EQ(read.source_port, 1234);
  const Bytes fragment = bytes({17, 0, 0, 8, 0, 0, 0, 1});
  const FlowFields later = read_flow_fields(macs + is_ipv6 + ipv6(44) + fragment + udp);
  EXPECT_EQ(later.protocol, 17);
  EXPECT_FALSE(later.has(FlowHeader::udp));
}

TEST(FlowFieldsTest, reads_tags) {
  const FlowFields one = read_flow_fields(macs + tag_of_5 + is_ipv4 + ipv4(17) + udp);
  EXPECT_TRUE(one.has(FlowHeader::vlan) && one.has(FlowHeader::udp));
  EXPECT_EQ(one.vlan, 0x6005);
  EXPECT_EQ(one.ether_type, 0x0800);
  const FlowFields two =
      read_flow_fields(macs + bytes({0x88, 0xA8, 0, 9}) + tag_of_5 + is_ipv4 + ipv4(17) + udp);
  EXPECT_EQ(two.vlan, 9);
  EXPECT_EQ(two.ether_type, 0x0800);
}

TEST(FlowFieldsTest, reads_tunnels_and_security) {
  Bytes to_vxlan = udp;
  to_vxlan[2] = std::byte{0x12};
  to_vxlan[3] = std::byte{0xB5};
  const Bytes vxlan = bytes({8, 0, 0, 0, 0x76, 0xAD, 0xF1, 0});
  const FlowFields in_udp = read_flow_fields(macs + is_ipv4 + ipv4(17) + to_vxlan + vxlan);
  EXPECT_TRUE(in_udp.has(FlowHeader::vxlan));
  EXPECT_EQ(in_udp.tunnel, 0x76ADF1u);
  const Bytes gre = bytes({0xA0, 0, 0x65, 0x58, 0, 0, 0, 0, 1, 2, 3, 4});  // with checksum and key
  const FlowFields in_ip = read_flow_fields(macs + is_ipv4 + ipv4(47) + gre);
  EXPECT_TRUE(in_ip.has(FlowHeader::gre));
  EXPECT_EQ(in_ip.tunnel_protocol, 0x6558);
  EXPECT_EQ(in_ip.tunnel, 0x01020304u);
  const FlowFields secured =
      read_flow_fields(macs + is_ipv4 + ipv4(50) + bytes({0, 0, 1, 0, 0, 0, 0, 7}));
  EXPECT_EQ(secured.security_index, 0x100u);
  EXPECT_EQ(secured.security_sequence, 7u);
}

// The sanitizers detect a read past the end.
TEST(FlowFieldsTest, every_cut_is_read_as_far_as_it_goes) {
  const std::vector<Bytes> frames = {
      macs + tag_of_5 + is_ipv4 + ipv4(17) + udp, macs + is_ipv6 + ipv6(6) + tcp,
      macs + is_ipv6 + ipv6(0) + bytes({6, 255, 0, 0, 0, 0, 0, 0}) + tcp,
      macs + is_ipv4 + ipv4(47) + bytes({0xA0, 0, 0x65, 0x58, 0, 0, 0, 0, 1, 2, 3, 4})};
  for (const Bytes& frame : frames) {
    for (std::size_t length = 0; length < frame.size(); ++length) {
      const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
      const FlowFields read = read_flow_fields(cut);
      EXPECT_FALSE(read.has(FlowHeader::tcp) || read.has(FlowHeader::udp)) << length;
      if (length < sizeof(wire::Ethernet)) {
        EXPECT_EQ(read.destination_mac, wire::MacAddress{});
      }
    }
  }
}

// The captures hold packets that two kernels sent each other.
TEST(FlowFieldsTest, reads_captures) {
  std::size_t packets = 0;
  for (const auto& file : port::capture_files()) {
    for (const port::Captured& captured : port::roce_packets(file)) {
      const bool is_4 = captured.ip.source.is_ipv4_mapped();
      const FlowFields read = read_flow_fields(macs + (is_4 ? is_ipv4 : is_ipv6) + captured.bytes);
      EXPECT_TRUE(read.has(is_4 ? FlowHeader::ipv4 : FlowHeader::ipv6));
      EXPECT_TRUE(read.has(FlowHeader::udp));
      EXPECT_EQ(read.source_port, captured.ip.source_port);
      EXPECT_EQ(read.destination_port, 4791);
      EXPECT_EQ(read.hop_limit, captured.ip.hop_limit);
      ++packets;
    }
  }
  EXPECT_GT(packets, 100u);
}

TEST(FlowMatchTest, only_masked_bits_count) {
  const FlowFields frame = read_flow_fields(macs + is_ipv4 + ipv4(17) + udp);
  FlowMatch match;
  EXPECT_TRUE(matches(frame, match));
  match.value.destination_port = 5679;
  EXPECT_TRUE(matches(frame, match));
  match.mask.destination_port = 0xFFFE;
  EXPECT_TRUE(matches(frame, match) == ((5678 & 0xFFFE) == (5679 & 0xFFFE)));
  match.mask.destination_port = 0xFFFF;
  EXPECT_FALSE(matches(frame, match));
  match.value.destination_port = 5678;
  EXPECT_TRUE(matches(frame, match));
  match.value.add(FlowHeader::tcp);
  match.mask.add(FlowHeader::tcp);
  EXPECT_FALSE(matches(frame, match));
}

}  // namespace
}  // namespace tulle::device
