#include "fabric/endpoint_monitor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace tulle::fabric {
namespace {

constexpr std::int64_t link = 100'000'000'000;
constexpr std::uint32_t frame_bytes = 4'178;
constexpr EndpointSettings settings = {.enabled = true};

// Simulates sources and the host's link. Each source sends frames at the rate that it wants or the
// one that it was told, and the link takes the frames one after the other. A notice takes no time.
class Incast {
 public:
  struct Source {
    std::int64_t wants = link;
    std::int64_t told = 0;
    Time until = Time::zero();
    Time next = Time::zero();
    std::uint64_t bytes = 0;
  };

  EndpointMonitor monitor{settings, link, frame_bytes};
  std::map<std::uint32_t, Source> sources;
  std::uint64_t queue_bytes_max = 0;
  int notices = 0;

  void run(Time until) {
    for (;;) {
      auto next = sources.begin();
      for (auto at = sources.begin(); at != sources.end(); ++at) {
        if (at->second.next < next->second.next) next = at;
      }
      auto& [number, source] = *next;
      if (source.next >= until) return;
      send(number, source);
    }
  }
  void forget() {
    for (auto& [number, source] : sources) source.bytes = 0;
    queue_bytes_max = 0;
  }

 private:
  void send(std::uint32_t number, Source& source) {
    const Time now = source.next;
    idle_at_ = std::max(idle_at_, now) + time_at(link);
    const auto waiting =
        static_cast<std::uint64_t>((idle_at_ - now).ps * (link / 1'000'000'000) / 8'000);
    queue_bytes_max = std::max(queue_bytes_max, waiting);
    source.bytes += frame_bytes;
    const auto advice = monitor.arrived(now, number, frame_bytes, waiting);
    if (advice.bits_per_second != 0) {
      ++notices;
      source.told = advice.bits_per_second;
      source.until = now + advice.hold;
    }
    const bool is_limited = now < source.until;
    source.next = now + time_at(is_limited ? std::min(source.wants, source.told) : source.wants);
  }
  static Time time_at(std::int64_t rate) {
    return Time{std::int64_t{frame_bytes} * 8'000'000'000'000 / rate};
  }

  Time idle_at_;
};

TEST(EndpointMonitor, NobodyIsToldWhereNothingWaits) {
  Incast incast;
  incast.sources[3] = {.wants = link / 2};
  incast.sources[70'000] = {.wants = link / 3, .next = Time::nanoseconds(100)};
  incast.run(Time::milliseconds(1));
  EXPECT_EQ(incast.notices, 0);
  EXPECT_FALSE(incast.monitor.is_congested());
  EXPECT_EQ(incast.monitor.contributors(), 2u);
}

TEST(EndpointMonitor, AQueueIsFullBeyondItsThreshold) {
  for (const Time now : {Time::zero(), settings.window}) {  // within a window and at its end
    for (const std::uint64_t beyond : {0u, 1u}) {
      EndpointMonitor monitor(settings, link, frame_bytes);
      const auto advice = monitor.arrived(now, 3, frame_bytes, settings.queue_bytes + beyond);
      EXPECT_EQ(advice.bits_per_second != 0, beyond > 0);
      EXPECT_EQ(monitor.is_congested(), beyond > 0);
    }
  }
}

TEST(EndpointMonitor, AllThatWantMoreHaveTheSame) {
  Incast incast;
  for (std::uint32_t i = 0; i < 20; ++i) incast.sources[i * 16] = {.next = Time{i}};
  incast.run(Time::milliseconds(2));
  incast.forget();
  incast.run(Time::milliseconds(4));
  std::uint64_t all = 0;
  for (const auto& [number, source] : incast.sources) {
    EXPECT_NEAR(static_cast<double>(source.bytes) * 8 / 2e-3, 0.95e11 / 20, 0.95e11 / 20 * 0.15);
    all += source.bytes;
  }
  EXPECT_NEAR(static_cast<double>(all) * 8 / 2e-3, 0.95e11, 0.04e11);
  EXPECT_LT(incast.queue_bytes_max, 150'000u) << "of 20 that could send 25 MB";
  EXPECT_TRUE(incast.monitor.is_congested());
}

TEST(EndpointMonitor, WhoWantsLittleLeavesTheRestToOthers) {
  Incast incast;
  incast.sources[1] = {};
  incast.sources[2] = {};
  incast.sources[3] = {.wants = link / 20};
  incast.run(Time::milliseconds(2));
  incast.forget();
  incast.run(Time::milliseconds(4));
  const auto rate = [&](std::uint32_t source) {
    return static_cast<double>(incast.sources[source].bytes) * 8 / 2e-3 / 1e9;
  };
  EXPECT_NEAR(rate(3), 5, 0.5);
  EXPECT_NEAR(rate(1), 45, 5);
  EXPECT_NEAR(rate(2), 45, 5);
}

TEST(EndpointMonitor, WhoLeavesMakesRoom) {
  Incast incast;
  for (std::uint32_t i = 0; i < 8; ++i) incast.sources[i] = {.next = Time{i}};
  incast.run(Time::milliseconds(1));
  for (std::uint32_t i = 2; i < 8; ++i) incast.sources.erase(i);
  incast.run(Time::milliseconds(2));
  EXPECT_EQ(incast.monitor.contributors(), 2u);
  incast.forget();
  incast.run(Time::milliseconds(3));
  EXPECT_GT(incast.sources[0].bytes * 8, 40'000'000u);
  EXPECT_GT(incast.sources[1].bytes * 8, 40'000'000u);
  // The last source has the link to itself and gets no more notices.
  incast.sources.erase(1);
  incast.sources[0].wants = link / 3;
  incast.run(Time::milliseconds(4));
  const int before = incast.notices;
  incast.run(Time::milliseconds(5));
  EXPECT_FALSE(incast.monitor.is_congested());
  EXPECT_EQ(incast.notices, before);
}

// Sources come and go in any order, and none is counted twice or taken for another.
TEST(EndpointMonitor, SourcesThatGoLeaveTheOthersWhereTheyAre) {
  EndpointMonitor monitor(settings, link, frame_bytes);
  Time now = settings.window;
  const auto pass = [&](std::uint32_t first, std::uint32_t last) {
    for (int i = 0; i < 4; ++i, now += Time::microseconds(100)) {
      for (std::uint32_t source = first; source < last; ++source) {
        monitor.arrived(now, source, frame_bytes, 0);
      }
    }
  };
  pass(0, 16);
  EXPECT_EQ(monitor.contributors(), 16u);
  pass(8, 16);
  EXPECT_EQ(monitor.contributors(), 8u);
  pass(4, 16);
  EXPECT_EQ(monitor.contributors(), 12u);
  pass(12, 13);
  EXPECT_EQ(monitor.contributors(), 1u);
}

// A source that was told does not need to be told the same again soon: its notice holds for four
// windows, and is renewed after half of that.
TEST(EndpointMonitor, ANoticeIsRenewedWhenHalfOfItIsOver) {
  EndpointMonitor monitor(settings, link, frame_bytes);
  constexpr std::uint64_t full = 100'000;
  const auto first = monitor.arrived(Time::zero() + settings.window, 1, frame_bytes, full);
  ASSERT_NE(first.bits_per_second, 0);
  std::vector<Time> told;
  // The queue stays as it is, and so does the share.
  for (Time now = settings.window; now < settings.window + first.hold;
       now += Time::nanoseconds(50)) {
    if (monitor.arrived(now, 1, frame_bytes, full).bits_per_second != 0) told.push_back(now);
  }
  ASSERT_GE(told.size(), 1u);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i] - told[i - 1], Time{first.hold.ps / 2});
  }
}

// Each source sends one to four frames in a window, and there are fewer notices than frames.
TEST(EndpointMonitor, NoticesAreFewerThanFrames) {
  Incast incast;
  for (std::uint32_t i = 0; i < 500; ++i) incast.sources[i] = {.next = Time{i * 1'000}};
  incast.run(Time::milliseconds(10));
  std::uint64_t bytes = 0;
  for (const auto& [number, source] : incast.sources) bytes += source.bytes;
  EXPECT_LT(incast.notices, static_cast<double>(bytes) / frame_bytes * 0.5);
  EXPECT_GT(incast.notices, 500);
}

}  // namespace
}  // namespace tulle::fabric
