// A framing is a folder and a line: telegram/ is a folder outside src/, and one line of this file
// gives it to adapters. The same test runs over Tulle's own framings, frame by frame as bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "rdma/device/adapter.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/port/framing/roce_v1.h"
#include "rdma/port/framing/roce_v2.h"
#include "telegram/framing.h"

namespace tulle {
namespace {

using verbs::Access;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

void must(VerbsStatus status) { ASSERT_EQ(status, VerbsStatus::ok); }

// An adapter with a reliable connection to the other one.
class Side {
 public:
  Side(const port::Framing& framing, std::uint16_t number)
      : adapter(configuration(framing, number)), address_{Lid(number), gid_of(number)} {
    adapter.set_gids({&address_.gid, 1});
    adapter.set_lid(address_.lid);
    // A port on Ethernet is known by its GID, and one of an InfiniBand subnet by its LID.
    if (framing.link_layer == port::LinkLayer::infiniband) {
      address_.gid = {};
    } else {
      address_.lid = {};
    }
    for (std::size_t i = 0; i < 32'768; ++i) {
      memory.push_back(static_cast<std::byte>(i * 31 + i / 256 + number));
    }
    VerbsStatus status{};
    auto* pd = adapter.objects().create_pd(status);
    const auto access = verbs::AccessFlags(Access::local_write) | Access::remote_write;
    region =
        adapter.objects().register_memory(*pd, memory.data(), memory.size(), 0, access, status);
    cq = adapter.objects().create_cq(64, nullptr, status);
    transport::QueuePairInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.send_work_requests = init.receive_work_requests = 16;
    init.send_sges = init.receive_sges = 1;
    qp = adapter.create_qp(init, status);
  }

  void connect(const Side& peer) {
    transport::QueuePairAttributes to;
    to.path_mtu = verbs::Mtu::b1024;
    to.destination_qp = peer.qp->number;
    to.address.destination = peer.address_;
    to.access = verbs::AccessFlags(Access::remote_write);
    to.timeout = 10;
    to.retry_count = to.rnr_retry = 7;
    using enum QpAttribute;
    const std::pair<QpState, QpAttributeMask> steps[] = {
        {QpState::init, QpAttributeMask(pkey_index) | port | access_flags},
        {QpState::rtr, QpAttributeMask(address_vector) | path_mtu | destination_qp | rq_psn |
                           max_dest_rd_atomic | min_rnr_timer},
        {QpState::rts,
         QpAttributeMask(sq_psn) | timeout | retry_count | rnr_retry | max_rd_atomic}};
    for (const auto& [state, mask] : steps) {
      to.state = state;
      must(adapter.modify(*qp, to, mask | QpAttribute::state));
    }
  }
  void post(verbs::SendOpcode opcode, std::uint32_t bytes, const Side& peer) {
    const verbs::Sge sge{0, bytes, region->lkey()};
    verbs::SendRequest request;
    request.opcode = opcode;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = 16'384;
    request.rkey = peer.region->rkey();
    must(adapter.post_send(*qp, request));
  }
  void post_receive(std::uint32_t bytes) {
    const verbs::Sge sge{16'384, bytes, region->lkey()};
    must(adapter.post_receive(*qp, {0, {&sge, 1}}));
  }
  std::uint32_t successes() {
    std::uint32_t count = 0;
    for (verbs::Completion completion; cq->poll({&completion, 1}) == 1; ++count) {
      EXPECT_EQ(completion.status, verbs::CompletionStatus::success);
    }
    return count;
  }

  std::vector<std::byte> memory;
  device::Adapter adapter;
  verbs::MemoryRegion* region = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  transport::QueuePair* qp = nullptr;

 private:
  static device::Configuration configuration(const port::Framing& framing, std::uint16_t number) {
    device::Configuration out;
    out.seed = number;
    out.framing = &framing;
    return out;
  }
  // A link-local GID of the MAC address 02:00:00:00:00:0n, which suits every framing.
  static Gid gid_of(std::uint16_t number) {
    Gid gid;
    gid.bytes = {0xFE, 0x80, 0, 0,    0,    0, 0, 0,
                 0,    0,    0, 0xFF, 0xFE, 0, 0, static_cast<std::uint8_t>(number)};
    return gid;
  }

  PortAddress address_;
};

// Carries frames between two adapters as bytes. Every n-th arrives with a wrong bit.
class Wire {
 public:
  explicit Wire(int damage_every = 0) : damage_every_(damage_every) {}

  void run(Side& a, Side& b) {
    for (int idle = 0; idle < 100; ++idle) {
      while (move(a, b) || move(b, a)) idle = 0;
      now_ = std::min(a.adapter.next_deadline(), b.adapter.next_deadline());
      if (now_.is_never()) return;
      a.adapter.handle_deadline(now_);
      b.adapter.handle_deadline(now_);
    }
  }
  int refused = 0;
  int frames = 0;

 private:
  bool move(Side& from, Side& to) {
    if (!from.adapter.pull_datagram(now_, datagram_)) return false;
    datagram_.finish_frame(0);
    const port::FrameBytes& frame = datagram_.frame;
    bytes_.assign(frame.head.begin(), frame.head.begin() + frame.head_bytes);
    for (int i = 0; i < datagram_.piece_count; ++i) {
      bytes_.insert(bytes_.end(), datagram_.pieces[i].begin(), datagram_.pieces[i].end());
    }
    bytes_.insert(bytes_.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
    if (damage_every_ != 0 && ++frames % damage_every_ == 0) bytes_.back() ^= std::byte{1};
    port::Arrival arrival{datagram_.path};
    if (to.adapter.handle_frame(now_, arrival, bytes_) != port::Verdict::ok) ++refused;
    return true;
  }

  int damage_every_;
  Time now_;
  device::Datagram datagram_;
  std::vector<std::byte> bytes_;
};

class Framings : public testing::TestWithParam<const port::Framing*> {};

TEST_P(Framings, MessagesArriveWhole) {
  Side a(*GetParam(), 1), b(*GetParam(), 2);
  a.connect(b);
  b.connect(a);
  b.post_receive(5'001);
  a.post(verbs::SendOpcode::send, 5'001, b);
  b.post(verbs::SendOpcode::write, 9'000, a);
  Wire wire;
  wire.run(a, b);
  EXPECT_EQ(a.successes(), 1u);
  EXPECT_EQ(b.successes(), 2u);
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + 5'001, b.memory.begin() + 16'384));
  EXPECT_TRUE(std::equal(b.memory.begin(), b.memory.begin() + 9'000, a.memory.begin() + 16'384));
  EXPECT_EQ(wire.refused, 0);
}

TEST_P(Framings, ADamagedFrameIsRefusedAndSentAgain) {
  Side a(*GetParam(), 1), b(*GetParam(), 2);
  a.connect(b);
  b.connect(a);
  a.post(verbs::SendOpcode::write, 15'000, b);
  Wire wire(7);
  wire.run(a, b);
  EXPECT_EQ(a.successes(), 1u);
  EXPECT_TRUE(std::equal(a.memory.begin(), a.memory.begin() + 15'000, b.memory.begin() + 16'384));
  EXPECT_EQ(wire.refused, wire.frames / 7);
  EXPECT_GE(wire.refused, 2);
}

INSTANTIATE_TEST_SUITE_P(All, Framings,
                         testing::Values(&port::roce_v2, &port::roce_v1, &port::infiniband,
                                         &telegram::framing),  // the line
                         [](const auto& test) {
                           std::string name(test.param->name);
                           std::erase(name, ' ');
                           return name;
                         });

}  // namespace
}  // namespace tulle
