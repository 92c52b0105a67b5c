// Tests QP1 by RoCE v1 over the loopback interface of a private network namespace.

#include "live/agent/roce_v1_network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <vector>

#include "live/agent/management_port.h"
#include "live/path/packets/kernel_socket.h"
#include "live/test_network_test.h"
#include "rdma/port/framing/roce_v1.h"

namespace tulle::live {
namespace {

constexpr Gid here = Gid::from_ipv4(0x7F00'0001);
constexpr Gid elsewhere = Gid::from_ipv4(0x0A00'0009);

class RoceV1NetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    auto opened = RoceV1Network::open(tap_);
    if (!opened) GTEST_SKIP() << "this user may not open packet sockets";
    network_ = std::move(*opened);
    socket_ = kernel_socket(AF_PACKET, SOCK_RAW);
    network_->set_addresses(std::array{GidEntry{here, if_nametoindex("lo"), "lo", true}});
  }
  // Sends a management datagram from a made-up peer.
  void forge(const Gid& source, Qkey qkey = wire::general_services_qkey) {
    const std::array<std::byte, 256> payload{};
    wire::Packet packet = management_packet(0);
    packet.qkey = qkey;
    const wire::Path path = wire::EthernetPath{.global = {.source = source, .destination = here}};
    port::FrameBytes frame;
    port::roce_v1.encode(path, packet, std::array{std::span<const std::byte>(payload)}, frame);
    std::vector<std::byte> bytes(frame.head.begin(), frame.head.begin() + frame.head_bytes);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    bytes.insert(bytes.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
    sockaddr_ll name{};
    name.sll_family = AF_PACKET;
    name.sll_protocol = htons(wire::ether_type_roce);
    name.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    ASSERT_EQ(sendto(socket_.get(), bytes.data(), bytes.size(), 0,
                     reinterpret_cast<const sockaddr*>(&name), sizeof name),
              static_cast<ssize_t>(bytes.size()));
  }
  // Takes that many datagrams. A busy kernel delivers later than it sends.
  int take(int wanted) {
    constexpr int patience_milliseconds = 10'000;
    int count = 0;
    while (count < wanted) {
      pollfd readable{network_->watched_fds().front(), POLLIN, 0};
      if (poll(&readable, 1, patience_milliseconds) <= 0) break;
      network_->receive([&](const management::cm::Route& route, auto) {
        EXPECT_TRUE(route.is_roce_v1);
        EXPECT_EQ(route.local, here);
        ++count;
      });
    }
    return count;
  }

  UniqueFd socket_;  // of somebody else
  CaptureTap tap_;
  std::unique_ptr<RoceV1Network> network_;
};

TEST_F(RoceV1NetworkTest, ADatagramToAnOwnAddressComesBack) {
  const std::array<std::byte, 256> mad{};
  management::cm::Outgoing out;
  out.route.local = out.route.remote = here;
  out.route.is_roce_v1 = true;
  out.bytes = mad;
  network_->send(out);
  EXPECT_EQ(take(1), 1);
}

TEST_F(RoceV1NetworkTest, APacketWithoutTheKeyOfQp1IsNoManagementDatagram) {
  forge(here, Qkey(1));
  forge(here);
  EXPECT_EQ(take(1), 1);
}

TEST_F(RoceV1NetworkTest, MadeUpPeersTakeNoMoreMemoryThanABound) {
  int taken = 0;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    forge(Gid::from_ipv4(0x0A00'0000 + i));
    if (i % 100 == 99) taken += take(100);
  }
  EXPECT_EQ(taken, 10'000);
  EXPECT_LE(network_->neighbour_count(), RoceV1Network::neighbours_max);
}

TEST_F(RoceV1NetworkTest, QuestionsForWaysHaveABound) {
  // Loopback has no neighbours, and the source is an address of this host.
  EXPECT_EQ(network_->find_way({}, elsewhere, here), EADDRNOTAVAIL);
  EXPECT_EQ(network_->find_way({}, here, here), 0);
  std::size_t waiting = 0;
  for (std::size_t i = 0; i < 2 * RoceV1Network::questions_max; ++i) {
    const auto found =
        network_->find_way({}, here, Gid::from_ipv4(0x7F01'0000 + static_cast<std::uint32_t>(i)));
    if (!found) ++waiting;
  }
  EXPECT_LE(waiting, RoceV1Network::questions_max);
}

}  // namespace
}  // namespace tulle::live
