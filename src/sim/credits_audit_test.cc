// An independent account of InfiniBand's credits. It knows nothing of the network's counts: it
// observes the frames and updates on the links, and holds the network to the rules of IBTA 7.9.
//
// These hold for each direction of a link and each lane, at every instant:
//   blocks sent in all - blocks released in all - blocks lost = blocks under way + blocks held
//   blocks under way + blocks held <= the lane's memory
//   blocks sent in all <= the limit that the sender has been told
// A limit in an update is the sum of the blocks released in all and the memory. When a link is
// initialised again, its totals begin anew, at minus the blocks still held.

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <tuple>

#include "base/random.h"
#include "sim/traffic_test.h"

namespace tulle::sim {
namespace {

class Audit {
 public:
  Audit(const fabric::Topology& topology, Network& network, std::uint32_t lane_blocks)
      : topology_(topology), network_(network), wiring_(topology), lane_blocks_(lane_blocks) {
    network.on_send([this](const Sending& sending) { sent(sending); });
    network.on_loss([this](const Loss& loss) { dropped(loss); });
    network.on_link_change([this](const LinkChange& change) { changed(change); });
  }

  // Compares the switches' counts with these. Must be called between events.
  void compare() {
    settle(network_.now());
    for (auto& [where, lane] : lanes_) {
      const auto [node, port, number] = where;
      const auto& peer = wiring_.peer(node, port);
      ASSERT_EQ(lane.sent - lane.released - lane.lost, lane.under_way_blocks + lane.held);
      if (!topology_.is_host(node)) {
        ASSERT_EQ(network_.switch_at(node).port(port).credits().senders[number].total_sent(),
                  lane.sent % 4'096);
      }
      if (!topology_.is_host(peer.node)) {
        const fabric::Switch& at = network_.switch_at(peer.node);
        ASSERT_EQ(at.port(peer.port).credits().receivers[number].free_blocks(),
                  lane_blocks_ - lane.held);
      }
    }
  }
  void expect_empty() {
    settle(Time::never());
    for (const auto& [where, lane] : lanes_) {
      EXPECT_EQ(lane.sent - lane.lost, lane.released);
      EXPECT_EQ(lane.held, 0u);
    }
  }

  std::uint64_t frames = 0;
  std::uint64_t frames_damaged = 0;
  std::uint64_t frames_lost = 0;     // on links that went down
  std::uint64_t frames_dropped = 0;  // by switches
  std::uint64_t link_ups = 0;        // one for each end
  std::uint64_t updates = 0;
  std::uint64_t most_held = 0;
  std::uint64_t most_sent = 0;  // over one lane

 private:
  // The sender's node, port and lane.
  using Where = std::tuple<std::uint32_t, std::uint16_t, std::uint8_t>;
  struct UnderWay {
    Time arrives;
    std::uint64_t blocks = 0;
    bool damaged = false;
  };
  struct Lane {
    std::uint64_t sent = 0;
    std::uint64_t released = 0;
    std::uint64_t lost = 0;
    std::uint64_t under_way_blocks = 0;
    std::uint64_t held = 0;
    std::uint64_t limit = 0;         // latest limit that the sender knows
    std::deque<UnderWay> under_way;  // frames
    std::deque<std::pair<Time, std::uint64_t>> under_way_limits;
  };

  Lane& lane(std::uint32_t node, std::uint16_t port, std::uint8_t number) {
    auto [at, is_new] = lanes_.try_emplace({node, port, number});
    if (is_new) at->second.limit = lane_blocks_;  // told when the link came up
    return at->second;
  }

  // Settles the arrivals up to now. Hosts take a frame in at once, and switches hold it unless it
  // is damaged.
  void settle(Lane& lane, std::uint32_t receiver, Time now) {
    while (!lane.under_way.empty() && lane.under_way.front().arrives <= now) {
      const std::uint64_t blocks = lane.under_way.front().blocks;
      const bool stays = !topology_.is_host(receiver) && !lane.under_way.front().damaged;
      lane.under_way.pop_front();
      lane.under_way_blocks -= blocks;
      (stays ? lane.held : lane.released) += blocks;
    }
    while (!lane.under_way_limits.empty() && lane.under_way_limits.front().first <= now) {
      lane.limit = lane.under_way_limits.front().second;
      lane.under_way_limits.pop_front();
    }
  }
  void settle(Time now) {
    for (auto& [where, lane] : lanes_) {
      settle(lane, wiring_.peer(std::get<0>(where), std::get<1>(where)).node, now);
    }
  }

  void sent(const Sending& sending) {
    const auto& peer = wiring_.peer(sending.node, sending.port);
    if (sending.frame == nullptr) return told(sending, peer);
    const port::Frame& frame = *sending.frame;
    const std::uint64_t blocks = (frame.buffer_bytes + 63) / 64;
    ++frames;
    if (!topology_.is_host(sending.node)) {
      const auto& from = wiring_.peer(sending.node, frame.in_port);
      Lane& in = lane(from.node, from.port, frame.in_class);
      settle(in, sending.node, sending.now);
      ASSERT_GE(in.held, blocks) << "it is sent before it is there";
      in.held -= blocks;
      in.released += blocks;
    }
    Lane& out = lane(sending.node, sending.port, frame.service_class);
    settle(out, peer.node, sending.now);
    out.sent += blocks;
    const bool damaged = frame.damaged != 0;
    frames_damaged += damaged;
    if (sending.lost) {
      out.lost += blocks;
      ++frames_lost;
    } else {
      out.under_way_blocks += blocks;
      out.under_way.push_back({sending.arrives, blocks, damaged});
    }
    ASSERT_LE(out.sent, out.limit) << "sent beyond what was told";
    ASSERT_LE(out.under_way_blocks + out.held, lane_blocks_) << "more than its memory holds";
    most_held = std::max(most_held, out.under_way_blocks + out.held);
    most_sent = std::max(most_sent, out.sent);
  }

  // An update is about the other direction of its link.
  void told(const Sending& sending, const fabric::Wiring::Peer& peer) {
    ++updates;
    ASSERT_EQ(sending.control.kind, port::Control::Kind::credit);
    Lane& about = lane(peer.node, peer.port, sending.control.credit.lane);
    settle(about, sending.node, sending.now);
    const std::uint64_t limit = about.released + lane_blocks_;
    ASSERT_EQ(sending.control.credit.limit, limit % 4'096);
    if (!sending.lost) about.under_way_limits.push_back({sending.arrives, limit});
  }

  // A frame that a switch drops was held there, and takes no room any more.
  void dropped(const Loss& loss) {
    const std::uint64_t blocks = (loss.frame->buffer_bytes + 63) / 64;
    const auto& from = wiring_.peer(loss.node, loss.frame->in_port);
    Lane& in = lane(from.node, from.port, loss.frame->in_class);
    settle(in, loss.node, loss.now);
    ASSERT_GE(in.held, blocks);
    in.held -= blocks;
    in.released += blocks;
    ++frames_dropped;
  }

  // Each end starts its counts anew, as a sender and as a receiver, when it comes up.
  void changed(const LinkChange& change) {
    if (!change.is_up) return;
    ++link_ups;
    const auto& peer = wiring_.peer(change.node, change.port);
    for (std::uint8_t number = 0; number < port::classes; ++number) {
      Lane& out = lane(change.node, change.port, number);
      settle(out, peer.node, change.now);
      ASSERT_EQ(out.under_way_blocks, 0u) << "it was on a link that was down";
      out.sent = out.lost = out.limit = 0;
      Lane& in = lane(peer.node, peer.port, number);
      settle(in, change.node, change.now);
      in.released = 0 - in.held;
    }
  }

  const fabric::Topology& topology_;
  Network& network_;
  fabric::Wiring wiring_;
  std::uint64_t lane_blocks_;
  std::map<Where, Lane> lanes_;
};

struct Case {
  const char* name;
  fabric::Topology topology;
  std::uint32_t lane_bytes;
  bool cut_through;
  double bit_error_rate = 0;
  bool changes_lanes = false;
  std::uint32_t flaps = 0;  // number of outages of links drawn at random
};

// Returns tables that change the lane at every switch, by ports and level.
fabric::LanePlan changing_lanes(const fabric::Topology& topology) {
  fabric::LanePlan plan;
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    const auto ports = static_cast<std::uint16_t>(topology.ports[node]);
    port::SlToVl& table = plan.switches.emplace_back(port::default_lanes, ports);
    for (std::uint16_t in = 0; in < ports; ++in) {
      for (std::uint16_t out = 0; out < ports; ++out) {
        port::LaneRow row = port::default_lanes;
        for (std::uint8_t& lane : row) lane = (lane + in + 3 * out + node) % 8;
        table.set(in, out, row);
      }
    }
  }
  return plan;
}

// Draws outages. Most last some microseconds, so that frames meet links in every state.
std::vector<fabric::Outage> drawn_outages(const fabric::Topology& topology, std::uint32_t count,
                                          Random& random) {
  std::vector<fabric::Outage> outages;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto link = static_cast<std::uint32_t>(random.below(topology.links.size()));
    const Time from{static_cast<std::int64_t>(random.below(200'000'000))};
    const Time length{
        static_cast<std::int64_t>(random.below(random.chance(0.5) ? 1'000 : 50'000'000))};
    outages.push_back({link, from, from + length + Time{1}});
  }
  return outages;
}

void balances(const Case& c, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << c.name << ", " << c.lane_bytes << " bytes a lane, seed "
                                  << seed);
  NetworkSettings settings;
  settings.link_layer = LinkLayer::infiniband;
  settings.switches.flow_control = port::FlowControl::credits;
  settings.switches.lane_buffer_bytes = c.lane_bytes;
  settings.switch_latency = Time::nanoseconds(130);
  settings.bit_error_rate = c.bit_error_rate;
  settings.cut_through = c.cut_through;
  if (c.changes_lanes) settings.lanes = changing_lanes(c.topology);
  settings.host.receive_delay = Time::nanoseconds(250);
  settings.host.congestion.window.enabled = false;
  settings.host.congestion.packets_per_ack_request = 1;
  Random random(seed);
  settings.faults.outages = drawn_outages(c.topology, c.flaps, random);
  fabric::RecoverySettings recovery;
  recovery.subnet_manager = true;
  recovery.trap_delay = Time::microseconds(1);
  recovery.computing = Time::microseconds(3);
  recovery.programming = Time::nanoseconds(100);
  Traffic traffic(c.topology, settings, fabric::RoutingKind::up_down, &recovery);
  Audit audit(c.topology, traffic.network(), c.lane_bytes / 64);
  const std::uint32_t hosts = c.topology.hosts;
  for (int flow = 0; flow < 120; ++flow) {
    const auto from = static_cast<std::uint32_t>(random.below(hosts));
    // Half of the flows go to one host.
    auto to = random.chance(0.5) ? 0u : static_cast<std::uint32_t>(random.below(hosts));
    if (to == from) to = (to + 1) % hosts;
    const auto bytes =
        static_cast<std::uint32_t>(1 + random.below(random.chance(0.5) ? 400 : 90'000));
    const auto at = static_cast<std::int64_t>(random.below(30'000'000));
    traffic.write(from, to, bytes, Time{at}, static_cast<std::uint8_t>(random.below(4)));
  }
  for (std::uint64_t step = 0; !traffic.network().next_event().is_never(); ++step) {
    traffic.run(traffic.network().next_event());
    if (step % 16 == 0) audit.compare();
    if (testing::Test::HasFatalFailure()) return;
  }
  audit.compare();
  audit.expect_empty();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_EQ(traffic.retransmitted() > 0, c.bit_error_rate > 0 || c.flaps > 0);
  EXPECT_EQ(audit.frames_lost > 0, c.flaps > 0);
  EXPECT_EQ(audit.frames_dropped > 0, c.flaps > 0);
  EXPECT_EQ(audit.link_ups > 0, c.flaps > 0);
  EXPECT_EQ(audit.frames_damaged > 0, c.bit_error_rate > 0);
  EXPECT_GT(audit.frames, 2'000u);
  EXPECT_GT(audit.updates, 100u);
  EXPECT_GT(audit.most_held * 64, c.lane_bytes / 2) << "the memory was put to use";
}

TEST(CreditsAudit, TheBooksBalanceAtEveryInstant) {
  const fabric::LinkSettings link{100'000'000'000, Time::nanoseconds(100)};
  for (const bool cut_through : {false, true}) {
    // Two frames of 4,154 bytes are the least that a scenario allows, and 131,008 bytes the most.
    for (const std::uint32_t lane_bytes : {8'320u, 32'768u, 131'008u}) {
      balances({"star", star(8, 100'000'000'000, Time::nanoseconds(100)), lane_bytes, cut_through},
               1);
      balances({"leaf-spine", must(fabric::leaf_spine({3, 2, 4, 1, link, link})), lane_bytes,
                cut_through},
               2);
      balances({"torus", must(fabric::torus({{3, 3}, 1, link, link})), lane_bytes, cut_through}, 3);
    }
  }
}

TEST(CreditsAudit, TheBooksBalanceWhereFramesChangeLanes) {
  const fabric::LinkSettings link{100'000'000'000, Time::nanoseconds(100)};
  for (const std::uint32_t lane_bytes : {8'320u, 32'768u}) {
    balances({"leaf-spine", must(fabric::leaf_spine({3, 2, 4, 1, link, link})), lane_bytes, true, 0,
              true},
             5);
    balances({"torus", must(fabric::torus({{3, 3}, 1, link, link})), lane_bytes, false, 1e-6, true},
             6);
  }
}

// A damaged frame takes its room all the same, and gives it back.
TEST(CreditsAudit, TheBooksBalanceWhereFramesAreDamaged) {
  const fabric::LinkSettings link{100'000'000'000, Time::nanoseconds(100)};
  for (const bool cut_through : {false, true}) {
    balances({"leaf-spine", must(fabric::leaf_spine({3, 2, 4, 1, link, link})), 16'384, cut_through,
              1e-6},
             4);
  }
}

// Both ends forget the credits that a link owed when it went down, and no room is lost with them.
TEST(CreditsAudit, TheBooksBalanceWhereLinksGoDownAndComeUp) {
  const fabric::LinkSettings link{100'000'000'000, Time::nanoseconds(100)};
  for (const bool cut_through : {false, true}) {
    for (const std::uint32_t lane_bytes : {8'320u, 32'768u}) {
      balances({"star", star(8, 100'000'000'000, Time::nanoseconds(100)), lane_bytes, cut_through,
                0, false, 40},
               7);
      balances({"leaf-spine", must(fabric::leaf_spine({3, 2, 4, 1, link, link})), lane_bytes,
                cut_through, 0, false, 60},
               8);
      balances({"torus", must(fabric::torus({{3, 3}, 1, link, link})), lane_bytes, cut_through,
                1e-6, true, 60},
               9);
    }
  }
}

TEST(CreditsAudit, CountsGoRoundTheirTwelveBits) {
  NetworkSettings settings;
  settings.link_layer = LinkLayer::infiniband;
  settings.switches.flow_control = port::FlowControl::credits;
  settings.host.congestion.window.enabled = false;
  const fabric::Topology topology = star(2, 100'000'000'000);
  Traffic traffic(topology, settings);
  Audit audit(topology, traffic.network(), settings.switches.lane_buffer_bytes / 64);
  traffic.write(0, 1, 10'000 * 4'096);  // 10,000 x 65 blocks: the counts wrap 158 times
  traffic.run();
  audit.compare();
  audit.expect_empty();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_EQ(audit.most_sent, 650'000u);
}

}  // namespace
}  // namespace tulle::sim
