#pragma once

// A part of a simulated network: the nodes that one thread moves. It has its own virtual time,
// frames and future events. What one of its nodes sends to a node of another part, of this process
// or of another one, crosses over between two rounds (sim/crossing.h).
//
// Nodes take turns. In its turn, a node goes through its events of a round. A round is no longer
// than the shortest link's delay, before which no other node can affect it (see rounds.h).

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/packed.h"
#include "base/time.h"
#include "fabric/switch.h"
#include "rdma/device/adapter.h"
#include "rdma/port/frame.h"
#include "rdma/port/payloads.h"
#include "rdma/port/port.h"
#include "rdma/wire/path.h"
#include "sim/application.h"
#include "sim/crossing.h"
#include "sim/event.h"
#include "sim/network_events.h"
#include "sim/nodes.h"
#include "sim/rounds.h"
#include "sim/turn.h"

namespace tulle::sim {

class alignas(64) Part {
 public:
  // The application may stop the run after so many events, some tens of milliseconds.
  static constexpr std::uint64_t events_between_looks = 1 << 16;

  // The nodes, the observers and the other parts, of which it is the one of that number, must
  // outlive it. The caller gives it its nodes with own().
  Part(Nodes& nodes, const Observers& observers, std::uint32_t number);
  ~Part();
  Part(const Part&) = delete;  // its switches hold pointers into it
  Part& operator=(const Part&) = delete;

  // --- set-up ---

  // Makes nodes this part's own, and gives each a number among those that take turns.
  void own(std::vector<std::uint32_t> nodes);
  // The nodes are complete. So many processes simulate the network together, each with so many
  // parts.
  void begin(std::uint32_t processes, std::uint32_t parts_each);
  // Makes its own nodes take turns in rounds of that length.
  void take_turns(Time round);
  // Makes all nodes share one turn of that length, so that events happen in the order of time.
  void share_turn(Time turn);
  // Plans an event at one end of a link.
  void plan(std::int64_t at, const LinkEnd& end, EventKind kind, std::uint32_t datum);

  // --- the application's side ---

  void attend(std::uint32_t host);  // of this part
  void alarm(Time at, std::uint32_t host, std::uint32_t token);
  // Lets events happen until one concerns the application, or the next is later than `until`.
  NetworkEvent run(Time until);

  // --- rounds that several parts have at the same time ---

  Time round_length() const { return rounds_->length(); }
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
  // Takes what another part has sent to it in the round of that parity. Called between rounds.
  void take_from(Part& other, unsigned parity, Application& application);
  // Asks the application for something at a host of another part.
  void request_elsewhere(std::uint32_t host, std::uint32_t token, std::uint32_t note);

  // --- what crosses between processes ---

  // Returns what it has sent to a part of another process in its last round.
  const Crossing& sent_to(std::uint32_t part) const { return outboxes_[parity_][part]; }
  // Forgets what it has sent to parts of other processes. This process has `own` parts from the
  // first one on.
  void forget_sent(std::uint32_t first, std::uint32_t own);
  // Takes what a part of another process has sent to it. Returns false if it is damaged, or has
  // events before `earliest`, the start of the next round.
  [[nodiscard]] bool take_sent(std::uint32_t process, const CrossingView& crossing, Time earliest,
                               Application& application);

  // --- what has happened ---

  Time now() const { return now_; }
  Time latest() const { return latest_; }
  std::uint32_t number() const { return number_; }
  bool has_begun() const { return turn_ != Rounds::no_node || events_ > 0; }
  std::uint64_t events() const { return events_; }
  std::uint64_t data_hops() const { return data_hops_; }
  std::uint64_t all_hops() const { return all_hops_; }
  Time last_loss() const { return last_loss_; }
  port::FramePool& frames() { return frames_; }
  const port::FramePool& frames() const { return frames_; }
  fabric::Switch::Notices& notices() { return notices_; }

 private:
  friend struct KernelDriver;
  using Kind = EventKind;
  using enum EventKind;
  // The low bits of an event's place are its kind, and the others are the port's index.
  static constexpr unsigned kind_bits = 4;
  static constexpr std::uint32_t kind_mask = (1u << kind_bits) - 1;
  static Event event_at(std::int64_t at, std::uint32_t end, Kind kind, std::uint32_t datum) {
    return {at, datum, end << kind_bits | static_cast<std::uint32_t>(kind)};
  }
  static Kind kind_of(const Event& event) { return static_cast<Kind>(event.place & kind_mask); }

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  bool is_host(std::uint32_t node) const { return node < hosts_.size(); }
  LinkEnd& end_of(std::uint32_t node, std::uint16_t port) {
    return ends_[places_[node].first_end + port];
  }
  std::uint32_t host_of(const Event& event) const { return ends_[event.place >> kind_bits].node; }
  std::uint32_t index_of(const LinkEnd& end) const {
    return static_cast<std::uint32_t>(&end - ends_.data());
  }

