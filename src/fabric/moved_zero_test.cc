// When its clock's zero moves (live/clock.h) changes nothing that a fabric does: two fabrics live
// the same life, and the clock of one moves its zero again and again.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/built_test.h"
#include "fabric/machines/spread_fabric_test.h"
#include "fabric/managed_subnet_test.h"
#include "fabric/random_topology_test.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

// A day in a driver. Here, nothing waits for more than some seconds.
constexpr std::array<Time, 2> kept_times = {Time::never(), Time::seconds(30)};

std::string numbers(const std::vector<std::uint64_t>& of) {
  std::string text;
  for (const std::uint64_t number : of) text += std::to_string(number) + ' ';
  return text;
}

std::string life_of_a_subnet(std::uint64_t seed, Time kept) {
  ManagedSubnet all(random_topology(seed));
  all.kept = kept;
  all.random = Random(seed);
  all.loss = 0.2;
  std::vector<std::uint64_t> seen;
  const std::size_t links = all.subnet.topology().links.size();
  for (int i = 0; i < 12; ++i) {
    const auto link = static_cast<std::uint32_t>(all.random.below(links));
    all.subnet.set_cut(all.now, link, !all.subnet.is_cut(link));
    all.run_for(Time::milliseconds(static_cast<std::int64_t>(all.random.below(9'000))));
    const auto& manager = all.managers.manager(0);
    seen.insert(seen.end(), {manager.info().activity, manager.sweeps(), manager.errors(),
                             all.subnet.discarded(), all.subnet.link_changes()});
  }
  for (std::uint32_t node = 0; node < all.subnet.topology().nodes(); ++node) {
    seen.push_back(all.lid(node));
  }
  return numbers(seen);
}

TEST(MovedZeroTest, ManagersDoTheSame) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EXPECT_EQ(life_of_a_subnet(seed, kept_times[0]), life_of_a_subnet(seed, kept_times[1]));
  }
}

std::uint32_t slot_of(QpNumber qp) { return qp.value >> 17; }

std::vector<std::byte> packet_between(SpreadFabric& spread, std::uint32_t from, std::uint32_t to) {
  wire::LocalPath path;
  path.local.source = Lid(spread.lid(from));
  path.local.destination = Lid(spread.lid(to));
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::uc, wire::Operation::send_only);
  packet.destination_qp = QpNumber(1u << 17 | 5);
  std::vector<std::byte> bytes(8 + wire::header_bytes(packet.opcode) + 2'048);
  const std::size_t link = port::encode_link_headers(path, bytes.size() - 8, bytes);
  wire::encode(packet, std::span(bytes).subspan(link));
  return bytes;
}

// Machines come and go, datagrams are lost, and a program stops to take its packets. The lives are
// longer than what is kept.
std::string life_of_machines(std::uint64_t seed, Time kept) {
  SpreadFabric spread(built(from_csv("a,b,gbps,delay_ns\n0,4,100,1\n1,4,100,1\n2,5,100,1\n"
                                     "3,5,100,1\n4,5,100,1\n",
                                     "test")),
                      2, slot_of);
  spread.kept = kept;
  spread.random = Random(seed);
  Random random(seed);
  std::vector<std::uint64_t> seen;
  std::uint64_t taken = 0;
  const SubnetTraffic::Program from{0, 1}, to{2, 1};
  for (const auto program : {from, to}) spread.at(program.host).traffic.attach(spread.now, program);
  spread.run_for(Time::seconds(33));
  for (int i = 0; i < 16; ++i) {
    const bool takes = random.chance(0.7);
    const auto bytes = packet_between(spread, from.host, to.host);
    int to_send = 200;
    spread.each_turn = [&] {
      SubnetTraffic& sender = spread.at(from.host).traffic;
      while (to_send > 0 && sender.offer(spread.now, from, bytes) == SubnetTraffic::Offer::taken) {
        --to_send;
      }
      SubnetTraffic& traffic = spread.at(to.host).traffic;
      while (takes && !traffic.take(spread.now, to).empty()) ++taken;
    };
    spread.loss = random.chance(0.5) ? 0.1 : 0;
    spread.mute = random.chance(0.2) ? 1 : 0xFFFF;
    spread.standing_still = random.chance(0.2) ? 1 : 0xFFFF;
    spread.run_for(Time::milliseconds(static_cast<std::int64_t>(random.below(2'000))));
    if (spread.at(to.host).traffic.is_given_up(to)) {
      spread.at(to.host).traffic.resume(spread.now, to);
    }
    const auto& tunnels = spread.machines[0]->tunnels;
    const auto traffic = spread.machines[1]->traffic.counters();
    seen.insert(seen.end(), {taken, tunnels.counters().received, tunnels.counters().sent,
                             static_cast<std::uint64_t>(tunnels.state(1)), traffic.delivered,
                             traffic.overdue, traffic.lost});
  }
  EXPECT_GT(taken, 100u);
  return numbers(seen);
}

TEST(MovedZeroTest, MachinesDoTheSame) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EXPECT_EQ(life_of_machines(seed, kept_times[0]), life_of_machines(seed, kept_times[1]));
  }
}

}  // namespace
}  // namespace tulle::fabric
