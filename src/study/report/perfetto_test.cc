#include "study/report/perfetto.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "perfetto.pb.h"

namespace tulle::report {
namespace {

using perfetto::TrackEvent;

perfetto::Trace trace_of(const Outcome& outcome) {
  perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(perfetto_trace(outcome)));
  return trace;
}

// Returns the tracks by their number: their names, below those of their parents.
std::map<std::uint64_t, std::string> tracks_of(const perfetto::Trace& trace) {
  std::map<std::uint64_t, std::string> names;
  for (const auto& packet : trace.packet()) {
    EXPECT_EQ(packet.trusted_packet_sequence_id(), 1u);
    if (!packet.has_track_descriptor()) continue;
    const auto& track = packet.track_descriptor();
    const bool is_below = track.parent_uuid() != 0;
    names[track.uuid()] = (is_below ? names.at(track.parent_uuid()) + "/" : "") + track.name();
  }
  return names;
}

Outcome job() {
  Outcome outcome;
  outcome.spans = {{"", "forward", "gradients"}, {"GPU 0", "GPU 4"}, {}};
  const auto us = [](std::int64_t time) { return Time::microseconds(time); };
  outcome.spans.spans = {{0, 1, us(5), us(9), false},
                         {0, 1, us(1), us(3), false},
                         {1, 2, us(2), us(6), true},
                         {1, 0, us(4), us(8), true}};
  return outcome;
}

TEST(Perfetto, ARankHasATrackForEachThatMayOverlap) {
  const auto trace = trace_of(job());
  std::vector<std::string> names;
  for (const auto& [number, name] : tracks_of(trace)) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"GPU 0", "GPU 4", "GPU 0/computation",
                                      "GPU 4/messages: messages", "GPU 4/gradients: messages"}));
}

// On each track a slice ends before the next one begins, in the order of time.
TEST(Perfetto, SlicesDoNotOverlap) {
  const auto trace = trace_of(job());
  std::map<std::uint64_t, std::uint64_t> last;
  std::map<std::uint64_t, int> open;
  int slices = 0;
  for (const auto& packet : trace.packet()) {
    if (!packet.has_track_event()) continue;
    const auto& event = packet.track_event();
    EXPECT_GE(packet.timestamp(), last[event.track_uuid()]);
    last[event.track_uuid()] = packet.timestamp();
    open[event.track_uuid()] += event.type() == TrackEvent::TYPE_SLICE_BEGIN ? 1 : -1;
    EXPECT_TRUE(open[event.track_uuid()] == 0 || open[event.track_uuid()] == 1);
    if (event.type() == TrackEvent::TYPE_SLICE_BEGIN) ++slices;
  }
  EXPECT_EQ(slices, 4);
  for (const auto& [track, count] : open) EXPECT_EQ(count, 0) << track;
}

TEST(Perfetto, TheTimelineIsCounters) {
  Outcome outcome;
  outcome.timeline = {Time::microseconds(2),
                      {{1'000, 0, Time::zero(), 0, 0, 0}, {500, 7, Time::zero(), 0, 0, 0}}};
  const auto trace = trace_of(outcome);
  const auto names = tracks_of(trace);
  std::map<std::string, std::vector<std::pair<std::uint64_t, double>>> values;
  for (const auto& packet : trace.packet()) {
    if (!packet.has_track_event()) continue;
    EXPECT_EQ(packet.track_event().type(), TrackEvent::TYPE_COUNTER);
    values[names.at(packet.track_event().track_uuid())].emplace_back(
        packet.timestamp(), packet.track_event().double_counter_value());
  }
  ASSERT_EQ(values.size(), 2u) << "what is never more than nothing has no track";
  const auto& sent = values["sent by adapters"];
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].first, 0u);
  EXPECT_DOUBLE_EQ(sent[0].second, 4);
  EXPECT_EQ(sent[1].first, 2'000u);
  EXPECT_DOUBLE_EQ(sent[1].second, 2);
  EXPECT_EQ(values["longest queue of a port"][1].second, 7);
}

TEST(Perfetto, NothingIsAnEmptyTrace) { EXPECT_EQ(perfetto_trace({}), ""); }

}  // namespace
}  // namespace tulle::report