  bool begin_turn();
  bool begin_turn(Time until);
  void add(Event event) { rounds_->add(places_[ends_[event.place >> kind_bits].node].turn, event); }
  // True if all nodes share one turn (share_turn()).
  bool is_turn_shared() const { return rounds_->nodes() == 1; }
  void prepare_turn(std::uint32_t turn);
  [[gnu::always_inline]] void look_ahead();
  void fetch_heads();
  void fetch_frame(const Event& event);
  void play_turns(Application& application);
  Time earliest_sent() const;
  void send_away(std::uint32_t part, Event event);
  void take(const CrossingView& box, Application& application);
  std::uint32_t process_of_peer(const LinkEnd& end) const { return end.peer_part / parts_each_; }
  bool accepts(std::uint32_t process, const CrossingView& box, Time earliest,
               const Application& told) const;
  bool accepts(const Event& event, Time earliest) const;
  bool is_control(std::uint32_t datum) const;
  bool accepts(const port::Frame& frame) const;
  NetworkEvent::Kind step(Event event);
  void handle_at_switch(Event event, LinkEnd& end);
  NetworkEvent::Kind handle_at_host(Event event, LinkEnd& end);
  void handle_anywhere(Event event, LinkEnd& end);
  void arrive_at_host(LinkEnd& end, port::FrameRef frame);
  void arrive_at_switch(LinkEnd& end, port::FrameRef frame);
  void check_credits(const LinkEnd& end, const port::Frame& frame) const;
  void handle_control(LinkEnd& end, port::Control control);
  void handle_pause(LinkEnd& end, port::Control control);
  static Time pause_time(const LinkEnd& end, const NetworkSettings& settings);
  void end_pauses(LinkEnd& end);
  void renew_pause(LinkEnd& end);
  void watch(LinkEnd& end);
  [[gnu::always_inline]] void plan_at_peer(std::int64_t at, const LinkEnd& end, Kind kind,
                                           std::uint32_t datum);
  [[gnu::always_inline]] void plan(Event event, std::uint32_t turn, std::uint32_t part);
  void plan_once(bool& planned, Time at, const LinkEnd& end, Kind kind);
  void kick(LinkEnd& end);
  void kick_host(LinkEnd& end);
  void kick_switch(fabric::Switch& at, LinkEnd& end);
  // Lets the ports of a switch send that have messages to send.
  void kick_talkers(fabric::Switch& at, std::uint32_t node) {
    if (at.has_talkers()) [[unlikely]]
      kick_all_talkers(at, node);
  }
  void kick_all_talkers(fabric::Switch& at, std::uint32_t node);
  bool send_first(LinkEnd& end);
  port::FrameRef pull_from_host(std::uint32_t host);
  void tell_sending(Time arrives, const LinkEnd& end, port::FrameRef frame, bool lost);
  bool has_more(const Host& host) const;
  void wait(LinkEnd& end);
  void send(LinkEnd& end, port::FrameRef frame);
  void send_control(LinkEnd& end, port::Control control);
  static void take_in(port::Port& port, const port::Frame& frame);
  void discard(LinkEnd& end, port::FrameRef ref);
  static std::int64_t time_on_link(const LinkEnd& end, std::uint32_t bytes);
  void plan_deadline(std::uint32_t host);

  // The contents of frames are in part_frames.cc.
  port::FrameRef frame_of(std::uint32_t host, const device::Datagram& datagram);
  void label(port::Frame& frame, std::uint32_t host, const device::Datagram& datagram) const;
  void measure(port::Frame& frame, const port::Overhead& around, std::uint32_t inner_bytes,
               std::uint32_t payload_bytes) const;
  void hold_segment(port::FrameRef frame, const device::Datagram& datagram);
  void carry_payload(port::FrameRef frame, const device::Datagram& datagram);
  const std::byte* payload_of(port::FrameRef frame) const {
    return payloads_ == nullptr ? nullptr : payloads_->of(frame);
  }
  void carry_front(port::FrameRef frame, const device::Datagram& datagram);
  transport::Payload segment_of(port::FrameRef frame);
  void hand_over(std::uint32_t host, port::FrameRef frame);
  void hand_over_segment(std::uint32_t host, port::FrameRef frame);
  wire::Path path_of(const port::Frame& frame) const;

