// Tests what the link by UDP makes of an adapter's datagrams, over the sockets of a private network
// namespace: segments, order, and receivers that have no room.

#include "live/path/packets/udp_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "live/links.h"
#include "live/path/packets/receiver.h"
#include "live/test_network_test.h"
#include "rdma/port/framing/roce_v2.h"

namespace tulle::live {
namespace {

using verbs::QpAttribute;

constexpr std::uint32_t own_slot = 1;
constexpr std::uint32_t near_slot = 5;
constexpr std::uint32_t far_slot = 9;
constexpr std::uint32_t mtu = 1024;
const Gid local_gid = Gid::from_ipv4(0x7F00'0001);

class UdpLinkTest : public testing::Test {
 protected:
  struct Arrived {
    Psn psn;
    std::uint16_t source_port = 0;
    std::byte first{};
    bool is_valid = false;
  };

  void SetUp() override {
    enter_test_network();
    auto created = SocketGroup::create(read_settings().port);
    ASSERT_TRUE(created) << created.error().message;
    group_.emplace(std::move(*created));
    for (const std::uint32_t slot : {own_slot, near_slot, far_slot}) {
      locks_.push_back(group_->lock(slot));
      receivers_[slot] = std::make_unique<Receiver>(group_->socket(slot), group_->port());
    }
    device_.gids = {{local_gid, 1, "lo"}};
    adapter_.set_gids({&local_gid, 1});
    verbs::VerbsStatus status{};
    pd_ = adapter_.objects().create_pd(status);
    region_ =
        adapter_.objects().register_memory(*pd_, memory_.data(), memory_.size(), address(),
                                           verbs::AccessFlags(verbs::Access::local_write), status);
    cq_ = adapter_.objects().create_cq(64, nullptr, status);
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i / mtu);
  }
  void open(bool offload = true) {
    UdpLink::Options options;
    options.socket.reset(dup(group_->socket(own_slot)));
    options.port = group_->port();
    options.offload = offload;
    options.vault.reset(fcntl(group_->vault(), F_DUPFD_CLOEXEC, 0));
    link_.emplace(std::move(options), device_, tap_, counters_);
    links_.add(*link_);
  }
  // Returns an unreliable connection, which has no window, to a queue pair of that slot.
  transport::QueuePair* connect(std::uint32_t slot, const Gid& to = local_gid) {
    transport::QueuePairInit init;
    init.type = verbs::QpType::uc;
    init.pd = pd_;
    init.send_cq = init.receive_cq = cq_;
    init.send_work_requests = 16;
    init.send_sges = 1;
    verbs::VerbsStatus status{};
    transport::QueuePair* qp = adapter_.create_qp(init, status);
    transport::QueuePairAttributes a;
    const auto modify = [&](verbs::QpState state, verbs::QpAttributeMask mask) {
      a.state = state;
      EXPECT_EQ(adapter_.modify(*qp, a, mask | QpAttribute::state), verbs::VerbsStatus::ok);
    };
    modify(verbs::QpState::init, verbs::QpAttributeMask(QpAttribute::pkey_index) |
                                     QpAttribute::port | QpAttribute::access_flags);
    a.destination_qp = QpNumber{slot * qps_per_slot + 77};
    a.address.destination = to;
    a.path_mtu = verbs::Mtu::b1024;
    modify(verbs::QpState::rtr, verbs::QpAttributeMask(QpAttribute::address_vector) |
                                    QpAttribute::path_mtu | QpAttribute::destination_qp |
                                    QpAttribute::rq_psn);
    modify(verbs::QpState::rts, verbs::QpAttributeMask(QpAttribute::sq_psn));
    return qp;
  }
  void send(transport::QueuePair& qp, std::uint32_t packets) {
    const verbs::Sge sge{address(), packets * mtu, region_->lkey()};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::send;
    request.sges = {&sge, 1};
    ASSERT_EQ(adapter_.post_send(qp, request), verbs::VerbsStatus::ok);
  }
  void transmit() { links_.transmit(adapter_, now_); }
  // Takes everything that has come to a slot. `messages_` counts what the kernel joined as one.
  std::vector<Arrived> take(std::uint32_t slot) {
    std::vector<Arrived> all;
    messages_ = 0;
    for (int count = 1; count > 0;) {
      count = receivers_[slot]->receive([&](const wire::IpUdp& ip, auto bytes) {
        wire::Packet packet;
        std::span<const std::byte> payload;
        const bool is_valid = port::decode(ip, false, bytes, packet, payload) == port::Verdict::ok;
        all.push_back(
            {packet.psn, ip.source_port, payload.empty() ? std::byte{} : payload[0], is_valid});
      });
      messages_ += std::max(count, 0);
    }
    return all;
  }
  // Expects the packets of one connection, whole and in order.
  static void expect_in_order(const std::vector<Arrived>& all, std::size_t first,
                              std::size_t packets) {
    ASSERT_EQ(all.size(), packets);
    for (std::size_t i = 0; i < packets; ++i) {
      EXPECT_TRUE(all[i].is_valid);
      EXPECT_EQ(all[i].psn, Psn(static_cast<std::uint32_t>(first + i)));
    }
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_.data()); }

