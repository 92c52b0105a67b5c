// Reads back from the wire the headers that the kernel writes around a datagram, because the ICRC
// depends on them.

#include "live/path/packets/udp_socket.h"

#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/udp.h>
#include <net/if.h>
#include <poll.h>

#include <array>
#include <vector>

#include "live/path/packets/receiver.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

constexpr std::uint16_t port = 4791;

Gid loopback_ipv6() {
  Gid gid;
  gid.bytes[15] = 1;
  return gid;
}

class UdpSocketTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    enter_test_network();
    wire_.reset(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_ALL)));
    if (!wire_) GTEST_SKIP() << "no packet socket here";
    sockaddr_ll loopback{};
    loopback.sll_family = AF_PACKET;
    loopback.sll_protocol = htons(ETH_P_ALL);
    loopback.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    ASSERT_EQ(bind(wire_.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)), 0);
    auto receiver = bind_udp(port, PortUse::exclusive);
    ASSERT_TRUE(receiver) << receiver.error().message;
    receiver_ = std::move(*receiver);
    auto sender = bind_sender(0x123);
    ASSERT_TRUE(sender) << sender.error().message;
    sender_ = std::move(*sender);
    ip_.source = ip_.destination = GetParam() ? loopback_ipv6() : Gid::from_ipv4(0x7F00'0001);
    ip_.source_port = port_of(sender_.get());
  }

  void send(const std::vector<std::byte>& bytes, std::uint16_t segment_bytes) {
    SendAddress address;
    fill(address, ip_, is_ipv6(sender_.get()), 0, port, segment_bytes);
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_name = &address.name;
    header.msg_namelen = address.name_bytes;
    header.msg_control = address.control;
    header.msg_controllen = address.control_bytes;
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    ASSERT_EQ(sendmsg(sender_.get(), &header, 0), static_cast<ssize_t>(bytes.size()))
        << strerror(errno);
  }

  // Returns the headers of the next packet to `port` that arrives over loopback.
  wire::IpUdp from_wire() {
    std::vector<std::byte> packet(70'000);
    wire::IpUdp headers;
    for (;;) {
      pollfd readable{wire_.get(), POLLIN, 0};
      if (poll(&readable, 1, 1'000) <= 0) break;
      sockaddr_ll from{};
      socklen_t bytes = sizeof(from);
      const ssize_t size = recvfrom(wire_.get(), packet.data(), packet.size(), 0,
                                    reinterpret_cast<sockaddr*>(&from), &bytes);
      if (size <= 0 || from.sll_pkttype == PACKET_OUTGOING) continue;
      const auto decoded = wire::decode(std::span<const std::byte>(packet).first(size), headers);
      if (decoded.ok && headers.destination_port == port) return headers;
    }
    ADD_FAILURE() << "nothing on the wire";
    return headers;
  }

  UniqueFd wire_;
  UniqueFd receiver_;
  UniqueFd sender_;
  wire::IpUdp ip_;
};

TEST_P(UdpSocketTest, HeadersAreWhatTheIcrcIsTakenOver) {
  EXPECT_GE(ip_.source_port, 0xC000);
  ip_.traffic_class = 0x6A;
  ip_.hop_limit = 33;
  const std::vector<std::byte> bytes(1'000);
  for (int i = 0; i < 3; ++i) {
    send(bytes, 0);
    const wire::IpUdp seen = from_wire();
    EXPECT_EQ(seen.source, ip_.source);
    EXPECT_EQ(seen.destination, ip_.destination);
    EXPECT_EQ(seen.source_port, ip_.source_port);
    EXPECT_EQ(seen.traffic_class, 0x6A);
    EXPECT_EQ(seen.hop_limit, 33);
    EXPECT_EQ(seen.identification, 0) << "of datagram " << i;
    EXPECT_TRUE(seen.dont_fragment);
  }
}

TEST_P(UdpSocketTest, TheReceiverSeesWhatWasSent) {
  ip_.traffic_class = 0x03;
  ip_.hop_limit = 7;
  send(std::vector<std::byte>(2'500), 1'000);
  Receiver receiver(receiver_.get(), port);
  std::vector<std::size_t> sizes;
  const int count = receiver.receive([&](const wire::IpUdp& ip, std::span<const std::byte> bytes) {
    EXPECT_EQ(ip.source, ip_.source);
    EXPECT_EQ(ip.destination, ip_.destination);
    EXPECT_EQ(ip.source_port, ip_.source_port);
    EXPECT_EQ(ip.destination_port, port);
    EXPECT_EQ(ip.traffic_class, 0x03);
    EXPECT_EQ(ip.hop_limit, 7);
    EXPECT_EQ(ip.identification, sizes.size());
    sizes.push_back(bytes.size());
  });
  EXPECT_GE(count, 1);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1'000, 1'000, 500}));
  EXPECT_EQ(receiver.receive([](const auto&, auto) { FAIL(); }), 0);
}

std::uint16_t internet_checksum(std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    sum += std::to_integer<std::uint32_t>(bytes[i]) << 8 |
           std::to_integer<std::uint32_t>(bytes[i + 1]);
  }
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

void put_half(std::span<std::byte> bytes, std::size_t at, std::uint16_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8);
  bytes[at + 1] = static_cast<std::byte>(value & 0xFF);
}