  // Hosts with a kernel stack are in part_stack.cc.
  void arrive_at_kernel(std::uint32_t host, port::FrameRef frame);
  void attend_kernel(std::uint32_t host);
  void run_kernel(std::uint32_t host);
  port::FrameRef pull_from_kernel(std::uint32_t host);
  bool kernel_has_frame(const Host& host) const;
  QpNumber receiver_of(const port::Frame& frame) const;

  // Faults are in part_faults.cc.
  void plan_head_watch(LinkEnd& end);
  void watch_heads(LinkEnd& end);
  void handle_fault(std::uint32_t node, std::uint16_t port, const FaultAction& action);
  void go_down(std::uint32_t node, std::uint16_t port);
  void come_up(std::uint32_t node, std::uint16_t port);
  bool disturb(const LinkEnd& end, port::Frame& frame, std::int64_t arrives);
  PortFaults& faults_of(const LinkEnd& end) { return nodes_.port_faults[index_of(end)]; }
  bool goes_down_by(const LinkEnd& end, std::int64_t arrives) const;
  bool is_damaged(std::uint32_t node, std::uint32_t bytes, double bit_error_rate);
  bool is_to_lose(std::uint32_t node, const port::Frame& frame);
  void lose_on_link(const LinkEnd& end, const port::Frame& frame);
  void let_go(std::uint32_t node, port::FrameRef frame);
  void arrive_at_slow_host(std::uint32_t host, port::FrameRef frame);
  void begin_taking_in(std::uint32_t host);
  void end_taking_in(std::uint32_t host);
  void take_in_next(std::uint32_t host);
  void update_asking(std::uint32_t host);
  void watch_host(std::uint32_t host);

  // Notices are in part_notices.cc.
  void handle_notice(std::uint32_t node, std::uint32_t place);
  bool send_notice(LinkEnd& end);

  Nodes& nodes_;
  const Observers& observers_;
  const NetworkSettings& settings_;
  // Views of the nodes, since an event needs them at once.
  std::span<Host> hosts_;
  std::span<fabric::Switch> switches_;
  std::span<Place> places_;
  std::span<LinkEnd> ends_;
  std::uint32_t number_;
  bool disturbed_ = false;
  bool has_kernels_ = false;
  bool has_head_lifetimes_ = false;
  bool has_strangers_ = false;    // other processes simulate nodes, too
  std::uint32_t parts_each_ = 1;  // of each process
  Time now_;
  port::FramePool frames_;
  std::unique_ptr<port::Payloads> payloads_;  // null: ghosts
  fabric::Switch::Notices notices_;           // from switches to hosts
  std::vector<std::uint32_t> own_;            // its nodes, in the order of their turns
  std::unique_ptr<Rounds> rounds_;
  Turn events_of_turn_;
  std::uint32_t turn_ = Rounds::no_node;  // number of the node whose turn it is
  Time turn_end_;
  bool is_in_host_turn_ = false;  // true: the turn is one host's alone
  Rounds::View next_turn_;        // what is left to look at of the next turn's events
  Time latest_;                   // latest time of any event so far
  Time last_loss_;                // latest loss on a link or at a host
  device::Datagram outgoing_;
  wire::Packet handed_over_;  // a member because decoding clears it
  std::uint64_t events_ = 0;
  std::uint64_t data_hops_ = 0;
  std::uint64_t all_hops_ = 0;
  // By parity of the round and part: what is sent there. A part takes what was sent to it while
  // the next round's crossings are written.
  std::array<std::vector<Crossing>, 2> outboxes_;
  unsigned parity_ = 0;
};

// Plans an event at the other end of the link.
inline void Part::plan_at_peer(std::int64_t at, const LinkEnd& end, EventKind kind,
                               std::uint32_t datum) {
  plan(event_at(at, end.peer_end, kind, datum), end.peer_turn, end.peer_part);
}

// Plans an event at a node with that place.
inline void Part::plan(Event event, std::uint32_t turn, std::uint32_t part) {
  if (part != number_) [[unlikely]]
    return send_away(part, event);
  if (turn == turn_ && event.at < turn_end_.ps) {
    events_of_turn_.insert(event);
  } else {
    TULLE_CHECK(turn_ == Rounds::no_node || turn == turn_ || event.at >= turn_end_.ps);
    rounds_->add(turn, event);
  }
}

}  // namespace tulle::sim
