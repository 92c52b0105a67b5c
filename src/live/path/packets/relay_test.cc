// Tests of the relay, by which a process of another user gets its datagrams.

#include "live/path/packets/relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <vector>

#include "live/path/packets/receiver.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

constexpr std::uint32_t own = 0x7F00'0001;

class RelayTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    auto slot = bind_udp(0, PortUse::exclusive);
    auto sender = bind_sender(1);
    ASSERT_TRUE(slot && sender);
    slot_ = std::move(*slot);
    sender_ = std::move(*sender);
    port_ = port_of(slot_.get());
    auto relay = Relay::create(slot_.get(), {0, qp_number_max});
    ASSERT_TRUE(relay);
    relay_.emplace(std::move(*relay));
    process_end_ = relay_->take_process_end();
    receiver_.emplace(process_end_.get(), port_, Receiver::From::relay);
  }
  void send(const std::vector<std::byte>& payload, std::uint8_t traffic_class = 0,
            std::uint16_t segment_bytes = 0) {
    wire::IpUdp ip;
    ip.source = ip.destination = Gid::from_ipv4(own);
    ip.traffic_class = traffic_class;
    SendAddress address;
    fill(address, ip, is_ipv6(sender_.get()), 0, port_, segment_bytes);
    iovec piece{const_cast<std::byte*>(payload.data()), payload.size()};
    msghdr message{};
    message.msg_name = &address.name;
    message.msg_namelen = address.name_bytes;
    message.msg_control = address.control;
    message.msg_controllen = address.control_bytes;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    ASSERT_EQ(sendmsg(sender_.get(), &message, 0), static_cast<ssize_t>(payload.size()));
  }
  struct Datagram {
    wire::IpUdp ip;
    std::vector<std::byte> payload;
  };
  std::vector<Datagram> receive() {
    std::vector<Datagram> out;
    while (receiver_->receive([&](const wire::IpUdp& ip, std::span<const std::byte> payload) {
      out.push_back({ip, {payload.begin(), payload.end()}});
    }) > 0) {
    }
    return out;
  }
  static std::vector<std::byte> bytes(std::size_t count) {
    std::vector<std::byte> out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(i * 7 + count);
    return out;
  }

  UniqueFd slot_, sender_, process_end_;
  std::uint16_t port_ = 0;
  std::optional<Relay> relay_;
  std::optional<Receiver> receiver_;
};

