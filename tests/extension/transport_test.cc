// A transport is a folder and a line: echo/ is a folder outside src/, and one line of this file
// adds it. Everything else here is what any transport's user does.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "echo/engine.h"
#include "rdma/transport/queue_pair.h"
#include "sim/cluster.h"

namespace tulle {
namespace {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

const transport::TransportTable& transports_with_echo() {
  static const transport::TransportTable table = [] {
    transport::TransportTable all = transport::TransportTable::standard();
    all.add(echo::transport);
    return all;
  }();
  return table;
}

void must(VerbsStatus status) { ASSERT_EQ(status, VerbsStatus::ok); }

// Two adapters with a queue pair each, connected to each other.
class Pair {
 public:
  explicit Pair(double drop = 0) : cluster_(settings(drop)) {
    for (std::size_t side = 0; side < 2; ++side) open(side);
    for (std::size_t side = 0; side < 2; ++side) connect(side);
  }

  void post_receive(std::size_t side, std::uint32_t bytes) {
    const verbs::Sge sge{8'192, bytes, sides_[side].region->lkey()};
    must(adapter(side).post_receive(*sides_[side].qp, {7, {&sge, 1}}));
  }
  void post_send(std::size_t side, std::uint32_t bytes) {
    const verbs::Sge sge{0, bytes, sides_[side].region->lkey()};
    verbs::SendRequest request;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    must(adapter(side).post_send(*sides_[side].qp, request));
    cluster_.attend(sides_[side].node);
  }
  void run() {
    while (cluster_.step().kind != sim::Happening::Kind::nothing) {
    }
  }
  std::vector<verbs::Completion> completions(std::size_t side) {
    std::vector<verbs::Completion> out(sides_[side].cq->size());
    sides_[side].cq->poll(out);
    return out;
  }
  const std::vector<std::byte>& memory(std::size_t side) const { return sides_[side].memory; }
  device::Adapter& adapter(std::size_t side) { return cluster_.adapter(sides_[side].node); }
  transport::QueuePair& qp(std::size_t side) { return *sides_[side].qp; }

 private:
  struct Side {
    sim::NodeNumber node;
    Gid gid;
    std::vector<std::byte> memory;
    verbs::MemoryRegion* region = nullptr;
    verbs::CompletionQueue* cq = nullptr;
    transport::QueuePair* qp = nullptr;
  };

  static sim::Settings settings(double drop) {
    sim::Settings settings;
    settings.seed = 1;
    settings.faults.drop = drop;
    return settings;
  }

  void open(std::size_t index) {
    Side& side = sides_[index];
    device::Configuration configuration;
    configuration.seed = index;
    configuration.transports = &transports_with_echo();
    side.gid = Gid::from_ipv4(0x0A00'0001 + static_cast<std::uint32_t>(index));
    side.node = cluster_.add(configuration, {&side.gid, 1});
    for (std::size_t i = 0; i < 16'384; ++i) {
      side.memory.push_back(static_cast<std::byte>(i * 31 + i / 256 + index));
    }
    VerbsStatus status{};
    auto* pd = adapter(index).objects().create_pd(status);
    side.region = adapter(index).objects().register_memory(
        *pd, side.memory.data(), side.memory.size(), 0, verbs::Access::local_write, status);
    side.cq = adapter(index).objects().create_cq(64, nullptr, status);
    transport::QueuePairInit init;
    init.type = verbs::QpType::experimental;
    init.pd = pd;
    init.send_cq = init.receive_cq = side.cq;
    init.send_work_requests = init.receive_work_requests = 32;
    init.send_sges = init.receive_sges = 1;
    side.qp = adapter(index).create_qp(init, status);
    ASSERT_NE(side.qp, nullptr);
  }

  void connect(std::size_t index) {
    transport::QueuePairAttributes to;
    to.path_mtu = verbs::Mtu::b1024;
    to.destination_qp = sides_[1 - index].qp->number;
    to.address.destination = sides_[1 - index].gid;
    using enum QpAttribute;
    const std::pair<QpState, QpAttributeMask> steps[] = {
        {QpState::init, QpAttributeMask(pkey_index) | port | access_flags},
        {QpState::rtr, QpAttributeMask(address_vector) | path_mtu | destination_qp | rq_psn},
        {QpState::rts, sq_psn}};
    for (const auto& [state, mask] : steps) {
      to.state = state;
      must(adapter(index).modify(*sides_[index].qp, to, mask | QpAttribute::state));
    }
  }

  sim::Cluster cluster_;
  Side sides_[2];
};

TEST(ToyTransport, ASendComesBackToItsSender) {
  Pair pair;
  pair.post_receive(0, 1'000);
  pair.post_send(0, 777);
  pair.run();
  const auto completions = pair.completions(0);
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].opcode, verbs::CompletionOpcode::send);
  EXPECT_EQ(completions[1].opcode, verbs::CompletionOpcode::receive);
  EXPECT_EQ(completions[1].byte_length, 777u);
  EXPECT_EQ(std::memcmp(pair.memory(0).data(), pair.memory(0).data() + 8'192, 777), 0);
  EXPECT_TRUE(pair.completions(1).empty()) << "the peer's application does not take part";
}

TEST(ToyTransport, ALossyNetworkLosesEchoes) {
  Pair pair(0.3);
  for (int i = 0; i < 32; ++i) pair.post_receive(0, 100);
  for (int i = 0; i < 32; ++i) pair.post_send(0, 100);
  pair.run();
  std::size_t echoes = 0;
  for (const auto& completion : pair.completions(0)) {
    echoes += completion.opcode == verbs::CompletionOpcode::receive;
  }
  EXPECT_GT(echoes, 0u);
  EXPECT_LT(echoes, 32u);
}

TEST(ToyTransport, OtherOperationsAreRefusedByItsRow) {
  Pair pair;
  verbs::SendRequest request;
  request.opcode = verbs::SendOpcode::write;
  EXPECT_EQ(pair.adapter(0).post_send(pair.qp(0), request), VerbsStatus::invalid_argument);
}

TEST(ToyTransport, AnAdapterWithoutTheLineRefusesTheType) {
  device::Adapter adapter{device::Configuration{}};
  VerbsStatus status{};
  transport::QueuePairInit init;
  init.type = verbs::QpType::experimental;
  init.pd = adapter.objects().create_pd(status);
  init.send_cq = init.receive_cq = adapter.objects().create_cq(8, nullptr, status);
  EXPECT_EQ(adapter.create_qp(init, status), nullptr);
  EXPECT_EQ(status, VerbsStatus::invalid_argument);
}

}  // namespace
}  // namespace tulle
