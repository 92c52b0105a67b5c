#include "rdma/transport/congestion/control.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rdma/transport/congestion/dcqcn.h"
#include "rdma/transport/congestion/infiniband.h"

namespace tulle::transport::congestion {
namespace {

constexpr auto always = [] { return true; };
const Gid host = Gid::from_ipv4(2);

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }

// DCQCN on a link of 100 Gb/s. The byte counter is too large to matter in these tests.
DcqcnSettings paper() {
  DcqcnSettings settings;
  settings.enabled = true;
  settings.line_bits_per_second = 100'000'000'000;
  settings.increase_bytes = 1'000'000'000;
  return settings;
}

// At 8 Gb/s a byte takes a nanosecond; the delays are 0, 1, 2 … packets.
InfinibandSettings steps(std::size_t entries) {
  InfinibandSettings settings;
  settings.enabled = true;
  settings.line_bits_per_second = 8'000'000'000;
  settings.timer = us(10);
  settings.table.resize(entries);
  for (std::size_t i = 0; i < entries; ++i) {
    settings.table[i].multiplier = static_cast<std::uint16_t>(i);
  }
  return settings;
}

Settings with(const DcqcnSettings& dcqcn) {
  Settings settings;
  settings.dcqcn = dcqcn;
  return settings;
}

Settings with(const InfinibandSettings& infiniband) {
  Settings settings;
  settings.infiniband = infiniband;
  return settings;
}

// Congestion control of a queue pair that sends to `host`.
Control started(const Settings& settings, const Shared& shared = {}) {
  Control control;
  control.start(settings, make_rate_control(settings, shared, host, 0));
  return control;
}

TEST(Control, SpacesPacketsAtTheRate) {
  const Settings settings = with(paper());
  Control control = started(settings);
  EXPECT_TRUE(control.may_send(us(0), always));
  control.sent(us(0), 5'000);
  EXPECT_TRUE(control.may_send(us(0), always)) << "at line rate the port paces";
  control.notified(us(0));  // 50 Gb/s
  control.sent(us(0), 5'000);
  // 5,000 bytes take 800 ns at 50 Gb/s.
  EXPECT_FALSE(control.may_send(Time::picoseconds(799'999), always));
  EXPECT_EQ(control.next_deadline(), Time::nanoseconds(800));
  EXPECT_TRUE(control.may_send(Time::nanoseconds(800), always));
  EXPECT_TRUE(control.next_deadline().is_never());
}

TEST(Control, ARateOfAFewBitsASecondIsARate) {
  DcqcnSettings slow = paper();
  slow.line_bits_per_second = 1'500;
  slow.least_bits_per_second = 1;
  const Settings settings = with(slow);
  Control control = started(settings);
  control.notified(us(0));  // 750 b/s
  control.sent(us(0), 750);
  EXPECT_FALSE(control.may_send(Time::milliseconds(7'999), always));
  EXPECT_TRUE(control.may_send(Time::seconds(8), always));
}

// Two queue pairs that send to one host share the rate limit of that host until it expires.
TEST(Control, KeepsToWhatMayBeSentToAHostInAll) {
  Settings settings;
  settings.endpoint_limits = true;
  EndpointLimits limits;
  const Shared shared{.endpoint_limits = &limits};
  Control one = started(settings, shared), other = started(settings, shared), elsewhere;
  const Gid other_host = Gid::from_ipv4(3);
  elsewhere.start(settings, make_rate_control(settings, shared, other_host, 0));
  EndpointLimit& limit = limits[host];
  Time now = Time::microseconds(1);
  EXPECT_TRUE(one.may_send(now, always));
  one.sent(now, 5'000);
  EXPECT_TRUE(other.may_send(now, always)) << "no limit yet";
  limit.limit(now, 10'000'000'000, Time::microseconds(100));
  one.sent(now, 5'000);  // 4 us at 10 Gb/s
  EXPECT_FALSE(one.may_send(now, always));
  EXPECT_FALSE(other.may_send(now + Time::nanoseconds(3'999), always));
  EXPECT_EQ(other.next_deadline(), now + Time::microseconds(4));
  EXPECT_TRUE(elsewhere.may_send(now, always));
  now += Time::microseconds(4);
  other.handle_deadline(now);
  EXPECT_TRUE(other.may_send(now, always));
  other.sent(now, 5'000);
  EXPECT_FALSE(one.may_send(now, always));
  EXPECT_EQ(one.next_deadline(), now + Time::microseconds(4));
  now += Time::microseconds(200);
  EXPECT_TRUE(one.may_send(now, always));
  one.sent(now, 5'000);
  EXPECT_TRUE(other.may_send(now, always)) << "what it was told holds no more";
}

TEST(InfinibandRate, AQueuePairWaitsBehindItsOwnPackets) {
  const Settings settings = with(steps(8));
  Control control = started(settings);
  control.notified(us(0));
  ASSERT_TRUE(control.may_send(us(1), always));
  control.sent(us(1), 1'000);
  EXPECT_FALSE(control.may_send(us(3) - Time{1}, always));
  EXPECT_EQ(control.next_deadline(), us(3));
  EXPECT_TRUE(control.may_send(us(3), always));
}

TEST(InfinibandRate, QueuePairsOfAServiceLevelTakeTurns) {
  const Settings settings = with(steps(8));
  std::array<Injection, 16> flows;
  const Shared shared{.injections = flows.data()};
  Control a = started(settings, shared), b = started(settings, shared),
          idle = started(settings, shared);
  a.notified(us(0));  // notifies the flow, which all three share
  ASSERT_TRUE(a.may_send(us(0), always));
  a.sent(us(0), 1'000);
  EXPECT_TRUE(idle.may_send(us(1), [] { return false; })) << "who has nothing takes no turn";
  EXPECT_FALSE(b.may_send(us(1), always));
  EXPECT_EQ(b.next_deadline(), us(2));
  EXPECT_FALSE(a.may_send(us(1), always));
  EXPECT_EQ(a.next_deadline(), us(4)) << "behind the other's turn";
  EXPECT_TRUE(b.may_send(us(2), always));
  b.sent(us(2), 1'000);
  EXPECT_FALSE(b.may_send(us(2), always));
  EXPECT_EQ(b.next_deadline(), us(6));
  EXPECT_TRUE(a.may_send(us(4), always));
}

TEST(InfinibandRate, WithoutControlNobodyWaits) {
  const Settings settings;
  Control control = started(settings);
  control.notified(us(0));
  control.sent(us(0), 4'096);
  EXPECT_TRUE(control.may_send(us(0), always));
  EXPECT_EQ(control.next_deadline(), Time::never());
}

// Returns the times at which 300 packets leave. `rebase_every` packets, the clock moves its zero by
// one second (0: never). Nothing that counts here lasts that long.
std::vector<Time> departures(const Settings& settings, EndpointLimits& limits, int rebase_every) {
  std::array<Injection, 16> flows;
  const bool has_flows = settings.infiniband.by_service_level;
  Control control = started(
      settings, {.endpoint_limits = &limits, .injections = has_flows ? flows.data() : nullptr});
  constexpr Time kept = Time::seconds(1);
  Time now = Time::seconds(2), behind;  // the control's clock shows now - behind
  std::vector<Time> left;
  for (int i = 0; i < 300; ++i) {
    if (rebase_every != 0 && i % rebase_every == 0) {
      const Time by = now - behind - kept;
      control.rebase(by);
      for (Injection& flow : flows) flow.rebase(by);
      for (auto& [to, limit] : limits) limit.rebase(by);
      behind += by;
    }
    if (i % 50 == 10) control.notified(now - behind);
    if (i == 20 && !limits.empty()) {
      limits.begin()->second.limit(now - behind, 10'000'000'000, us(300));
    }
    if (!control.may_send(now - behind, always)) {
      now = control.next_deadline() + behind;
      control.handle_deadline(now - behind);
      EXPECT_TRUE(control.may_send(now - behind, always));
    }
    control.sent(now - behind, 4'096);
    left.push_back(now);
    now += Time::nanoseconds(50);
  }
  return left;
}

TEST(Control, AClockThatMovesItsZeroChangesNoRate) {
  Settings by_endpoint;
  by_endpoint.endpoint_limits = true;
  InfinibandSettings shared = steps(8);
  shared.by_service_level = true;
  for (const Settings& settings : {with(paper()), with(steps(8)), with(shared), by_endpoint}) {
    EndpointLimits steady, moved;
    const auto expected = departures(settings, steady, 0);
    EXPECT_GT(expected.back() - expected.front(), us(16)) << "the rate is not limited";
    EXPECT_EQ(departures(settings, moved, 3), expected);
  }
}

}  // namespace
}  // namespace tulle::transport::congestion
