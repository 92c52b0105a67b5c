#include "sim/cluster.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tulle::sim {
namespace {

using verbs::AccessFlags;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::SendOpcode;
using verbs::VerbsStatus;

void must(VerbsStatus status) { TULLE_CHECK(status == VerbsStatus::ok); }

// Two nodes and a reliable connection between them.
class Pair {
 public:
  explicit Pair(const Settings& settings) : cluster(settings) {
    for (int side = 0; side < 2; ++side) {
      device::Configuration configuration;
      configuration.seed = static_cast<std::uint64_t>(side);
      configuration.first_qp = QpNumber(0x100);  // both nodes use the same numbers
      gids[side] = Gid::from_ipv4(0x0A00'0001 + side);
      nodes[side] = cluster.add(configuration, {&gids[side], 1});
      open(side);
    }
    for (int side = 0; side < 2; ++side) connect(side);
  }

  void post(int side, SendOpcode opcode, std::uint32_t bytes, std::uint64_t wr_id) {
    const verbs::Sge sge{0, bytes, regions[side]->lkey()};
    verbs::SendRequest request;
    request.wr_id = wr_id;
    request.opcode = opcode;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = 32'768;
    request.rkey = regions[1 - side]->rkey();
    request.compare_add = 3;
    must(cluster.adapter(nodes[side]).post_send(*qps[side], request));
    cluster.attend(nodes[side]);
  }
  void post_receive(int side, std::uint32_t bytes) {
    const verbs::Sge sge{16'384, bytes, regions[side]->lkey()};
    must(cluster.adapter(nodes[side]).post_receive(*qps[side], {7, {&sge, 1}}));
  }
  void run() {
    while (cluster.step().kind != Happening::Kind::nothing) {
    }
  }
  std::vector<verbs::Completion> completions(int side) {
    std::vector<verbs::Completion> out(cqs[side]->size());
    cqs[side]->poll(out);
    return out;
  }

  Cluster cluster;
  Gid gids[2];
  NodeNumber nodes[2];
  std::vector<std::byte> memory[2];
  verbs::MemoryRegion* regions[2] = {};
  verbs::CompletionQueue* cqs[2] = {};
  transport::QueuePair* qps[2] = {};

 private:
  void open(int side) {
    device::Adapter& adapter = cluster.adapter(nodes[side]);
    memory[side].resize(65'536);
    for (std::size_t i = 0; i < memory[side].size(); ++i) {
      memory[side][i] = static_cast<std::byte>(i * 31 + i / 256 + side);
    }
    VerbsStatus status{};
    auto* pd = adapter.objects().create_pd(status);
    const auto access = AccessFlags::from_bits(1 | 2 | 4 | 8);
    regions[side] = adapter.objects().register_memory(*pd, memory[side].data(), memory[side].size(),
                                                      0, access, status);
    cqs[side] = adapter.objects().create_cq(64, nullptr, status);
    transport::QueuePairInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cqs[side];
    init.send_work_requests = init.receive_work_requests = 16;
    init.send_sges = init.receive_sges = 1;
    qps[side] = adapter.create_qp(init, status);
  }
  void connect(int side) {
    device::Adapter& adapter = cluster.adapter(nodes[side]);
    transport::QueuePairAttributes a;
    a.access = AccessFlags::from_bits(2 | 4 | 8);
    a.path_mtu = verbs::Mtu::b1024;
    a.destination_qp = qps[1 - side]->number;
    a.address.destination = gids[1 - side];
    a.max_rd_atomic = a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    a.timeout = 10;
    a.retry_count = a.rnr_retry = 7;
    using enum QpAttribute;
    const std::pair<QpState, QpAttributeMask> steps[] = {
        {QpState::init, QpAttributeMask(pkey_index) | port | access_flags},
        {QpState::rtr, QpAttributeMask(address_vector) | path_mtu | destination_qp | rq_psn |
                           max_dest_rd_atomic | min_rnr_timer},
        {QpState::rts,
         QpAttributeMask(timeout) | retry_count | rnr_retry | sq_psn | max_rd_atomic}};
    for (const auto& [to, mask] : steps) {
      a.state = to;
      must(adapter.modify(*qps[side], a, mask | QpAttribute::state));
    }
  }
};

void everything_arrives(const Settings& settings) {
  Pair pair(settings);
  std::uint64_t word = 0;
  std::memcpy(&word, &pair.memory[1][32'768], sizeof word);
  pair.post_receive(1, 8'000);
  pair.post(0, SendOpcode::fetch_add, 8, 1);
  pair.run();
  std::uint64_t original = 0, sum = 0;
  std::memcpy(&original, pair.memory[0].data(), sizeof original);
  std::memcpy(&sum, &pair.memory[1][32'768], sizeof sum);
  EXPECT_EQ(original, word);
  EXPECT_EQ(sum, word + 3);
  pair.post(0, SendOpcode::send, 5'000, 2);
  pair.post(0, SendOpcode::write, 6'000, 3);
  pair.run();
  EXPECT_EQ(std::memcmp(pair.memory[0].data(), &pair.memory[1][16'384], 5'000), 0);
  EXPECT_EQ(std::memcmp(pair.memory[0].data(), &pair.memory[1][32'768], 6'000), 0);
  pair.post(1, SendOpcode::read, 7'000, 4);
  pair.run();
  EXPECT_EQ(std::memcmp(&pair.memory[0][32'768], pair.memory[1].data(), 7'000), 0);
  for (int side = 0; side < 2; ++side) {
    const auto completions = pair.completions(side);
    EXPECT_EQ(completions.size(), side == 0 ? 3u : 2u);
    for (const auto& each : completions) {
      EXPECT_EQ(each.status, verbs::CompletionStatus::success);
    }
  }
}

TEST(Cluster, PerfectNetwork) {
  for (const Carriage carriage : {Carriage::datagrams, Carriage::packets}) {
    for (const bool known : {true, false}) {
      Settings settings;
      settings.carriage = carriage;
      settings.identification_known = known;
      everything_arrives(settings);
    }
  }
}

TEST(Cluster, BadNetwork) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Settings settings;
    settings.seed = seed;
    settings.faults.drop = settings.faults.duplicate = settings.faults.corrupt = 0.05;
    settings.faults.reorder = 0.2;
    everything_arrives(settings);
  }
}

TEST(Cluster, TimeIsTheLinks) {
  Settings settings;
  settings.link_bits_per_second = 1'000'000'000;
  settings.link_delay = Time::microseconds(10);
  Pair pair(settings);
  pair.post(0, SendOpcode::write, 4, 1);
  while (pair.cqs[0]->size() == 0) {
    ASSERT_NE(pair.cluster.step().kind, Happening::Kind::nothing);
  }
  // The request has BTH, RETH, 4 bytes and ICRC, and the response BTH, AETH and ICRC. Each has 86
  // bytes of UDP, IP and Ethernet around it.
  const std::int64_t bytes = (12 + 16 + 4 + 4 + 86) + (12 + 4 + 4 + 86);
  EXPECT_EQ(pair.cluster.now(), Time::nanoseconds(8 * bytes) + Time::microseconds(20));
}

TEST(Cluster, AlarmsAndTheEnd) {
  Pair pair({});
  pair.cluster.alarm(Time::microseconds(2), pair.nodes[1], 77);
  pair.cluster.alarm(Time::microseconds(1), pair.nodes[0], 76);
  for (const std::uint64_t token : {76u, 77u}) {
    const Happening happening = pair.cluster.step();
    EXPECT_EQ(happening.kind, Happening::Kind::alarm);
    EXPECT_EQ(happening.token, token);
  }
  EXPECT_EQ(pair.cluster.now(), Time::microseconds(2));
  EXPECT_EQ(pair.cluster.step().kind, Happening::Kind::nothing);
}

TEST(Cluster, ACutCableIsForGood) {
  Pair pair({});
  pair.cluster.cut_off(pair.nodes[1]);
  pair.post(0, SendOpcode::write, 4, 1);
  pair.run();
  const auto completions = pair.completions(0);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, verbs::CompletionStatus::retry_exceeded_error);
}

TEST(Cluster, FaultsEnd) {
  Settings settings;
  settings.faults.drop = 1;
  settings.faults_end = Time::milliseconds(3);
  Pair pair(settings);
  pair.post(0, SendOpcode::write, 4, 1);
  pair.run();
  EXPECT_EQ(pair.completions(0)[0].status, verbs::CompletionStatus::success);
  EXPECT_GE(pair.cluster.now(), settings.faults_end);
  EXPECT_EQ(pair.cluster.faults().dropped, 1u);
}

TEST(Cluster, GhostMemory) {
  Settings settings;
  settings.carriage = Carriage::packets;
  Pair pair(settings);
  for (auto* region : pair.regions) region->memory = nullptr;
  pair.post(0, SendOpcode::write, 8'000, 1);
  pair.post(0, SendOpcode::read, 8'000, 2);
  pair.run();
  EXPECT_EQ(pair.completions(0).size(), 2u);
}

}  // namespace
}  // namespace tulle::sim