// Returns the ICMP message that says that a datagram of `ip` is too long for a network
// (RFC 792 and RFC 1191, or RFC 4443), of which IPv6's checksum is the kernel's to add.
std::vector<std::byte> too_long(const wire::IpUdp& ip, std::size_t bytes) {
  const bool ipv6 = !ip.source.is_ipv4_mapped();
  constexpr std::size_t icmp_bytes = 8;
  const std::size_t ip_bytes = ipv6 ? 40 : 20;
  std::vector<std::byte> message(icmp_bytes + ip_bytes + 8);
  message[0] = static_cast<std::byte>(ipv6 ? 2 : 3);
  message[1] = static_cast<std::byte>(ipv6 ? 0 : 4);
  put_half(message, 6, ipv6 ? 1'280 : 552);
  const auto quoted = std::span(message).subspan(icmp_bytes);
  const std::size_t address_bytes = ipv6 ? 16 : 4;
  if (ipv6) {
    quoted[0] = std::byte{0x60};
    put_half(quoted, 4, static_cast<std::uint16_t>(8 + bytes));
    quoted[6] = std::byte{IPPROTO_UDP};
  } else {
    quoted[0] = std::byte{0x45};
    put_half(quoted, 2, static_cast<std::uint16_t>(ip_bytes + 8 + bytes));
    quoted[6] = std::byte{0x40};
    quoted[9] = std::byte{IPPROTO_UDP};
  }
  quoted[ipv6 ? 7 : 8] = std::byte{64};
  for (std::size_t i = 0; i < address_bytes; ++i) {
    quoted[ip_bytes - 2 * address_bytes + i] = std::byte{ip.source.bytes[16 - address_bytes + i]};
    quoted[ip_bytes - address_bytes + i] = std::byte{ip.destination.bytes[16 - address_bytes + i]};
  }
  put_half(quoted, ip_bytes, ip.source_port);
  put_half(quoted, ip_bytes + 2, port);
  if (ipv6) return message;
  put_half(quoted, 10, internet_checksum(quoted.first(ip_bytes)));
  put_half(message, 2, internet_checksum(message));
  return message;
}

// Anyone may forge such a message about the sender's datagrams.
TEST_P(UdpSocketTest, AForgedPathMtuChangesNothing) {
  const std::vector<std::byte> bytes(4'000);
  send(bytes, 0);  // there is a route now
  EXPECT_EQ(from_wire().source_port, ip_.source_port);
  const auto message = too_long(ip_, bytes.size());
  const UniqueFd stranger(socket(GetParam() ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_CLOEXEC,
                                 GetParam() ? static_cast<int>(IPPROTO_ICMPV6) : IPPROTO_ICMP));
  ASSERT_TRUE(stranger);
  SendAddress address;
  fill(address, ip_, GetParam(), 0, 0, 0);
  ASSERT_EQ(sendto(stranger.get(), message.data(), message.size(), 0,
                   reinterpret_cast<const sockaddr*>(&address.name), address.name_bytes),
            static_cast<ssize_t>(message.size()))
      << strerror(errno);
  for (int i = 0; i < 3; ++i) {
    send(bytes, 0);
    const wire::IpUdp seen = from_wire();
    EXPECT_EQ(seen.source_port, ip_.source_port);
    EXPECT_EQ(seen.identification, 0);
    EXPECT_TRUE(seen.dont_fragment);
  }
}

// What the kernel drops since nobody receives is counted, and what it dropped before is not.
TEST_P(UdpSocketTest, TheReceiverKnowsWhatTheKernelHasDropped) {
  const int least = 1;  // the kernel has a minimum
  ASSERT_EQ(setsockopt(receiver_.get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
  constexpr int many = 50;
  for (int i = 0; i < many; ++i) send(std::vector<std::byte>(1'000), 0);
  Receiver receiver(receiver_.get(), port);
  EXPECT_EQ(receiver.kernel_drops(), 0u);
  const auto drain = [&] {
    int received = 0;
    for (;;) {
      const int before = received;
      receiver.receive([&](const auto&, auto) { ++received; });
      if (received == before) return received;
    }
  };
  drain();
  for (int round = 1; round <= 2; ++round) {
    for (int i = 0; i < many; ++i) send(std::vector<std::byte>(1'000), 0);
    const int received = drain();
    EXPECT_LT(received, many);
    const auto lost = static_cast<std::uint64_t>(many - received);
    EXPECT_EQ(receiver.kernel_drops(), lost * static_cast<unsigned>(round));
  }
}

// Soft-RoCE sends checksum 0 over either family. RFC 6936 lets the receiver of IPv6 choose.
TEST_P(UdpSocketTest, ChecksumZeroIsTaken) {
  const int on = 1;
  const int level = GetParam() ? IPPROTO_UDP : SOL_SOCKET;
  const int name = GetParam() ? UDP_NO_CHECK6_TX : SO_NO_CHECK;
  ASSERT_EQ(setsockopt(sender_.get(), level, name, &on, sizeof(on)), 0);
  send(std::vector<std::byte>(100), 0);
  std::array<std::byte, 200> bytes;
  pollfd readable{receiver_.get(), POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, 1'000), 1);
  EXPECT_EQ(recv(receiver_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), 100);
}

TEST_P(UdpSocketTest, ASenderReceivesNothing) {
  std::array<std::byte, 10> bytes{};
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_port = htons(port_of(sender_.get()));
  std::memcpy(&name.sin6_addr, ip_.destination.bytes.data(), 16);
  sendto(receiver_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&name),
         sizeof(name));
  EXPECT_LT(recv(sender_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), 0);
}

INSTANTIATE_TEST_SUITE_P(Ip, UdpSocketTest, testing::Bool(),
                         [](const auto& ipv6) { return ipv6.param ? "v6" : "v4"; });

}  // namespace
}  // namespace tulle::live