  std::optional<SocketGroup> group_;
  std::vector<UniqueFd> locks_;
  std::map<std::uint32_t, std::unique_ptr<Receiver>> receivers_;
  DeviceInfo device_;
  CaptureTap tap_;
  DriverCounters counters_;
  std::optional<UdpLink> link_;
  Links links_{counters_};
  std::vector<std::byte> memory_ = std::vector<std::byte>(4 << 20);
  device::Adapter adapter_{configuration()};
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::MemoryRegion* region_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
  Time now_;
  int messages_ = 0;

 private:
  static device::Configuration configuration() {
    device::Configuration configuration;
    configuration.seed = 1;
    configuration.first_qp = QpNumber{own_slot * qps_per_slot};
    return configuration;
  }
};

TEST_F(UdpLinkTest, NeighboursAreOneSegmentedMessage) {
  open();
  send(*connect(near_slot), 40);
  transmit();
  EXPECT_EQ(counters_.send_calls, 1u);
  expect_in_order(take(near_slot), 0, 40);
  EXPECT_EQ(messages_, 1);
  EXPECT_FALSE(links_.has_more());
  EXPECT_TRUE(links_.next_deadline().is_never());
}

TEST_F(UdpLinkTest, WithoutOffloadEachDatagramIsAMessage) {
  open(false);
  send(*connect(near_slot), 40);
  transmit();
  expect_in_order(take(near_slot), 0, 40);
  EXPECT_EQ(messages_, 40);
}

TEST_F(UdpLinkTest, AShorterDatagramEndsAMessage) {
  open();
  transport::QueuePair& qp = *connect(near_slot);
  const verbs::Sge sge{address(), 3 * mtu + 100, region_->lkey()};
  verbs::SendRequest request;
  request.opcode = verbs::SendOpcode::send;
  request.sges = {&sge, 1};
  for (int i = 0; i < 2; ++i) ASSERT_EQ(adapter_.post_send(qp, request), verbs::VerbsStatus::ok);
  transmit();
  expect_in_order(take(near_slot), 0, 8);
  EXPECT_EQ(messages_, 2);
}

TEST_F(UdpLinkTest, EachSlotHasASourcePortOfItsOwn) {
  open();
  send(*connect(near_slot), 3);
  send(*connect(far_slot), 3);
  send(*connect(near_slot), 3);
  transmit();
  const auto near = take(near_slot);
  const auto far = take(far_slot);
  std::set<std::uint16_t> near_ports, far_ports;
  for (const Arrived& each : near) near_ports.insert(each.source_port);
  for (const Arrived& each : far) far_ports.insert(each.source_port);
  EXPECT_EQ(near.size(), 6u);
  EXPECT_EQ(far.size(), 3u);
  EXPECT_EQ(near_ports.size(), 1u);
  EXPECT_EQ(far_ports.size(), 1u);
  EXPECT_NE(near_ports, far_ports);
}

TEST_F(UdpLinkTest, OneCallSendsABoundedNumber) {
  open();
  transport::QueuePair& qp = *connect(near_slot);
  constexpr std::uint32_t packets = 64 * 8 + 10;
  std::size_t arrived = 0;
  send(qp, packets);
  transmit();
  // The receiver's buffer may be full before the bound is reached.
  EXPECT_TRUE(links_.has_more() || !links_.next_deadline().is_never());
  for (int i = 0; i < 100 && arrived < packets; ++i) {
    const auto batch = take(near_slot);
    expect_in_order(batch, arrived, batch.size());
    arrived += batch.size();
    now_ = now_ + Time::milliseconds(1);
    transmit();
  }
  EXPECT_EQ(arrived, packets);
  EXPECT_FALSE(links_.has_more());
}

// A receiver without room holds the datagrams back. What has left the adapter is copied meanwhile,
// so the application may change its memory, as it may once a request is complete.
TEST_F(UdpLinkTest, ADatagramThatWaitsKeepsItsBytesAndItsPlace) {
  open();
  transport::QueuePair& qp = *connect(near_slot);
  constexpr std::uint32_t packets = 4'000;  // of each request
  for (int i = 0; i < 16; ++i) send(qp, packets);
  for (int i = 0; i < 200 && links_.next_deadline().is_never(); ++i) transmit();
  ASSERT_FALSE(links_.next_deadline().is_never()) << "the receiver's buffer never filled";
  EXPECT_EQ(link_->blocked_socket(), -1) << "no socket of ours is full";
  EXPECT_GE(counters_.send_delays, 1u);
  EXPECT_GT(links_.next_deadline(), now_);
  transmit();  // there is still no room
  const std::vector<Arrived> before = take(near_slot);
  expect_in_order(before, 0, before.size());

  std::fill(memory_.begin(), memory_.end(), std::byte{0xEE});
  now_ = links_.next_deadline();
  transmit();
  const std::vector<Arrived> after = take(near_slot);
  expect_in_order(after, before.size(), after.size());
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(after[0].first, static_cast<std::byte>(before.size() % packets));
  EXPECT_EQ(after.back().first, std::byte{0xEE});
}

TEST_F(UdpLinkTest, ADatagramWithoutARouteIsLostAlone) {
  open();
  send(*connect(near_slot, Gid::from_ipv4(0x0A09'0909)), 2);
  send(*connect(near_slot), 2);
  transmit();
  EXPECT_EQ(counters_.send_errors, 2u);
  EXPECT_EQ(take(near_slot).size(), 2u);
}

}  // namespace
}  // namespace tulle::live
