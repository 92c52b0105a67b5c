#pragma once

// The ends of links at which a part's nodes send, and the events planned at them. What a port sends
// takes its time on the link, and is an event at the other end, of this part or of another one.

#include <cstdint>
#include <span>

#include "base/time.h"
#include "fabric/switch.h"
#include "rdma/port/frame.h"
#include "rdma/port/port.h"
#include "sim/calendar.h"
#include "sim/crossings.h"
#include "sim/event_kind.h"
#include "sim/frame_store.h"
#include "sim/link_faults.h"
#include "sim/network_events.h"
#include "sim/nodes.h"

namespace tulle::sim {

class Links {
 public:
  // All of these must outlive it.
  Links(Nodes& nodes, const Observers& observers, Calendar& calendar, FrameStore& frames,
        Crossings& crossings, fabric::Switch::Notices& notices);

  LinkEnd& end_of(std::uint32_t node, std::uint16_t port) {
    return ends_[places_[node].first_end + port];
  }
  LinkEnd& end_of(const Event& event) { return ends_[end_index_of(event)]; }

  // --- planning ---

  // Plans an event at one end of a link, whose node is this part's.
  void plan(std::int64_t at, const LinkEnd& end, EventKind kind, std::uint32_t datum) {
    calendar_.plan(places_[end.node].turn, event_at(at, index_of(end), kind, datum));
  }
  // Does so unless it is planned.
  void plan_once(bool& planned, Time at, const LinkEnd& end, EventKind kind) {
    if (planned) return;
    planned = true;
    plan(at.ps, end, kind, 0);
  }
  // Plans an event at the end of that index, of any part's node with that turn.
  [[gnu::always_inline]] void plan(Event event, std::uint32_t turn, std::uint32_t part) {
    if (part != part_) [[unlikely]]
      return crossings_.send(part, event);
    calendar_.plan(turn, event);
  }
  // Lets a port send again when it becomes free.
  void wait(LinkEnd& end) {
    end.waits_for |= LinkEnd::its_becoming_free;
    plan(end.busy_until, end, EventKind::port_free, 0);
  }

  // --- sending ---

  // Sends what goes before frames. Returns false if there is nothing.
  bool send_first(LinkEnd& end) {
    if (end.port->has_control()) [[unlikely]] {
      send_control(end, end.port->pull_control());
      return true;
    }
    return has_notices_ && send_notice(end);
  }
  void send(LinkEnd& end, port::FrameRef frame);
  // Takes a frame in that has come over a link. Its memory is free again at once, and the other end
  // is told from time to time.
  static void take_in(port::Port& port, const port::Frame& frame) {
    port.take_room(frame.service_class, frame.buffer_bytes);
    static_cast<void>(port.free_room(frame.service_class, frame.buffer_bytes));
  }

  // --- events ---

  // Handles an event of flow control, after which the port may be able to send.
  void handle_flow_control(Event event, LinkEnd& end);
  // The link goes down at this end, and the port's frames with it.
  void begin_going_down(LinkEnd& end);
  // Must be called when the port has no frames left.
  void end_going_down(const LinkEnd& end);
  // The link comes up at this end, so that the port may send.
  void come_up(LinkEnd& end);
  void set_bit_error_rate(const LinkEnd& end, double rate) {
    faults_.set_bit_error_rate(end, rate);
  }

  // --- what has happened ---

  std::uint64_t data_hops() const { return data_hops_; }
  std::uint64_t all_hops() const { return all_hops_; }
  // Returns the latest time at which a link lost a frame.
  Time last_loss() const { return faults_.last_loss(); }

 private:
  std::uint32_t index_of(const LinkEnd& end) const {
    return static_cast<std::uint32_t>(&end - ends_.data());
  }
  [[gnu::always_inline]] void plan_at_peer(std::int64_t at, const LinkEnd& end, EventKind kind,
                                           std::uint32_t datum) {
    plan(event_at(at, end.peer_end, kind, datum), end.peer_turn, end.peer_part);
  }
  static std::int64_t time_on_link(const LinkEnd& end, std::uint32_t bytes);
  Time pause_time(const LinkEnd& end) const;
  void send_control(LinkEnd& end, port::Control control);
  bool send_notice(LinkEnd& end);
  void tell_sending(Time arrives, const LinkEnd& end, port::FrameRef frame, bool lost);
  void handle_pause(LinkEnd& end, port::Control control);
  void end_pauses(LinkEnd& end);

  const Nodes& nodes_;
  const Observers& observers_;
  const NetworkSettings& settings_;
  std::span<LinkEnd> ends_;  // views of the nodes, since an event needs them at once
  std::span<const Place> places_;
  std::uint32_t part_;
  bool has_notices_;
  Calendar& calendar_;
  FrameStore& frames_;
  Crossings& crossings_;
  fabric::Switch::Notices& notices_;
  LinkFaults faults_;
  std::uint64_t data_hops_ = 0;
  std::uint64_t all_hops_ = 0;
};

}  // namespace tulle::sim