TEST_F(RelayTest, DatagramsArriveWithTheirHeaders) {
  send(bytes(100), 0x6A);
  send(bytes(4'000));
  relay_->forward();
  const auto datagrams = receive();
  ASSERT_EQ(datagrams.size(), 2u);
  EXPECT_EQ(datagrams[0].payload, bytes(100));
  EXPECT_EQ(datagrams[0].ip.source, Gid::from_ipv4(own));
  EXPECT_EQ(datagrams[0].ip.destination, Gid::from_ipv4(own));
  EXPECT_EQ(datagrams[0].ip.source_port, port_of(sender_.get()));
  EXPECT_EQ(datagrams[0].ip.destination_port, port_);
  EXPECT_EQ(datagrams[0].ip.traffic_class, 0x6A);
  EXPECT_EQ(datagrams[1].payload, bytes(4'000));
  EXPECT_EQ(datagrams[1].ip.traffic_class, 0);
}

TEST_F(RelayTest, DatagramsThatTheKernelJoinedArriveOneByOne) {
  send(bytes(10'500), 0, 1'000);
  relay_->forward();
  const auto datagrams = receive();
  ASSERT_EQ(datagrams.size(), 11u);
  std::vector<std::byte> all;
  for (const Datagram& datagram : datagrams) {
    all.insert(all.end(), datagram.payload.begin(), datagram.payload.end());
  }
  EXPECT_EQ(all, bytes(10'500));
  EXPECT_EQ(datagrams.back().payload.size(), 500u);
}

// The slot was another user's, whose peers still send.
TEST_F(RelayTest, DatagramsForOtherQueuePairsDoNotPass) {
  auto relay = Relay::create(slot_.get(), {0x10'0000, 4});
  ASSERT_TRUE(relay);
  process_end_ = relay->take_process_end();
  receiver_.emplace(process_end_.get(), port_, Receiver::From::relay);
  const auto to = [](std::initializer_list<std::uint32_t> numbers) {
    std::vector<std::byte> all;
    for (const std::uint32_t number : numbers) {
      std::vector<std::byte> datagram(500, std::byte(number));
      for (std::size_t i = 0; i < 3; ++i) datagram[5 + i] = std::byte(number >> (16 - 8 * i));
      all.insert(all.end(), datagram.begin(), datagram.end());
    }
    return all;
  };
  send(to({0x0F'FFFF}));
  send(to({0x10'0004}));
  send(to({0xFF'FFFF}));
  send(to({0x10'0001, 0x10'0005, 0x10'0002, 0x00'0003, 0x10'0003}), 0, 500);  // one of the kernel's
  send(to({0x00'0001, 0x00'0002}), 0, 500);
  while (relay->forward()) {
  }
  std::vector<std::vector<std::byte>> received;
  for (const Datagram& datagram : receive()) received.push_back(datagram.payload);
  const std::vector expected = {to({0xFF'FFFF}), to({0x10'0001}), to({0x10'0002}), to({0x10'0003})};
  EXPECT_EQ(received, expected);
  EXPECT_EQ(relay->lost(), 0u);
}

TEST_F(RelayTest, TheLongestAndTheShortestDatagramsArrive) {
  send(bytes(65'507));
  send({});  // for nobody
  relay_->forward();
  const auto datagrams = receive();
  ASSERT_GE(datagrams.size(), 1u);
  EXPECT_EQ(datagrams[0].payload, bytes(65'507));
}

TEST_F(RelayTest, NobodyWaitsForAProcessThatDoesNotRead) {
  for (int i = 0; i < 2'000; ++i) {
    send(bytes(4'000));
    relay_->forward();
  }
  EXPECT_FALSE(relay_->forward()) << "the slot's own socket is empty";
  EXPECT_GT(relay_->lost(), 500u);
  const auto datagrams = receive();
  EXPECT_GT(datagrams.size(), 50u);
  EXPECT_EQ(datagrams.size() + relay_->lost(), 2'000u);
}

TEST_F(RelayTest, AProcessThatIsGoneHurtsNobody) {
  process_end_.reset();
  for (int i = 0; i < 100; ++i) send(bytes(100));
  while (relay_->forward()) {
  }
  EXPECT_EQ(relay_->lost(), 100u);
}

// A relay whose agent is gone is readable for ever.
TEST_F(RelayTest, ALostAgentLooksLikeSilence) {
  relay_.reset();
  EXPECT_TRUE(receive().empty());
}

// The process holds no socket of the port, and says nothing to the agent by what it holds.
TEST_F(RelayTest, TheProcessCanNeitherSteerNorSend) {
  const int fd = process_end_.get();
  sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog steering{1, program};
  EXPECT_NE(setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &steering, sizeof(steering)), 0);
  int domain = 0;
  socklen_t size = sizeof(domain);
  ASSERT_EQ(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size), 0);
  EXPECT_EQ(domain, AF_UNIX);
  EXPECT_LT(::send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT), 0);
  // A filter on its own end loses its own datagrams, and a part of a message is no message.
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &steering, sizeof(steering)), 0);
  send(bytes(10));
  relay_->forward();
  EXPECT_TRUE(receive().empty());
}

TEST_F(RelayTest, GroupsAreBounded) {
  DeviceInfo device;
  GidEntry entry;
  entry.gid = Gid::from_ipv4(own);
  entry.interface_index = 1;
  entry.interface = "lo";
  device.gids = {entry};
  std::size_t joined = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    if (relay_->join(device, Gid::from_ipv4(0xE001'0000 + i)) == 0) ++joined;
  }
  EXPECT_GE(joined, 10u);
  EXPECT_LE(joined, Relay::groups_max);
  EXPECT_EQ(relay_->leave(Gid::from_ipv4(0xE001'0000)), 0);
  EXPECT_EQ(relay_->leave(Gid::from_ipv4(0xE001'0000)), EINVAL);
  EXPECT_EQ(relay_->join(device, Gid::from_ipv4(0xE001'0000)), 0);
}

TEST(RelayedHeaders, AMessageThatIsTooShortIsRefused) {
  const std::vector<std::byte> message(sizeof(RelayedHeaders) + 3);
  for (std::size_t bytes = 0; bytes <= message.size(); ++bytes) {
    std::span<const std::byte> rest = std::span(message).first(bytes);
    ReceivedHeaders headers;
    EXPECT_EQ(take_relayed_headers(rest, headers), bytes >= sizeof(RelayedHeaders));
    if (bytes >= sizeof(RelayedHeaders)) {
      EXPECT_EQ(rest.size(), bytes - sizeof(RelayedHeaders));
    }
  }
}

}  // namespace
}  // namespace tulle::live
