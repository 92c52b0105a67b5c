// A network of which this process has its own nodes alone.

#include "sim/processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/network.h"
#include "sim/round_message_test.h"

namespace tulle::sim {
namespace {

// One of two processes, which never meet.
class OneOfTwo final : public Processes {
 public:
  explicit OneOfTwo(std::uint32_t number) : number_(number) {}
  std::uint32_t number() const override { return number_; }
  std::uint32_t count() const override { return 2; }
  void exchange_pieces(const std::vector<Pieces>&, std::vector<Bytes>&) override {
    TULLE_CHECK(false);
  }

 private:
  std::uint32_t number_;
};

// Returns settings in which something is set up for each node, and for both ends of its links.
NetworkSettings settings_of(LinkLayer layer, std::uint32_t hosts) {
  NetworkSettings settings;
  settings.link_layer = layer;
  settings.host.stack.cores = 1;
  settings.lose_every = 1'000;
  for (std::uint32_t host = 0; host < hosts; ++host) {
    settings.faults.slow_hosts.push_back({host, 1'000'000'000, Time::microseconds(1)});
  }
  settings.faults.outages.push_back({0, Time::microseconds(1), Time::microseconds(2)});
  settings.faults.bit_errors.push_back({1, 1e-6, Time::microseconds(1)});
  if (layer == LinkLayer::ethernet) {
    settings.switches.flow_control = port::FlowControl::pfc;
    return settings;
  }
  settings.switches.flow_control = port::FlowControl::credits;
  settings.switches.congestion.enabled = true;
  settings.endpoints.enabled = true;
  settings.pkeys.assign(hosts, {Pkey{0x8001}, Pkey{0xFFFF}});
  settings.enforce_inbound = settings.enforce_outbound = true;
  return settings;
}

class NetworkOfProcessesDeathTest : public testing::TestWithParam<LinkLayer> {};

TEST_P(NetworkOfProcessesDeathTest, HasItsOwnNodesAlone) {
  const auto topology = *fabric::leaf_spine({.leaves = 4, .spines = 3, .hosts_per_leaf = 2});
  const auto routes = *fabric::compute_routes(topology, {});
  const NetworkSettings settings = settings_of(GetParam(), topology.hosts);
  OneOfTwo first(0), second(1);
  const Network networks[] = {{topology, routes, settings, nullptr, &first},
                              {topology, routes, settings, nullptr, &second}};
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    const std::uint32_t owner = networks[0].process_of(node);
    ASSERT_LT(owner, 2u);
    const Network &own = networks[owner], &other = networks[1 - owner];
    EXPECT_TRUE(own.owns(node));
    EXPECT_FALSE(other.owns(node));
    EXPECT_EQ(own.counters(node, 0).frames, 0u);
    EXPECT_DEATH(static_cast<void>(other.counters(node, 0)), "internal error");
    if (topology.is_host(node)) {
      EXPECT_EQ(own.adapter(node).counters().packets_sent, 0u);
      EXPECT_DEATH(static_cast<void>(other.adapter(node)), "internal error");
      EXPECT_NE(own.stack(node), nullptr);
      EXPECT_DEATH(static_cast<void>(other.stack(node)), "internal error");
    } else {
      EXPECT_EQ(own.switch_at(node).ports(), topology.ports[node]);
      EXPECT_DEATH(static_cast<void>(other.switch_at(node)), "internal error");
    }
  }
}

// A port may send from the start, whether or not its neighbour is in the same process.
TEST(NetworkOfProcesses, EachPortHasItsNeighboursCredits) {
  const auto topology = *fabric::leaf_spine({.leaves = 4, .spines = 3, .hosts_per_leaf = 2});
  const auto routes = *fabric::compute_routes(topology, {});
  NetworkSettings settings;
  settings.link_layer = LinkLayer::infiniband;
  settings.switches.flow_control = port::FlowControl::credits;
  const Network alone(topology, routes, settings);
  const auto expected = alone.port_at(0, 0).open_lanes(4'096);
  EXPECT_NE(expected, 0u);
  for (const std::uint32_t number : {0u, 1u}) {
    OneOfTwo process(number);
    const Network network(topology, routes, settings, nullptr, &process);
    for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
      for (std::uint16_t port = 0; network.owns(node) && port < topology.ports[node]; ++port) {
        EXPECT_EQ(network.port_at(node, port).open_lanes(4'096), expected) << node << " " << port;
      }
    }
  }
}

// Process 1 of two, which sends this in its first message, and reports no events.
class Sender final : public Processes {
 public:
  explicit Sender(Crossing sends) : sends_(std::move(sends)) {}
  std::uint32_t number() const override { return 0; }
  std::uint32_t count() const override { return 2; }
  void exchange_pieces(const std::vector<Pieces>&, std::vector<Bytes>& from) override {
    from[1] = message_of({++round_, Time::never().ps, Time::never().ps, 1});
    if (round_ == 1) add_share(0, sends_, from[1]);
  }

 private:
  Crossing sends_;
  std::uint64_t round_ = 0;
};

Event event_at(Time at, std::uint32_t end, EventKind kind, std::uint32_t datum) {
  return {.at = at.ps, .datum = datum, .place = end << 4 | static_cast<std::uint32_t>(kind)};
}

// An application that takes any alarm.
class Listener final : public Application {
 public:
  void handle_completions(Time, std::uint32_t) override {}
  void handle_alarm(Time at, std::uint32_t, std::uint32_t) override { alarms.push_back(at); }
  void meet_request(std::uint32_t, std::uint32_t, std::uint32_t) override {}
  bool accepts_alarm(std::uint32_t, std::uint32_t) const override { return true; }
  bool accepts_request(std::uint32_t, std::uint32_t, std::uint32_t) const override { return true; }
  bool goes_on() override { return true; }

  std::vector<Time> alarms;
};

// An event before the round that comes next would be found in a later one, in which it is over.
TEST(NetworkOfProcesses, RefusesEventsBeforeTheNextRound) {
  const auto topology = *fabric::single_switch({4, {100'000'000'000, Time::microseconds(1)}});
  const auto routes = *fabric::compute_routes(topology, {});
  const Time own = Time::microseconds(9) + Time::nanoseconds(500);
  for (const int sent : {5, 8, 9, 12}) {
    Crossing alarm;
    alarm.events.push_back(event_at(Time::microseconds(sent), 0, EventKind::application, 0));
    Sender other(alarm);
    Listener listener;
    Network network(topology, routes, {}, nullptr, &other);
    network.alarm(own, 0, 0);
    const auto play = [&] { network.play(Time::microseconds(40), listener); };
    if (sent < 9) {
      EXPECT_THROW(play(), std::runtime_error) << sent;
      continue;
    }
    play();
    EXPECT_EQ(listener.alarms.size(), 2u) << sent;
    EXPECT_TRUE(std::ranges::is_sorted(listener.alarms)) << sent;
  }
}

// Four hosts at a switch with credits. Hosts 2 and 3 belong to process 1, whose first message comes
// to host 0 and 1 and the switch. Returns what play() fails with, or nothing.
std::string outcome_of(const Crossing& sent) {
  const auto topology = *fabric::single_switch({4, {100'000'000'000, Time::microseconds(1)}});
  const auto routes = *fabric::compute_routes(topology, {});
  NetworkSettings settings;
  settings.link_layer = LinkLayer::infiniband;
  settings.switches.flow_control = port::FlowControl::credits;
  Sender other(sent);
  Listener listener;
  Network network(topology, routes, settings, nullptr, &other);
  network.alarm(Time::microseconds(9), 0, 0);
  try {
    network.play(Time::microseconds(20), listener);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

// Ends of links: the hosts' 0 to 3, and the switch's 4 to 7.
Crossing frames_at(std::uint32_t end, int count) {
  Crossing frames;
  port::Frame frame{};
  frame.source = frame.destination = 3;
  frame.buffer_bytes = 4'096;
  frame.header_bytes = 1;
  for (int i = 0; i < count; ++i) {
    frames.add(event_at(Time::microseconds(9), end, EventKind::arrival, 0), frame);
  }
  return frames;
}

constexpr const char* damaged = "rank 1 has sent a damaged message";

TEST(NetworkOfProcesses, RefusesFramesWithoutCredits) {
  EXPECT_EQ(outcome_of(frames_at(6, 1)), "");
  EXPECT_EQ(outcome_of(frames_at(6, 2'000)), damaged);
}

// A process that could grant this one's ports credits would make them overrun their neighbours.
TEST(NetworkOfProcesses, RefusesWhatDoesNotComeOverALinkFromThere) {
  EXPECT_EQ(outcome_of(frames_at(4, 1)), damaged);
  const std::uint32_t credit =
      port::Control::of(port::CreditUpdate{.lane = 0, .limit = 9}).packed();
  for (const auto& [end, expected] : {std::pair{6u, ""}, {4u, damaged}, {0u, damaged}}) {
    Crossing control;
    control.events.push_back(event_at(Time::microseconds(9), end, EventKind::control, credit));
    EXPECT_EQ(outcome_of(control), expected) << end;
  }
}

INSTANTIATE_TEST_SUITE_P(LinkLayers, NetworkOfProcessesDeathTest,
                         testing::Values(LinkLayer::ethernet, LinkLayer::infiniband));

}  // namespace
}  // namespace tulle::sim
