#include "study/report/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "perfetto.pb.h"

namespace tulle::report {
namespace {

class TraceWriter {
 public:
  // Adds a track below another one; 0 means that it is below none. Returns its number.
  std::uint64_t add_track(const std::string& name, std::uint64_t parent) {
    perfetto::TrackDescriptor& track = *packet().mutable_track_descriptor();
    track.set_uuid(++tracks_);
    track.set_name(name);
    if (parent != 0) track.set_parent_uuid(parent);
    return tracks_;
  }
  std::uint64_t add_counter(const std::string& name, const std::string& unit) {
    perfetto::TrackDescriptor& track = *packet().mutable_track_descriptor();
    track.set_uuid(++tracks_);
    track.set_name(name);
    track.mutable_counter()->set_unit_name(unit);
    return tracks_;
  }
  void add_slice(std::uint64_t track, const std::string& name, Time start, Time end) {
    event(track, start, perfetto::TrackEvent::TYPE_SLICE_BEGIN).set_name(name);
    event(track, end, perfetto::TrackEvent::TYPE_SLICE_END);
  }
  void add_value(std::uint64_t counter, Time at, double value) {
    event(counter, at, perfetto::TrackEvent::TYPE_COUNTER).set_double_counter_value(value);
  }
  std::string bytes() const { return trace_.SerializeAsString(); }

 private:
  // All packets are of one sequence.
  perfetto::TracePacket& packet() {
    perfetto::TracePacket& packet = *trace_.add_packet();
    packet.set_trusted_packet_sequence_id(1);
    return packet;
  }
  perfetto::TrackEvent& event(std::uint64_t track, Time at, perfetto::TrackEvent::Type type) {
    perfetto::TracePacket& made = packet();
    made.set_timestamp(static_cast<std::uint64_t>(at.to_nanoseconds()));
    made.mutable_track_event()->set_type(type);
    made.mutable_track_event()->set_track_uuid(track);
    return *made.mutable_track_event();
  }

  perfetto::Trace trace_;
  std::uint64_t tracks_ = 0;
};

// Slices of one track must not overlap. Computations of a rank do not, and neither do the spans of
// one phase's messages.
void add_spans(const Spans& spans, TraceWriter& writer) {
  std::vector<std::uint64_t> ranks;
  for (const std::string& name : spans.rows) ranks.push_back(writer.add_track(name, 0));
  const auto phase_name = [&](const Span& span) {
    const std::string& name = spans.phases[span.phase];
    return name.empty() ? std::string("messages") : name;
  };
  std::vector<Span> ordered = spans.spans;
  std::ranges::stable_sort(ordered, {}, [](const Span& span) {
    return std::tuple(span.row, span.is_message, span.is_message ? span.phase : 0, span.start);
  });
  // The key is the row and the phase; phase 0 means computations.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> tracks;
  for (const Span& span : ordered) {
    const std::pair key{span.row, span.is_message ? span.phase + 1 : 0};
    auto found = tracks.find(key);
    if (found == tracks.end()) {
      const std::string name =
          span.is_message ? fmt::format("{}: messages", phase_name(span)) : "computation";
      found = tracks.emplace(key, writer.add_track(name, ranks[span.row])).first;
    }
    writer.add_slice(found->second, phase_name(span), span.start, span.end);
  }
}

void add_counters(const Timeline& timeline, TraceWriter& writer) {
  const double seconds = timeline.interval.to_seconds();
  struct Counter {
    std::string_view name, unit;
    double (*value)(const Moment& moment, double seconds);
  };
  constexpr Counter counters[] = {
      {"sent by adapters", "Gb/s",
       [](const Moment& m, double s) { return static_cast<double>(m.bytes_sent) * 8e-9 / s; }},
      {"longest queue of a port", "bytes",
       [](const Moment& m, double) { return static_cast<double>(m.queue_bytes); }},
      {"ports that were paused", "ports",
       [](const Moment& m, double s) { return m.paused.to_seconds() / s; }},
      {"waits for credits", "waits",
       [](const Moment& m, double) { return static_cast<double>(m.credit_stalls); }},
      {"frames marked", "frames",
       [](const Moment& m, double) { return static_cast<double>(m.marked); }},
      {"frames dropped", "frames",
       [](const Moment& m, double) { return static_cast<double>(m.dropped); }}};
  for (const Counter& counter : counters) {
    const bool is_used = std::ranges::any_of(
        timeline.moments, [&](const Moment& moment) { return counter.value(moment, seconds) > 0; });
    if (!is_used) continue;
    const std::uint64_t track =
        writer.add_counter(std::string(counter.name), std::string(counter.unit));
    // A value counts from its event on: that of an interval is at the interval's start.
    Time at = Time::zero();
    for (const Moment& moment : timeline.moments) {
      writer.add_value(track, at, counter.value(moment, seconds));
      at += timeline.interval;
    }
  }
}

}  // namespace

std::string perfetto_trace(const Outcome& outcome) {
  TraceWriter writer;
  add_spans(outcome.spans, writer);
  add_counters(outcome.timeline, writer);
  return writer.bytes();
}

}  // namespace tulle::report
