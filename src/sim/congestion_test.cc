// Tests of InfiniBand's congestion control in a network: marks, answers, injection.

#include <gtest/gtest.h>

#include "sim/traffic_test.h"

namespace tulle::sim {
namespace {

constexpr std::int64_t gbps = 1'000'000'000;

NetworkSettings settings_of(bool control) {
  NetworkSettings settings;
  settings.link_layer = LinkLayer::infiniband;
  settings.switches.flow_control = port::FlowControl::credits;
  settings.host.congestion.window.enabled = false;
  settings.host.congestion.packets_per_ack_request = 1;
  if (!control) return settings;
  settings.switches.congestion.enabled = true;
  settings.switches.congestion.marking_rate = 3;
  auto& infiniband = settings.host.congestion.infiniband;
  infiniband.enabled = true;
  infiniband.timer = Time::microseconds(20);
  for (std::uint16_t i = 0; i < 64; ++i) infiniband.table.push_back({2, i});
  return settings;
}

struct Seen {
  std::uint64_t fecn = 0, becn = 0, notifications = 0, becn_in_requests = 0;
};

Seen look(Traffic& traffic) {
  Seen seen;
  traffic.network().on_send([&](const Sending& sending) {
    if (sending.frame == nullptr) return;
    wire::Packet packet;
    ASSERT_EQ(wire::decode(sending.frame->header, packet).status, wire::DecodeStatus::ok);
    // FECN is counted on the last link, and BECN on the first.
    if (sending.node == 4 && packet.fecn) ++seen.fecn;
    if (sending.node != 3 || !packet.becn) return;
    ++seen.becn;
    const wire::Kind kind = wire::info(packet.opcode).kind;
    if (kind == wire::Kind::congestion_notification) ++seen.notifications;
    if (kind == wire::Kind::write) ++seen.becn_in_requests;
  });
  for (std::uint32_t host = 0; host < 3; ++host) traffic.write(host, 3, 2'000'000);
  traffic.run();
  return seen;
}

TEST(InfinibandCongestion, WhatIsMarkedIsAnsweredInAcknowledgements) {
  Traffic traffic(star(4, 100 * gbps), settings_of(true));
  const Seen seen = look(traffic);
  EXPECT_GT(seen.fecn, 20u);
  EXPECT_EQ(seen.fecn, traffic.network().counters(4, 3).marked);
  // Several marked packets that wait for the port share one answer.
  EXPECT_GT(seen.becn, 0u);
  EXPECT_LE(seen.becn, seen.fecn);
  EXPECT_EQ(seen.notifications, 0u);
  EXPECT_EQ(seen.becn_in_requests, 0u);
  std::uint64_t received = 0;
  for (std::uint32_t host = 0; host < 3; ++host) {
    received += traffic.network().adapter(host).counters().congestion_notifications;
  }
  EXPECT_EQ(received, seen.becn);
}

TEST(InfinibandCongestion, SendersKeepTheQueueShorter) {
  std::uint64_t held[2] = {};
  for (const bool control : {false, true}) {
    Traffic traffic(star(4, 100 * gbps), settings_of(control));
    const Seen seen = look(traffic);
    EXPECT_EQ(seen.fecn > 0, control);
    held[control ? 1 : 0] = traffic.network().counters(0, 0).credit_stalls;
  }
  EXPECT_LT(held[1] * 4, held[0]) << "they seldom wait for credits";
}

}  // namespace
}  // namespace tulle::sim
