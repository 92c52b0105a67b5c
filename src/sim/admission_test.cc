#include "sim/admission.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::sim {
namespace {

using port::Control;

// Accepts alarms with token 7 and requests with token 8.
class Told final : public Application {
 public:
  void handle_completions(Time, std::uint32_t) override {}
  void handle_alarm(Time, std::uint32_t, std::uint32_t) override {}
  void meet_request(std::uint32_t, std::uint32_t, std::uint32_t) override {}
  bool accepts_alarm(std::uint32_t, std::uint32_t token) const override { return token == 7; }
  bool accepts_request(std::uint32_t, std::uint32_t token, std::uint32_t) const override {
    return token == 8;
  }
  bool goes_on() override { return true; }
};

// Hosts 0 and 1 are in part 0, with a switch in part 1 between them, and each process has one part.
// The ends of the hosts are 0 and 1, and those of the switch are 2 and 3.
class AdmissionTest : public testing::Test {
 protected:
  static constexpr Time earliest{100};

  explicit AdmissionTest(NetworkSettings settings = with_pfc())
      : nodes(settings, routes, topology) {
    nodes.processes = 2;
    nodes.places = {{0, 0, 0}, {1, 1, 0}, {2, 0, 1}};
    for (std::uint32_t host : {0u, 1u}) {
      nodes.hosts.emplace(host, device::Configuration{});
      LinkEnd& end = nodes.ends.emplace(host);
      end.node = host;
      end.peer = 2;
      end.peer_part = 1;
    }
    frame.destination = 1;
    arrival = event_at(100, 1, EventKind::arrival, 0);
  }
  static NetworkSettings with_pfc() {
    NetworkSettings settings;
    settings.switches.flow_control = port::FlowControl::pfc;
    settings.endpoints.enabled = true;
    return settings;
  }

  bool accepts(const Crossing& crossing, std::uint32_t process = 1) const {
    return Admission(nodes, 0, 0).accepts(process, CrossingView(crossing), earliest, told);
  }
  bool accepts_event(const Event& event) const {
    Crossing crossing;
    crossing.events.push_back(event);
    return accepts(crossing);
  }
  bool accepts_frame() const {
    Crossing crossing;
    crossing.add(arrival, frame);
    return accepts(crossing);
  }
  bool accepts_changed(const std::function<void(port::Frame&)>& change) {
    const port::Frame before = frame;
    change(frame);
    const bool accepted = accepts_frame();
    frame = before;
    return accepted;
  }

  fabric::Topology topology = *fabric::single_switch({.hosts = 2});
  fabric::Routes routes = *fabric::compute_routes(topology, {});
  Nodes nodes;
  Told told;
  port::Frame frame;
  Event arrival;
};

TEST_F(AdmissionTest, AFrameComesOverALinkOfItsSender) {
  EXPECT_TRUE(accepts_frame());
  Crossing crossing;
  crossing.add(arrival, frame);
  EXPECT_FALSE(accepts(crossing, 0));
  arrival.at = 99;
  EXPECT_FALSE(accepts_frame());
  for (const std::uint32_t end : {2u, 4u, 0xFFF'FFFFu}) {  // not of this part, or none at all
    arrival = event_at(100, end, EventKind::arrival, 0);
    EXPECT_FALSE(accepts_frame());
  }
}

TEST_F(AdmissionTest, AFrameNamesWhatThereIs) {
  EXPECT_FALSE(accepts_changed([](port::Frame& changed) { changed.destination = 2; }));
  EXPECT_FALSE(accepts_changed([](port::Frame& changed) { changed.source = 2; }));
  EXPECT_FALSE(accepts_changed([](port::Frame& changed) { changed.via = 1; }));
  EXPECT_FALSE(accepts_changed([](port::Frame& changed) { changed.service_class = 8; }));
  EXPECT_FALSE(accepts_changed([](port::Frame& changed) { changed.header_bytes = 41; }));
  EXPECT_FALSE(accepts_changed([](port::Frame& changed) { changed.headers = 2; }));
  EXPECT_TRUE(accepts_frame());
}

TEST_F(AdmissionTest, SlowHostsHaveEventsOfAnotherKind) {
  nodes.hosts[1].intake = std::make_unique<Intake>(1'000);
  EXPECT_FALSE(accepts_frame());
  arrival = event_at(100, 1, EventKind::slow_arrival, 0);
  EXPECT_TRUE(accepts_frame());
}

TEST_F(AdmissionTest, ThePayloadsHaveTheRoomOfTheirFrames) {
  Crossing crossing;
  crossing.add(arrival, frame);
  crossing.payloads.resize(64);
  EXPECT_FALSE(accepts(crossing));
  EXPECT_TRUE(Admission(nodes, 0, 64).accepts(1, CrossingView(crossing), earliest, told));
}

TEST_F(AdmissionTest, FlowControlIsOfThisNetwork) {
  Control pause;
  pause.kind = Control::Kind::pause;
  Control credit;
  credit.kind = Control::Kind::credit;
  EXPECT_TRUE(accepts_event(event_at(100, 0, EventKind::control, pause.packed())));
  EXPECT_FALSE(accepts_event(event_at(100, 0, EventKind::control, credit.packed())));
}

TEST_F(AdmissionTest, NoOtherEventCrosses) {
  for (const auto kind : {EventKind::fault, EventKind::port_free, EventKind::deadline,
                          EventKind::watchdog, EventKind::taken_in, EventKind::stack_work}) {
    EXPECT_FALSE(accepts_event(event_at(100, 0, kind, 0)));
  }
}

TEST_F(AdmissionTest, TheApplicationKnowsItsAlarmsAndRequests) {
  EXPECT_TRUE(accepts_event(event_at(100, 0, EventKind::application, 7)));
  EXPECT_FALSE(accepts_event(event_at(100, 0, EventKind::application, 8)));
  const auto accepts_request = [this](const Crossing::Request& request) {
    Crossing crossing;
    crossing.requests.push_back(request);
    return accepts(crossing);
  };
  EXPECT_TRUE(accepts_request({1, 8, 0}));
  EXPECT_FALSE(accepts_request({1, 7, 0}));
  EXPECT_FALSE(accepts_request({2, 8, 0}));  // no host
  nodes.places[1].part = 1;
  EXPECT_FALSE(accepts_request({1, 8, 0}));  // of another part
}

TEST_F(AdmissionTest, NoticesNameHosts) {
  const auto accepts_notice = [this](fabric::EndpointNotice notice) {
    Crossing crossing;
    crossing.notices.push_back({event_at(100, 0, EventKind::notice, 0), notice});
    return accepts(crossing);
  };
  fabric::EndpointNotice notice;
  notice.source = 0;
  notice.endpoint = 1;
  EXPECT_TRUE(accepts_notice(notice));
  notice.endpoint = 2;
  EXPECT_FALSE(accepts_notice(notice));
  notice.endpoint = 1;
  nodes.settings.endpoints.enabled = false;
  EXPECT_FALSE(accepts_notice(notice));
}

}  // namespace
}  // namespace tulle::sim
