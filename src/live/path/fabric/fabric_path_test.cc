// An adapter whose packets go into the rings of a software fabric, and a fabric that reads them or
// does not.

#include "live/path/fabric/fabric_path.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <utility>

#include "live/bell.h"
#include "live/links.h"
#include "rdma/port/framing/infiniband.h"

namespace tulle::live {
namespace {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::VerbsStatus;

constexpr std::uint32_t packet_bytes = 4'096;
// A ring holds fewer packets than this.
constexpr int messages = 100;

class FabricPathTest : public testing::Test {
 protected:
  FabricPathTest() : adapter_(configuration()) {
    const Gid gid{{0xFE, 0x80}};
    adapter_.set_gids({&gid, 1});
    adapter_.set_lid(Lid(5));
    auto memory = FabricRings::create_memory();
    auto program = create_bell(), fabric = create_bell();
    bell_ = std::move(program->bell);
    fabric_bell_ = std::move(fabric->bell);
    auto own = FabricRings::map(UniqueFd(dup(memory->get())), std::move(fabric->button),
                                FabricRings::End::program);
    auto other =
        FabricRings::map(std::move(*memory), std::move(program->button), FabricRings::End::fabric);
    path_ = std::make_unique<FabricPath>(std::move(*own), adapter_);
    links_.add(*path_);
    fabric_ = std::make_unique<FabricRings>(std::move(*other));
    VerbsStatus status{};
    pd_ = adapter_.objects().create_pd(status);
    cq_ = adapter_.objects().create_cq(1'024, nullptr, status);
    region_ = adapter_.objects().register_memory(*pd_, memory_.data(), memory_.size(), 0x1000,
                                                 verbs::Access::local_write, status);
  }
  static device::Configuration configuration() {
    device::Configuration made;
    made.framing = &port::infiniband;
    made.port = &FabricPath::port_settings();
    return made;
  }

  // Makes an unreliable connection on a service level, and gives it messages of one packet.
  transport::QueuePair& sender(std::uint8_t level) {
    VerbsStatus status{};
    transport::QueuePairInit init;
    init.type = verbs::QpType::uc;
    init.pd = pd_;
    init.send_cq = init.receive_cq = cq_;
    init.send_work_requests = messages;
    init.send_sges = 1;
    transport::QueuePair* qp = adapter_.create_qp(init, status);
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    EXPECT_EQ(adapter_.modify(*qp, to,
                              QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                                  QpAttribute::port | QpAttribute::access_flags),
              VerbsStatus::ok);
    to.state = verbs::QpState::rtr;
    to.destination_qp = QpNumber(77);
    to.address.destination = PortAddress(Lid(9));
    to.address.service_level = level;
    to.path_mtu = verbs::Mtu::b4096;
    EXPECT_EQ(adapter_.modify(*qp, to,
                              QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
                                  QpAttribute::path_mtu | QpAttribute::destination_qp |
                                  QpAttribute::rq_psn),
              VerbsStatus::ok);
    to.state = verbs::QpState::rts;
    EXPECT_EQ(adapter_.modify(*qp, to, QpAttributeMask(QpAttribute::state) | QpAttribute::sq_psn),
              VerbsStatus::ok);
    const verbs::Sge sge{0x1000, packet_bytes, region_->lkey()};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::send;
    request.sges = {&sge, 1};
    for (int i = 0; i < messages; ++i) {
      EXPECT_EQ(adapter_.post_send(*qp, request), VerbsStatus::ok);
    }
    return *qp;
  }

  void transmit() {
    do {
      links_.transmit(adapter_, now_);
    } while (links_.has_more());
  }
  // The fabric takes so many packets of a lane. Returns how many there were.
  int take(std::uint32_t lane, int most = messages) {
    int count = 0;
    while (count < most && fabric_->in(lane).take()) ++count;
    fabric_->tell();
    return count;
  }
  // Returns true if the program was rung, and takes the ring.
  bool is_rung() const {
    std::byte some;
    bool was_rung = false;
    while (recv(bell_.get(), &some, sizeof some, MSG_DONTWAIT) >= 0) was_rung = true;
    return was_rung;
  }

  Time now_ = Time::seconds(1);
  UniqueFd bell_, fabric_bell_;
  device::Adapter adapter_;
  std::unique_ptr<FabricPath> path_;
  DriverCounters counters_;
  Links links_{counters_};
  std::unique_ptr<FabricRings> fabric_;
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
  verbs::MemoryRegion* region_ = nullptr;
  std::array<std::byte, packet_bytes> memory_{};
};

// A lane whose ring is full stops what is on it, and nothing else.
TEST_F(FabricPathTest, AFullLaneHoldsUpNoOther) {
  sender(0);
  transmit();
  sender(1);
  transmit();
  const int others = take(1);
  EXPECT_GT(others, messages / 4);
  EXPECT_EQ(path_->counters().dropped, 0u);
  // Whoever waits is rung once there is room, and goes on.
  EXPECT_TRUE(is_rung());
  transmit();
  int first = take(0);
  EXPECT_GT(first, messages / 4);
  EXPECT_TRUE(is_rung());
  for (int i = 0; i < 10; ++i) {
    transmit();
    first += take(0);
  }
  EXPECT_EQ(first, messages);
  EXPECT_EQ(path_->counters().dropped, 0u);
}

// A fabric that takes nothing for a second loses what does not fit, as a network would.
TEST_F(FabricPathTest, PatienceEnds) {
  sender(0);
  transmit();
  EXPECT_FALSE(path_->next_deadline().is_never());
  now_ = now_ + Time::milliseconds(999);
  transmit();
  EXPECT_EQ(path_->counters().dropped, 0u);
  now_ = now_ + Time::milliseconds(1);
  transmit();
  const auto sent = path_->counters().sent;
  EXPECT_GT(sent, messages / 4u);
  EXPECT_EQ(path_->counters().dropped, messages - sent);
  // It takes packets again, and nothing more is lost.
  EXPECT_EQ(take(0), static_cast<int>(sent));
  transmit();
  EXPECT_TRUE(path_->next_deadline().is_never());
  sender(0);
  transmit();
  EXPECT_GT(take(0), messages / 4);
  EXPECT_EQ(path_->counters().dropped, messages - sent);
}

// A program that polls finds room by itself, and is not rung for it.
TEST_F(FabricPathTest, WhoPollsIsNotRung) {
  path_->set_polled(true);
  sender(3);
  transmit();
  static_cast<void>(is_rung());
  int taken = take(3);
  EXPECT_FALSE(is_rung());
  transmit();
  taken += take(3);
  EXPECT_GT(taken, messages / 2);
  transmit();
  path_->set_polled(false);  // from now on, it waits
  taken += take(3);
  transmit();
  taken += take(3);
  EXPECT_EQ(taken, messages);
}

}  // namespace
}  // namespace tulle::live
