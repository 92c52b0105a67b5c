#pragma once

// Moves the switches of a part: hands them the frames that arrive, lets their ports send, and runs
// their watchdogs.

#include <cstdint>
#include <span>

#include "base/prefetch.h"
#include "fabric/switch.h"
#include "rdma/port/frame.h"
#include "rdma/port/port.h"
#include "sim/calendar.h"
#include "sim/event_kind.h"
#include "sim/frame_store.h"
#include "sim/links.h"
#include "sim/network_events.h"
#include "sim/nodes.h"

namespace tulle::sim {

class SwitchDriver {
 public:
  // It moves the switches of the part with that number. All of these must outlive it.
  SwitchDriver(Nodes& nodes, const Observers& observers, std::uint32_t part, Calendar& calendar,
               FrameStore& frames, Links& links);

  // Lets an event happen. Throws std::runtime_error, with one line, if it shows that another
  // process does not keep to credits.
  void handle(Event event, LinkEnd& end) {
    switch (kind_of(event)) {
      case EventKind::arrival:
        return arrive(end, event.datum);
      case EventKind::port_free:
        end.waits_for &= LinkEnd::its_link;
        return kick(at(end.node), end);
      default:
        return handle_rare(event, end);
    }
  }

  // Fetches what the next turn of a switch will touch into the processor's cache.
  void prefetch(std::uint32_t node);
  // Fetches the frames at the heads of a switch's queues, whose turn has begun.
  void prefetch_heads(std::uint32_t node) const;

 private:
  fabric::Switch& at(std::uint32_t node) const { return switches_[node - first_]; }
  void arrive(LinkEnd& end, port::FrameRef frame);
  void discard(LinkEnd& end, port::FrameRef frame);
  void let_go(std::uint32_t node, port::FrameRef frame);
  void check_credits(const LinkEnd& end, const port::Frame& frame) const;
  void kick(fabric::Switch& at, LinkEnd& end);
  // Lets the ports of a switch send that have messages to send.
  void kick_talkers(fabric::Switch& at, std::uint32_t node) {
    if (at.has_talkers()) [[unlikely]]
      kick_all_talkers(at, node);
  }
  void kick_all_talkers(fabric::Switch& at, std::uint32_t node);
  void handle_rare(Event event, LinkEnd& end);
  void handle_fault(LinkEnd& end, const FaultAction& action);
  void go_down(LinkEnd& end);
  void watch(LinkEnd& end);
  void watch_heads(LinkEnd& end);
  void plan_head_watch(LinkEnd& end);

  const Nodes& nodes_;
  const Observers& observers_;
  const NetworkSettings& settings_;
  std::span<fabric::Switch> switches_;  // a view of the nodes, since an event needs it at once
  std::uint32_t first_;                 // number of the first switch among the nodes
  std::uint32_t part_;
  bool has_strangers_;  // other processes simulate nodes, too
  bool has_head_lifetimes_;
  Calendar& calendar_;
  FrameStore& frames_;
  Links& links_;
};

inline void SwitchDriver::arrive(LinkEnd& end, port::FrameRef ref) {
  if (frames_[ref].damaged != 0) [[unlikely]]
    return discard(end, ref);
  if (has_strangers_) [[unlikely]]
    check_credits(end, frames_[ref]);
  fabric::Switch& at = this->at(end.node);
  const std::uint16_t number = at.receive(calendar_.now(), end.number, ref);
  if (number == fabric::Switch::no_port) [[unlikely]] {
    let_go(end.node, ref);
  } else {
    LinkEnd& out = *(&end - end.number + number);
    kick(at, out);
    if (has_head_lifetimes_) [[unlikely]]
      plan_head_watch(out);
  }
  kick_talkers(at, end.node);
}

}  // namespace tulle::sim
