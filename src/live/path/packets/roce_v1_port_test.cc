// Tests the way of RoCE v1's packets over the loopback interface of a private network namespace,
// and what comes from others who may send frames.

#include "live/path/packets/roce_v1_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "live/path/packets/kernel_socket.h"
#include "live/test_network_test.h"
#include "rdma/device/multicast.h"
#include "rdma/port/framing/roce_v1.h"

namespace tulle::live {
namespace {

constexpr QpNumber first_qp{0x4000};
constexpr QpNumber second_qp{0x8000};
constexpr std::uint32_t qp_count = 0x100;
constexpr Gid here = Gid::from_ipv4(0x7F00'0001);
constexpr Gid elsewhere = Gid::from_ipv4(0x0A00'0009);
constexpr Gid group = Gid::from_ipv4(0xEF01'0203);

device::Datagram datagram_to(QpNumber qp, const Gid& destination, const Gid& source,
                             std::span<const std::byte> payload) {
  device::Datagram datagram;
  datagram.framing = &port::roce_v1;
  datagram.path = wire::EthernetPath{.global = {.source = source, .destination = destination}};
  datagram.packet.opcode = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
  datagram.packet.destination_qp = qp;
  datagram.pieces[0] = payload;
  datagram.piece_count = 1;
  datagram.payload_bytes = static_cast<std::uint32_t>(payload.size());
  return datagram;
}

class RoceV1PortTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    first_ = open(first_qp);
    if (first_ == nullptr) GTEST_SKIP() << "this user may not open packet sockets";
    second_ = open(second_qp);
  }
  std::unique_ptr<RoceV1Port> open(QpNumber first) {
    auto port = RoceV1Port::open(first, qp_count, tap_);
    if (!port) return nullptr;
    (*port)->set_addresses(std::array{GidEntry{here, if_nametoindex("lo"), "lo", true}});
    return std::move(*port);
  }
  void send(QpNumber qp, const Gid& destination = here, const Gid& source = here) {
    device::Datagram datagram = datagram_to(qp, destination, source, payload_);
    first_->add(datagram);
    ASSERT_EQ(first_->send(), RoceV1Port::Sent::all);
  }
  // Sends bytes by a packet socket of somebody else's.
  void forge(std::span<const std::byte> frame) {
    const UniqueFd socket = kernel_socket(AF_PACKET, SOCK_RAW);
    sockaddr_ll name{};
    name.sll_family = AF_PACKET;
    name.sll_protocol = htons(wire::ether_type_roce);
    name.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    ASSERT_EQ(sendto(socket.get(), frame.data(), frame.size(), 0,
                     reinterpret_cast<const sockaddr*>(&name), sizeof name),
              static_cast<ssize_t>(frame.size()));
  }
  std::vector<std::byte> frame(QpNumber qp, const Gid& destination,
                               const wire::MacAddress& mac = {}) {
    device::Datagram datagram = datagram_to(qp, destination, here, payload_);
    std::get<wire::EthernetPath>(datagram.path).destination = mac;
    datagram.finish_frame(0);
    std::vector<std::byte> bytes(datagram.frame.head.begin(),
                                 datagram.frame.head.begin() + datagram.frame.head_bytes);
    bytes.insert(bytes.end(), payload_.begin(), payload_.end());
    bytes.insert(bytes.end(), datagram.frame.tail.begin(),
                 datagram.frame.tail.begin() + datagram.frame.tail_bytes);
    return bytes;
  }
  // Takes what comes in up to that many frames, and returns the queue pairs that they are for. A
  // busy kernel delivers later than it sends.
  static std::vector<QpNumber> take(RoceV1Port& port, std::size_t count) {
    constexpr int patience_milliseconds = 10'000;
    std::vector<QpNumber> found;
    while (found.size() < count) {
      pollfd readable{port.receiving_socket(), POLLIN, 0};
      if (poll(&readable, 1, patience_milliseconds) <= 0) break;
      port.receive([&](port::Arrival& arrival, std::span<const std::byte> bytes) {
        wire::Packet packet;
        std::span<const std::byte> payload;
        EXPECT_EQ(arrival.framing->decode(bytes, arrival, packet, payload), port::Verdict::ok);
        EXPECT_EQ(payload.size(), payload_.size());
        found.push_back(packet.destination_qp);
      });
    }
    return found;
  }
  // Sends one more frame, and returns true if it is the only one that comes.
  bool nothing_else_comes(RoceV1Port& port, QpNumber qp) {
    send(qp);
    return take(port, 1) == std::vector{qp};
  }

  static inline const std::array<std::byte, 64> payload_{std::byte{7}};
  CaptureTap tap_;
  std::unique_ptr<RoceV1Port> first_;
  std::unique_ptr<RoceV1Port> second_;
};

TEST_F(RoceV1PortTest, FramesBetweenProcessesOfAHostGoRoundOverLoopback) {
  const QpNumber qp{second_qp.value + qp_count - 1};
  send(qp);
  EXPECT_EQ(take(*second_, 1), std::vector{qp});
  EXPECT_TRUE(nothing_else_comes(*first_, first_qp));
}

TEST_F(RoceV1PortTest, TheKernelPassesOnlyFramesToTheProcesssQueuePairs) {
  for (const std::uint32_t outside : {second_qp.value - 1, second_qp.value + qp_count, 1u}) {
    send(QpNumber(outside));
  }
  EXPECT_TRUE(nothing_else_comes(*second_, second_qp));
  EXPECT_EQ(second_->counters().refused, 0u) << "they came as far as this process";
}

TEST_F(RoceV1PortTest, AFrameToAGroupComesToEveryProcess) {
  EXPECT_EQ(first_->join(group), 0);
  EXPECT_EQ(second_->join(group), 0);
  send(device::multicast_qp, group);
  EXPECT_EQ(take(*first_, 1).size(), 1u);
  EXPECT_EQ(take(*second_, 1).size(), 1u);
}

TEST_F(RoceV1PortTest, APacketToAnUnknownNeighbourIsLost) {
  send(second_qp, elsewhere);
  EXPECT_EQ(first_->counters().unresolved, 1u);
  EXPECT_TRUE(nothing_else_comes(*second_, second_qp));
}

TEST_F(RoceV1PortTest, APacketFromAnAddressThatIsGoneIsLost) {
  first_->set_addresses({});
  send(second_qp);
  EXPECT_EQ(first_->counters().unresolved, 1u);
}

TEST_F(RoceV1PortTest, FramesToOthersAreRefused) {
  forge(frame(second_qp, elsewhere));  // the MAC address is this host's, and the GID is not
  EXPECT_TRUE(nothing_else_comes(*second_, second_qp));
  EXPECT_EQ(second_->counters().refused, 1u);
  forge(frame(second_qp, here, {2, 0, 0, 0, 0, 9}));  // as a switch floods it
  EXPECT_TRUE(nothing_else_comes(*second_, second_qp));
  EXPECT_EQ(second_->counters().refused, 2u);
  forge(frame(second_qp, here));
  EXPECT_EQ(take(*second_, 1).size(), 1u);
}

TEST_F(RoceV1PortTest, ShortAndLongFramesAreRefused) {
  const std::vector<std::byte> whole = frame(second_qp, here);
  for (std::size_t bytes = 14; bytes < 62; ++bytes) forge(std::span(whole).first(bytes));
  std::vector<std::byte> longest = whole;
  longest.resize(9'000);
  forge(longest);
  EXPECT_TRUE(nothing_else_comes(*second_, second_qp));
  EXPECT_GE(second_->counters().refused, 1u);
}

// All is there while the socket has room. What the socket does not take waits, and nothing is lost
// on the way to it.
TEST_F(RoceV1PortTest, AFullBatchIsSent) {
  std::size_t received = 0;
  for (int round = 0; round < 8; ++round) {
    for (std::size_t i = 0; i < RoceV1Port::packets_max; ++i) {
      device::Datagram datagram = datagram_to(second_qp, here, here, payload_);
      first_->add(datagram);
    }
    ASSERT_EQ(first_->send(), RoceV1Port::Sent::all);
    received += take(*second_, RoceV1Port::packets_max).size();
  }
  EXPECT_EQ(received, 8 * RoceV1Port::packets_max);
}

}  // namespace
}  // namespace tulle::live
