// These tests expect times to the picosecond that were worked out by hand.
//
// RoCE v2 adds to a payload: BTH 12, ICRC 4, Ethernet 14 + 4, IPv4 20, UDP 8 (stored: 62), and
// preamble 8, gap 12 (on a link: 82). The first or only packet of a WRITE has a RETH of 16 more. An
// acknowledgement is BTH 12, AETH 4, ICRC 4: 66 stored, 86 on a link. InfiniBand adds BTH 12, ICRC
// 4, LRH 8, VCRC 2 (26), and two symbols (28). An acknowledgement has 30, on a link 32.

#include "sim/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "sim/traffic_test.h"

namespace tulle::sim {
namespace {

constexpr std::int64_t gbps = 1'000'000'000;

// Returns a chain: host 0, the switches, host 1.
fabric::Topology chain(std::uint32_t switches, std::int64_t bits_per_second, Time delay) {
  std::string text = "a,b,gbps,delay_ns\n";
  const auto link = [&](std::uint32_t a, std::uint32_t b) {
    text += std::to_string(a) + "," + std::to_string(b) + ",1," +
            std::to_string(delay.to_nanoseconds()) + "\n";
  };
  link(0, 2);
  for (std::uint32_t i = 1; i < switches; ++i) link(1 + i, 2 + i);
  link(1 + switches, 1);
  fabric::Topology topology = must(fabric::from_csv(text, "chain"));
  for (fabric::Link& made : topology.links) made.bits_per_second = bits_per_second;
  return topology;
}

Time one_message(const fabric::Topology& topology, const NetworkSettings& settings,
                 std::uint32_t bytes) {
  Traffic traffic(topology, settings);
  const std::size_t message = traffic.write(0, 1, bytes);
  traffic.run();
  EXPECT_EQ(traffic.network().frames_in_use(), 0u);
  return traffic.end(message);
}

TEST(Physics, OnePacketOverOneSwitch) {
  // 1,000 bytes at 100 Gb/s take 80 ps a byte. The data packet has 1,000 + 82 + 16 = 1,098 bytes
  // and takes 87,840 ps a link. The acknowledgement has 86 bytes and takes 6,880 ps. Links have 1
  // us, the switch 300 ns, and the adapters 200 and 100 ns.
  NetworkSettings settings = plain();
  settings.switch_latency = Time::nanoseconds(300);
  settings.host.send_delay = Time::nanoseconds(200);
  settings.host.receive_delay = Time::nanoseconds(100);
  const fabric::Topology topology = star(2, 100 * gbps);
  constexpr std::int64_t delays = 200'000 + 1'000'000 + 300'000 + 1'000'000 + 100'000;
  EXPECT_EQ(one_message(topology, settings, 1'000).ps,
            (delays + 2 * 87'840) + (delays + 2 * 6'880));
  settings.cut_through = true;  // each frame takes its time on a link once
  EXPECT_EQ(one_message(topology, settings, 1'000).ps, (delays + 87'840) + (delays + 6'880));
}

TEST(Physics, OnePacketOverInfiniBand) {
  // At 400 Gb/s, a byte takes 20 ps: 1,000 + 28 + 16 = 1,044 bytes take 20,880 ps, and 32 bytes
  // take 640 ps.
  NetworkSettings settings = plain(LinkLayer::infiniband);
  settings.switch_latency = Time::nanoseconds(130);
  settings.cut_through = true;
  const fabric::Topology topology = chain(3, 400 * gbps, Time::nanoseconds(20));
  constexpr std::int64_t delays = 4 * 20'000 + 3 * 130'000;
  EXPECT_EQ(one_message(topology, settings, 1'000).ps, (delays + 20'880) + (delays + 640));
  settings.cut_through = false;
  EXPECT_EQ(one_message(topology, settings, 1'000).ps, (delays + 4 * 20'880) + (delays + 4 * 640));
}

TEST(Physics, APacketOfRoceV1IsTwelveBytesLonger) {
  // A GRH has 40 bytes, and the headers of IPv4 and UDP have 28. At 100 Gb/s, twelve bytes take 960
  // ps, on each of two links and both ways.
  NetworkSettings settings = plain();
  const Time by_v2 = one_message(star(2, 100 * gbps), settings, 1'000);
  settings.is_roce_v1 = true;
  EXPECT_EQ(one_message(star(2, 100 * gbps), settings, 1'000).ps, by_v2.ps + 4 * 960);
}

// RoCE v2's connections have UDP source ports of their own, which switches read. All packets of
// RoCE v1 between two hosts look alike to them.
TEST(Physics, AllConnectionsOfTwoHostsShareAPathByRoceV1) {
  const fabric::LinkSettings link{100 * gbps, Time::microseconds(1)};
  for (const bool is_roce_v1 : {false, true}) {
    const fabric::Topology topology = must(fabric::leaf_spine({2, 8, 1, 1, link, link}));
    NetworkSettings settings = plain();
    settings.is_roce_v1 = is_roce_v1;
    Traffic traffic(topology, settings);
    for (int i = 0; i < 32; ++i) traffic.write(0, 1, 4'096);
    std::set<std::uint32_t> ports;
    const std::uint32_t leaf = topology.hosts;
    traffic.network().on_send([&](const Sending& sending) {
      const bool is_data = sending.frame != nullptr && sending.frame->payload_bytes > 0;
      if (is_data && sending.node == leaf) ports.insert(sending.port);
    });
    traffic.run();
    EXPECT_EQ(ports.size() == 1, is_roce_v1) << ports.size();
  }
}

TEST(Physics, ErrorCorrectionDelaysEveryLink) {
  NetworkSettings settings = plain();
  const Time without = one_message(star(2, 100 * gbps), settings, 1'000);
  settings.fec_delay = Time::nanoseconds(100);
  EXPECT_EQ(one_message(star(2, 100 * gbps), settings, 1'000).ps, without.ps + 4 * 100'000);
}

// Sends 1,000 packets of 4,158 bytes at a bit error rate of 10^-6. A share of 1 - (1 -
// 10^-6)^33,264 = 3.27 % of the frames is damaged on each of two links, and everything behind a
// loss is retransmitted.
TEST(Physics, BitErrorsDamageFramesAndNothingElse) {
  for (const LinkLayer layer : {LinkLayer::ethernet, LinkLayer::infiniband}) {
    NetworkSettings settings = plain(layer);
    settings.bit_error_rate = 1e-6;
    const fabric::Topology topology = star(2, 100 * gbps);
    Traffic traffic(topology, settings);
    const std::size_t message = traffic.write(0, 1, 1'000 * 4'096);
    traffic.run();
    EXPECT_FALSE(traffic.end(message).is_never());
    EXPECT_EQ(traffic.network().frames_in_use(), 0u);
    const port::Counters& sent = traffic.network().counters(0, 0);
    EXPECT_GT(sent.frames, 1'000u);
    const double share = static_cast<double>(sent.damaged) / static_cast<double>(sent.frames);
    const double deviation = std::sqrt(0.0327 / static_cast<double>(sent.frames));
    EXPECT_NEAR(share, 0.0327, 4 * deviation);
  }
}

// Losses count data packets only: an acknowledgement is neither lost nor counted.
TEST(Physics, EveryNthDataPacketOfAHostIsLost) {
  NetworkSettings settings = plain();
  settings.lose_every = 40;
  settings.host.recovery.kind = transport::Recovery::selective_repeat;
  settings.host.recovery.window_packets = 1'000;
  const fabric::Topology topology = star(2, 100 * gbps);
  Traffic traffic(topology, settings);
  const std::size_t message = traffic.write(0, 1, 195 * 4'096);
  traffic.run();
  EXPECT_FALSE(traffic.end(message).is_never());
  EXPECT_EQ(traffic.network().counters(0, 0).damaged, 4u) << "of 195, and 4 sent again";
  EXPECT_EQ(traffic.network().counters(1, 0).damaged, 0u);
  EXPECT_EQ(traffic.retransmitted(), 4u);
}

// The sender does not know of the damage. An observer sees the frame as it was sent, marked as
// damaged.
TEST(Physics, ADamagedFrameKeepsItsHeaders) {
  NetworkSettings settings = plain();
  settings.bit_error_rate = 1e-6;
  const fabric::Topology topology = star(2, 100 * gbps);
  Traffic traffic(topology, settings);
  std::uint64_t damaged = 0;
  traffic.network().on_send([&](const Sending& sending) {
    if (sending.frame == nullptr) return;
    wire::Packet packet;
    const port::Frame& frame = *sending.frame;
    const auto decoded = wire::decode(std::span(frame.header).first(frame.header_bytes), packet);
    EXPECT_EQ(decoded.status, wire::DecodeStatus::ok);
    EXPECT_EQ(decoded.header_bytes, frame.header_bytes);
    damaged += frame.damaged;
  });
  traffic.write(0, 1, 1'000 * 4'096);
  traffic.run();
  const std::uint32_t the_switch = 2;
  std::uint64_t counted = 0;
  for (const std::uint32_t host : {0u, 1u}) {
    counted += traffic.network().counters(host, 0).damaged;
    counted += traffic.network().counters(the_switch, static_cast<std::uint16_t>(host)).damaged;
  }
  EXPECT_GT(damaged, 30u);
  EXPECT_EQ(damaged, counted);
}

TEST(Physics, AShortFrameIsPadded) {
  // One byte takes three of padding (IBTA 9.4.1): 4 + 82 + 16 = 102. No RoCE v2 frame is below
  // Ethernet's minimum of 64: an acknowledgement has 66.
  EXPECT_EQ(one_message(star(2, 100 * gbps, Time::zero()), plain(), 1).ps,
            2 * 102 * 80 + 2 * 86 * 80);
}

// Every frame takes whole picoseconds, rounded down where a byte at the rate does not.
struct Case {
  LinkLayer layer;
  std::int64_t bits_per_second;
  std::uint32_t switches;
  bool cut_through;
};

class PhysicsOf : public testing::TestWithParam<Case> {};

TEST_P(PhysicsOf, AMessageOfSeveralPackets) {
  const Case& c = GetParam();
  const bool ethernet = c.layer == LinkLayer::ethernet;
  const std::int64_t around = ethernet ? 82 : 28;
  const auto on_link = [&](std::int64_t bytes) {
    return bytes * 8'000'000'000'000 / c.bits_per_second;
  };
  // 9,193 bytes are 4,096 + 4,096 + 1,001, the last with 3 of padding.
  const std::int64_t first = on_link(4'096 + around + 16), middle = on_link(4'096 + around);
  const std::int64_t last = on_link(1'004 + around);
  const std::int64_t acknowledgement = on_link(ethernet ? 86 : 32);
  NetworkSettings settings = plain(c.layer);
  settings.cut_through = c.cut_through;
  settings.switch_latency = Time{123'457};
  settings.host.send_delay = Time{201'001};
  settings.host.receive_delay = Time{99'999};
  const std::int64_t links = c.switches + 1;
  const std::int64_t delays = 201'001 + 99'999 + links * 500'000 + c.switches * 123'457;
  // The first frame is the longest, and all others follow it closely. With store-and-forward, it
  // takes its time on every link, and the others take theirs on the last.
  const std::int64_t further = c.cut_through ? 0 : links - 1;
  const std::int64_t there = delays + first + middle + last + further * first;
  const std::int64_t back = delays + acknowledgement + further * acknowledgement;
  EXPECT_EQ(
      one_message(chain(c.switches, c.bits_per_second, Time::nanoseconds(500)), settings, 9'193).ps,
      there + back);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const LinkLayer layer : {LinkLayer::ethernet, LinkLayer::infiniband}) {
    // At 54.54 Gb/s (FDR) and 3 Gb/s, a byte takes 146.68... and 2,666.67 ps.
    for (const std::int64_t rate :
         {100 * gbps, 200 * gbps, 400 * gbps, 54'540'000'000l, 3 * gbps}) {
      for (const std::uint32_t switches : {1u, 2u, 3u}) {
        for (const bool cut_through : {false, true}) {
          cases.push_back({layer, rate, switches, cut_through});
        }
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, PhysicsOf, testing::ValuesIn(all_cases()), [](const auto& info) {
  return std::string(info.param.layer == LinkLayer::ethernet ? "roce_" : "infiniband_") +
         std::to_string(info.param.bits_per_second / 1'000'000) + "M_" +
         std::to_string(info.param.switches) + (info.param.cut_through ? "_cut" : "_stored");
});

TEST(Physics, ALongFlowGoesAtLineRateLessHeaders) {
  // For 1,000 packets, the links carry 16 + 1,000 x (4,096 + 82) bytes without a gap between
  // frames.
  for (const std::int64_t rate : {100 * gbps, 200 * gbps, 400 * gbps}) {
    const std::int64_t byte = 8'000'000'000'000 / rate;
    const Time end = one_message(star(2, rate), plain(), 1'000 * 4'096);
    EXPECT_EQ(end.ps, (16 + 1'000 * 4'178 + 4'178 + 16) * byte + 2 * 86 * byte + 4 * 1'000'000);
  }
}

TEST(Physics, CreditsForARoundTripKeepALinkBusy) {
  // At 200 Gb/s, a byte takes 40 ps. A lane's 2,047 blocks hold 31 frames of 65 blocks (4,122
  // bytes), or 5.1 us. The sender may not yet know of a quarter, so it has 3.8 us or more. The
  // round trip takes less than 1 us.
  NetworkSettings settings = plain(LinkLayer::infiniband);
  const Time end =
      one_message(star(2, 200 * gbps, Time::nanoseconds(100)), settings, 1'000 * 4'096);
  // An update of 8 bytes goes back for every 8 frames, or 520 blocks. The last frame completes the
  // 125th group of 8, so that an update leaves before the last acknowledgement on either link.
  EXPECT_EQ(end.ps, (16 + 1'000 * 4'124 + 4'124 + 16) * 40 + 2 * (8 + 32) * 40 + 4 * 100'000);
}

TEST(Physics, ACutThroughSwitchSendsNoBitBeforeItHasIt) {
  // Frames go from 100 Gb/s into 400 Gb/s and back. A switch stores a frame that comes in slower
  // than it would go out. One packet of 1,000 + 98 bytes takes 87,840 ps at 80 ps a byte, and
  // 21,960 at 20. Switch 1 stores it (its fastest port is faster than the input port), and switch 2
  // begins at once.
  fabric::Topology topology = chain(2, 100 * gbps, Time::zero());
  for (fabric::Link& link : topology.links) {
    if (!topology.is_host(link.a) && !topology.is_host(link.b)) link.bits_per_second = 400 * gbps;
  }
  NetworkSettings settings = plain();
  settings.cut_through = true;
  EXPECT_EQ(one_message(topology, settings, 1'000).ps, (87'840 + 87'840) + (6'880 + 6'880));
}

TEST(Physics, TwoMessagesShareTheirHostsLink) {
  // Each packet has 1,098 bytes at 80 ps. The second waits for the first.
  Traffic traffic(star(3, 100 * gbps, Time::zero()), plain());
  const std::size_t a = traffic.write(0, 1, 1'000), b = traffic.write(0, 2, 1'000);
  traffic.run();
  EXPECT_EQ(traffic.end(a).ps, 2 * 87'840 + 2 * 6'880);
  EXPECT_EQ(traffic.end(b).ps, 3 * 87'840 + 2 * 6'880);
}

TEST(Physics, NothingHappensBeforeItsTime) {
  Traffic traffic(star(2, 100 * gbps), plain());
  traffic.write(0, 1, 1'000, Time::microseconds(5));
  traffic.run(Time{4'999'999});
  EXPECT_EQ(traffic.network().events(), 0u);
  EXPECT_EQ(traffic.network().next_event(), Time::microseconds(5));
  traffic.run();
  EXPECT_EQ(traffic.end(0).ps, 5'000'000 + 2 * 87'840 + 2 * 6'880 + 4'000'000);
  EXPECT_TRUE(traffic.network().next_event().is_never() ||
              traffic.network().next_event() > traffic.network().now());
}

TEST(Physics, ASlowLinkIsALink) {
  // At 500 Kb/s, a byte takes 16 us.
  const Time end = one_message(star(2, 500'000, Time::zero()), plain(), 4);
  EXPECT_EQ(end.ps, (2 * 102 + 2 * 86) * 16'000'000ll);
}

// --- sharing ---

// Returns (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has all (Jain et al. 1984).
double jain(const std::vector<double>& shares) {
  double sum = 0, squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return sum * sum / (static_cast<double>(shares.size()) * squares);
}

class Sharing : public testing::TestWithParam<LinkLayer> {};

TEST_P(Sharing, FlowsToOneHostAreTreatedAlike) {
  for (const std::uint32_t senders : {2u, 5u, 16u}) {
    NetworkSettings settings = plain(GetParam());
    settings.switches.xoff_bytes = 50'000;
    Traffic traffic(star(senders + 1, 100 * gbps), settings);
    for (std::uint32_t host = 0; host < senders; ++host) {
      const std::size_t connection = traffic.connect(host, senders);
      for (int i = 0; i < 2'000; ++i) traffic.post(connection, 16'384);
    }
    traffic.run(Time::milliseconds(2));
    std::vector<double> shares;
    double bytes = 0;
    for (const auto& connection : traffic.connections()) {
      shares.push_back(static_cast<double>(connection.ends.size()));
      bytes += shares.back() * 16'384;
    }
    EXPECT_GT(jain(shares), 0.99) << senders << " senders";
    // Together the flows fill the link: 16,384 of 16 + 4 x 4,178 bytes (InfiniBand: 4,124). The
    // start and the end of the 2 ms are lost to delays, and the last messages are incomplete.
    const double of_link = GetParam() == LinkLayer::ethernet ? 16'728.0 : 16'512.0;
    EXPECT_GT(bytes / (0.002 * 12.5e9 * 16'384 / of_link), 0.975) << senders << " senders";
    EXPECT_LE(bytes / (0.002 * 12.5e9 * 16'384 / of_link), 1.0);
  }
}

TEST_P(Sharing, FlowsOfOneHostTakeTurns) {
  Traffic traffic(star(5, 100 * gbps), plain(GetParam()));
  for (std::uint32_t host = 1; host < 5; ++host) {
    const std::size_t connection = traffic.connect(0, host);
    for (int i = 0; i < 1'000; ++i) traffic.post(connection, 16'384);
  }
  traffic.run(Time::milliseconds(2));
  std::vector<double> shares;
  for (const auto& connection : traffic.connections()) {
    shares.push_back(static_cast<double>(connection.ends.size()));
  }
  EXPECT_GT(jain(shares), 0.999);
}

INSTANTIATE_TEST_SUITE_P(All, Sharing, testing::Values(LinkLayer::ethernet, LinkLayer::infiniband),
                         [](const auto& info) {
                           return info.param == LinkLayer::ethernet ? "pfc" : "credits";
                         });

// --- nothing is lost ---

struct Pattern {
  const char* name;
  void (*add)(Traffic& traffic, std::uint32_t hosts);
};

const Pattern patterns[] = {
    {"incast",
     [](Traffic& traffic, std::uint32_t hosts) {
       for (std::uint32_t host = 1; host < hosts; ++host) traffic.write(host, 0, 300'000);
     }},
    {"all_to_all",
     [](Traffic& traffic, std::uint32_t hosts) {
       for (std::uint32_t host = 0; host < hosts; ++host) {
         for (std::uint32_t to = 0; to < hosts; ++to) {
           if (to != host) traffic.write(host, to, 50'000);
         }
       }
     }},
    {"permutation",
     [](Traffic& traffic, std::uint32_t hosts) {
       for (std::uint32_t host = 0; host < hosts; ++host) {
         traffic.write(host, (host * 5 + 3) % hosts, 300'000);
       }
     }},
};

TEST(Lossless, NothingIsLostAndBuffersStayWithinTheirBounds) {
  // For 12 hosts, 5 x + 3 = x has no solution, as 4 x = -3 has none.
  constexpr std::uint32_t hosts = 12;
  const fabric::Topology topologies[] = {
      star(hosts, 100 * gbps), must(fabric::leaf_spine({3,
                                                        2,
                                                        4,
                                                        1,
                                                        {100 * gbps, Time::nanoseconds(300)},
                                                        {100 * gbps, Time::nanoseconds(300)}}))};
  for (const fabric::Topology& topology : topologies) {
    for (const Pattern& pattern : patterns) {
      for (const LinkLayer layer : {LinkLayer::ethernet, LinkLayer::infiniband}) {
        for (const bool cut_through : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << pattern.name << ", " << topology.switches << " switches, layer "
                       << static_cast<int>(layer) << ", cut-through " << cut_through);
          NetworkSettings settings = plain(layer);
          settings.cut_through = cut_through;
          settings.switches.xoff_bytes = 20'000;
          settings.switches.xon_gap_bytes = 8'400;
          // 2 x 1 us at 100 Gb/s are 25,000 bytes. Three frames of 4,210 bytes and a PFC frame of
          // 84 come on top.
          settings.switches.headroom_bytes = 25'000 + 3 * 4'210 + 84;
          Traffic traffic(topology, settings);
          pattern.add(traffic, hosts);
          traffic.run();
          EXPECT_TRUE(traffic.all_done());
          EXPECT_EQ(traffic.retransmitted(), 0u);
          EXPECT_EQ(traffic.network().frames_in_use(), 0u);
          for (std::uint32_t node = hosts; node < topology.nodes(); ++node) {
            const fabric::Switch& at = traffic.network().switch_at(node);
            EXPECT_EQ(at.lossless_drops(), 0u);
            EXPECT_EQ(at.bytes_held(), 0u);
            const std::uint32_t bound = layer == LinkLayer::ethernet
                                            ? 20'000 + settings.switches.headroom_bytes
                                            : settings.switches.lane_buffer_bytes;
            for (std::uint16_t port = 0; port < at.ports(); ++port) {
              EXPECT_LE(at.port(port).counters().ingress_bytes_max, bound);
              EXPECT_EQ(at.port(port).counters().dropped, 0u);
            }
          }
        }
      }
    }
  }
}

TEST(Lanes, AMessageWhoseLevelHasNoLaneIsDroppedWhereItHasNone) {
  for (const bool at_host : {true, false}) {
    NetworkSettings settings = plain(LinkLayer::infiniband);
    port::LaneRow row = port::default_lanes;
    row[3] = port::vl15;
    settings.lanes.switches.emplace_back(row);
    if (at_host) settings.lanes.hosts = row;
    Traffic traffic(star(2, 100 * gbps), settings);
    const std::size_t lost = traffic.write(0, 1, 10'000, Time::zero(), 3);
    const std::size_t other = traffic.write(0, 1, 10'000, Time::zero(), 2);
    traffic.run();
    EXPECT_TRUE(traffic.connections()[lost].failed);
    EXPECT_FALSE(traffic.connections()[other].failed);
    // There are 3 packets, and the same again after each of 7 timeouts.
    const port::Counters& host = traffic.network().counters(0, 0);
    const port::Counters& out = traffic.network().switch_at(2).port(1).counters();
    EXPECT_EQ(host.unmapped, at_host ? 24u : 0u);
    EXPECT_EQ(out.unmapped, at_host ? 0u : 24u);
    EXPECT_EQ(out.dropped, 0u);
    EXPECT_EQ(traffic.network().frames_in_use(), 0u);
    EXPECT_EQ(traffic.network().switch_at(2).bytes_held(), 0u);
  }
}

// One host sends to two, or two hosts send to one. At the port that they share, lanes 0 and 1 have
// shares of 3 to 1 in packets of 4,138 bytes, which are 65 units of 64.
TEST(Lanes, APortIsSharedByWeightAtHostsAndSwitches) {
  for (const bool at_host : {true, false}) {
    NetworkSettings settings = plain(LinkLayer::infiniband);
    const port::VlWeight low[] = {{0, 192}, {1, 64}};
    settings.switches.arbitration = {{}, low, 0};
    Traffic traffic(star(3, 100 * gbps), settings);
    const std::size_t first = at_host ? traffic.connect(0, 1, 0) : traffic.connect(1, 0, 0);
    const std::size_t second = at_host ? traffic.connect(0, 2, 1) : traffic.connect(2, 0, 1);
    for (int i = 0; i < 4'000; ++i) traffic.post(first, 4'096);
    for (int i = 0; i < 4'000; ++i) traffic.post(second, 4'096);
    traffic.run(Time::milliseconds(1));
    const auto done = [&](std::size_t connection) {
      return static_cast<double>(traffic.connections()[connection].ends.size());
    };
    EXPECT_NEAR(done(first) / done(second), 3, 0.02) << "at host " << at_host;
    EXPECT_GT(done(first) + done(second), 2'900) << "of 3,019 that the link carries";
  }
}

TEST(Lossless, WithoutFlowControlAnIncastLosesAndRecovers) {
  NetworkSettings settings = plain();
  settings.switches.flow_control = port::FlowControl::none;
  settings.switches.lossy_queue_bytes = 50'000;
  Traffic traffic(star(9, 100 * gbps), settings);
  for (std::uint32_t host = 1; host < 9; ++host) traffic.write(host, 0, 200'000);
  traffic.run();
  EXPECT_GT(traffic.network().switch_at(9).port(0).counters().dropped, 0u);
  EXPECT_GT(traffic.retransmitted(), 0u);
  EXPECT_TRUE(traffic.all_done());
  EXPECT_EQ(traffic.network().frames_in_use(), 0u);
}

TEST(Lossless, APacketThatWaitedForItsPortIsSentAgainWhenItIsLost) {
  // Host 1 acknowledges a frame from host 0, and posts a request while that acknowledgement leaves.
  // Its packet therefore goes out when the port becomes free. The switch has no room for the
  // packet, and nothing else ever happens at host 1, so that only its timer can help. At 100 Gb/s,
  // without delays:
  //   hosts 2 and 4 send 4,000 + 98 bytes to host 3 at once. Both frames are in the switch at
  //   327,840, and the second, of 4,078 bytes, waits there until 655,680;
  //   host 0's 100 + 98 bytes, sent at 300,000, reach host 1 at 331,680. Its acknowledgement takes
  //   the port until 338,560;
  //   host 1's 1,000 + 98 bytes reach the switch at 426,400, which would then have to hold
  //   4,078 + 1,078.
  NetworkSettings settings = plain();
  settings.switches.flow_control = port::FlowControl::none;
  settings.switches.lossy_queue_bytes = 4'500;
  Traffic traffic(star(5, 100 * gbps, Time::zero()), settings);
  traffic.write(2, 3, 4'000);
  traffic.write(4, 3, 4'000);
  traffic.write(0, 1, 100, Time{300'000});
  const std::size_t lost = traffic.write(1, 3, 1'000, Time{335'000});
  traffic.run();
  EXPECT_EQ(traffic.network().switch_at(5).port(3).counters().dropped, 1u);
  EXPECT_TRUE(traffic.all_done());
  EXPECT_FALSE(traffic.end(lost).is_never());
  EXPECT_EQ(traffic.retransmitted(), 1u);
}

}  // namespace
}  // namespace tulle::sim
