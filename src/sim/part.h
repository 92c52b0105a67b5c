#pragma once

// A part of a simulated network: the nodes that one thread moves. It has its own virtual time,
// frames and future events. What one of its nodes sends to a node of another part, of this process
// or of another one, crosses over between two rounds (sim/crossings.h).
//
// Nodes take turns. In its turn, a node goes through its events of a round. A round is no longer
// than the shortest link's delay, before which no other node can affect it (see rounds.h).

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/switch.h"
#include "rdma/port/frame.h"
#include "sim/application.h"
#include "sim/calendar.h"
#include "sim/crossings.h"
#include "sim/event.h"
#include "sim/event_kind.h"
#include "sim/frame_store.h"
#include "sim/host_driver.h"
#include "sim/links.h"
#include "sim/network_events.h"
#include "sim/nodes.h"
#include "sim/switch_driver.h"

namespace tulle::sim {

class alignas(64) Part {
 public:
  // The application may stop the run after so many events, some tens of milliseconds.
  static constexpr std::uint64_t events_between_looks = 1 << 16;

  // The nodes, the observers and the other parts, of which it is the one of that number, must
  // outlive it. The caller gives it its nodes with own(). The nodes know all numbers and settings,
  // but no node need be made yet.
  Part(Nodes& nodes, const Observers& observers, std::uint32_t number);
  Part(const Part&) = delete;  // its switches hold pointers into it
  Part& operator=(const Part&) = delete;

  // --- set-up ---

  // Makes nodes this part's own, and gives each a number among those that take turns.
  void own(std::vector<std::uint32_t> nodes);
  // Makes its own nodes take turns in rounds of that length.
  void take_turns(Time round);
  // Makes all nodes share one turn of that length, so that events happen in the order of time.
  void share_turn(Time turn);
  // Gives a host of this part its kernel.
  void add_kernel(std::uint32_t host) { host_driver_.add_kernel(host); }
  // Plans an event at one end of a link.
  void plan(std::int64_t at, const LinkEnd& end, EventKind kind, std::uint32_t datum) {
    links_.plan(at, end, kind, datum);
  }

  // --- the application's side ---

  void attend(std::uint32_t host) { host_driver_.attend(host); }  // of this part
  void alarm(Time at, std::uint32_t host, std::uint32_t token);
  // Lets events happen until one concerns the application, or the next is later than `until`.
  NetworkEvent run(Time until);

  // --- rounds that several parts have at the same time ---

  Time round_length() const { return calendar_.round_length(); }
  // Returns when the earliest round begins in which something is to happen, also by what it has
  // sent to others in this round. Time::never() means that nothing is.
  Time earliest_round() const;
  // Returns the time of the earliest such event.
  Time earliest_event() const;
  // Goes through the events before `end` of the round that begins at `start`. `parity` tells two
  // rounds in succession apart.
  void play(Time start, Time end, unsigned parity, Application& application);
  // Plays until nothing is left to happen until then, if there is no other part. Returns false if
  // the application does not continue.
  bool play_alone(Time until, Application& application);
  // What crosses to other parts, and from them.
  Crossings& crossings() { return crossings_; }

  // --- what has happened ---

  Time now() const { return calendar_.now(); }
  Time latest() const { return calendar_.latest(); }
  std::uint32_t number() const { return crossings_.part(); }
  bool has_begun() const { return calendar_.has_begun(); }
  std::uint64_t events() const { return calendar_.events(); }
  const Links& links() const { return links_; }
  // Returns the latest loss on a link or at a host.
  Time last_loss() const;
  port::FramePool& frames() { return frames_.pool(); }
  const port::FramePool& frames() const { return frames_.pool(); }
  fabric::Switch::Notices& notices() { return notices_; }

 private:
  bool is_host(std::uint32_t node) const { return node < hosts_; }
  bool begin_turn();
  void play_turns(Application& application);
  NetworkEvent::Kind step(Event event);
  std::uint32_t host_of(const Event& event) { return links_.end_of(event).node; }
  // Fetches what is soon to be used into the processor's cache.
  void fetch_node(std::uint32_t node);
  [[gnu::always_inline]] void look_ahead();
  void fetch_frame(const Event& event);

  Nodes& nodes_;
  std::uint32_t hosts_;  // number of all hosts, which are the first nodes
  bool has_kernels_;
  bool is_in_host_turn_ = false;    // true: the turn is one host's alone
  std::vector<std::uint32_t> own_;  // its nodes, in the order of their turns
  Calendar calendar_;
  FrameStore frames_;
  fabric::Switch::Notices notices_;  // from switches to hosts
  Crossings crossings_;
  Links links_;
  HostDriver host_driver_;
  SwitchDriver switch_driver_;
};

}  // namespace tulle::sim
