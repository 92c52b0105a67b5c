#pragma once

// One port of an adapter or a switch: the frames that wait for it, the lanes on which they leave
// and the arbitration among them, the flow control of both directions, the state of the link, and
// the counters. It is a state machine without input or output. Its owner puts frames in and
// accounts for the memory of those that came in. The driver hands it the neighbour's control
// messages, pulls the port's own, and pulls the next frame whenever the link is free.
//
// The frames of a switch wait in the port's queues. The packets of an adapter wait in their queue
// pairs: the adapter asks which lanes may send, and tells the port what it has sent.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/prefetch.h"
#include "base/random.h"
#include "base/time.h"
#include "rdma/port/congestion.h"
#include "rdma/port/counters.h"
#include "rdma/port/flow_control/control.h"
#include "rdma/port/flow_control/credits.h"
#include "rdma/port/flow_control/pause.h"
#include "rdma/port/frame.h"
#include "rdma/port/management_lane.h"
#include "rdma/port/settings.h"
#include "rdma/port/vl_arbiter.h"

namespace tulle::port {

// The members that every frame touches are together, in front.
class alignas(64) Port {
 public:
  // Frames have a lifetime at the head of their queue if `has_head_lifetime` (IBTA 18.2.5.4), which
  // needs credits. Settings and pool must outlive the port. A null pool means that no frame
  // is ever put in.
  Port(const Settings& settings, FramePool* frames, bool has_head_lifetime = false);

  // --- frames that wait in the port's queues ---

  // Puts a frame of that number into the queue of its class.
  void put(Time now, FrameRef ref, Frame& frame);
  // Returns the next frame to send, or no_frame if there is none or none may be sent. `random`
  // decides which frames are marked for congestion.
  [[gnu::always_inline]] FrameRef pull(Time now, Random& random);
  // True if pull() would find a frame.
  bool has_frame() const { return sendable() != 0; }
  // Takes all frames out of a queue, as a list (by Frame::next). no_frame means that it was empty.
  FrameRef empty_queue(std::uint32_t lane);
  // True if frames of the lane must be dropped instead of being put in, because the watchdog
  // tripped, the lane is stalled or the link is down.
  bool drops(std::uint32_t lane) const { return (dropping_ >> lane & 1) != 0; }
  std::uint32_t queue_bytes(std::uint32_t lane) const { return lanes_[lane].queue_bytes; }
  std::uint64_t queue_bytes() const {
    std::uint64_t bytes = 0;
    for (unsigned left = waiting_; left != 0; left &= left - 1) {
      bytes += lanes_[std::countr_zero(left)].queue_bytes;
    }
    return bytes;
  }

  // --- packets that wait elsewhere ---

  // PFC: the classes that the neighbour has stopped, as bits.
  std::uint8_t stopped() const { return stopped_; }
  // Credits: the lanes that may send a frame of this length, as bits.
  std::uint32_t open_lanes(std::uint32_t bytes) const;
  // Credits: the lane that sends next, of those in `lanes`, which must contain one that a table of
  // the arbitration has.
  std::uint8_t choose(std::uint32_t lanes) {
    return arbiter_.choose(settings_->arbitration, lanes);
  }
  // Counts a frame that the owner sends by this port, and takes its credits.
  void count_sent(const Frame& frame);

  // --- memory for frames that came in ---

  // Counts the bytes of a class that came in by this port and have not left, and those of them that
  // are in the headroom. The owner decides where a frame finds room, and keeps these counts.
  struct Held {
    std::uint32_t bytes = 0;
    std::uint32_t headroom_bytes = 0;
  };
  const Held& held(std::uint32_t lane) const { return lanes_[lane].held; }
  Held& held(std::uint32_t lane) { return lanes_[lane].held; }

  // PFC: decides that the neighbour must stop classes, or may resume. The neighbour is notified,
  // and again if it was notified before. Returns true if there was no control message to send
  // before and is one now.
  bool stop(std::uint8_t class_bits);
  bool resume(std::uint8_t class_bits);
  std::uint8_t stopping() const { return stopping_; }
  // Forgets what the neighbour must be told, as the owner's watchdog demands. The pauses run out.
  void fall_silent();

  // Credits: a frame takes room in the lane's memory, or its room is free again. The second returns
  // as stop() does, as the neighbour is told once its limit has moved far enough.
  bool has_credits() const { return credits_ != nullptr; }
  void take_room(std::uint32_t lane, std::uint32_t bytes) {
    credits_->receivers[lane].received(bytes);
  }
  bool free_room(std::uint32_t lane, std::uint32_t bytes);
  struct Credits {
    std::array<CreditSender, classes> senders;
    std::array<CreditReceiver, classes> receivers;
  };
  const Credits& credits() const { return *credits_; }
  // Returns what a port announces when its link comes up.
  Control announce_credits(std::uint8_t lane);

  // --- control messages ---

  // Handles a control message of the neighbour, which says what this port may send. A pause holds
  // for `pause`, unless renewed. Returns true if a class was stopped that was not stopped before.
  bool handle_control(Time now, const Control& control, Time pause = Time::never());
  // Ends the pauses that have run out. Returns when the next one does.
  Time expire_pauses(Time now);
  // Returns the next control message for the neighbour. Kind none means that there is nothing to
  // say.
  Control pull_control();
  bool has_control() const { return untold_ != 0; }

  // --- watchdogs ---

  // Makes the port drop the frames of the classes that have been stopped too long, and returns
  // these classes as bits. The owner must empty their queues.
  std::uint8_t trip_watchdog(Time now);
  // True if the watchdog must look again later.
  bool is_watched() const { return (stopped_ & ~dropping_) != 0; }
  // Handles the lifetime of the frame at the head of a lane. The owner must release what it says:
  // nothing, the head, or the whole queue, because the lane is stalled from now on.
  enum class Expired : std::uint8_t { nothing, head, queue };
  Expired expire_head(Time now, std::uint32_t lane, Time lifetime);
  FrameRef take_head(std::uint32_t lane);
  // Returns when to look at the lane again. Time::never() means that no frame waits, and the lane
  // is not stalled.
  Time next_expiry(std::uint32_t lane, Time lifetime) const;
  // The clock's zero has moved (base/time.h).
  void rebase(Time by);

  // --- the link ---

  bool is_down() const { return is_down_; }
  // Takes the link down. Until bring_up(), frames for the port are lost, and its neighbour stops
  // nothing. The owner must empty the queues.
  void take_down(Time now);
  // Brings the link up again. Its credits start from zero (IBTA 7.9.4: a link's initialisation sets
  // FCTBS and ABR to 0), and the neighbour is sent the current flow control state.
  void bring_up();

  // Lets the port mark the frames that it sends even if it is a victim of congestion (IBTA annex
  // A10).
  void mark_as_victim() { watch_->is_in_victim_mask = true; }

  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  // Prefetches the memory that the frames of the first class will touch, or, once it is there, the
  // frame that this class sends next.
  enum class Fetched : std::uint8_t { port, head };
  void prefetch(Fetched what = Fetched::port) const {
    if (what == Fetched::head) {
      if (lanes_[0].first != no_frame) frames_->prefetch(lanes_[0].first);
      return;
    }
    tulle::prefetch(this);
    tulle::prefetch(&counters_);
  }

 private:
  friend struct PortControl;
  struct Lane {
    // out
    FrameRef first = no_frame;
    FrameRef last = no_frame;
    std::uint32_t queue_bytes = 0;
    std::uint32_t deficit = 0;
    Held held;  // in
  };
  struct Head {
    Time since;
    Time stalled_until = Time::zero();  // zero: the lane is not stalled
    std::uint32_t discarded_in_row = 0;
  };
  struct Watch {
    bool is_in_victim_mask = false;
    std::array<Head, classes> heads;
    std::array<LaneCongestion, classes> congestion;
  };

  std::uint8_t sendable() const;
  std::uint8_t class_to_send(std::uint8_t open);
  bool talk(std::uint8_t class_bits);
  void update_pause(Time now);
  void mark(Frame& frame, Random& random);
  void watch_leaving(Time now, Frame& frame, Random& random);
  void mark_congestion(Frame& frame, Random& random);
  void watch_credits(std::uint8_t lacking);

  std::uint8_t waiting_ = 0;   // out: classes with frames
  std::uint8_t stopped_ = 0;   // out: classes that the neighbour has stopped
  std::uint8_t dropping_ = 0;  // out: classes whose frames are dropped, see drops()
  std::uint8_t turn_ = 0;      // out: class whose round it is
  bool turn_begun_ = false;
  std::uint8_t stopping_ = 0;  // in: classes that the neighbour must stop
  std::uint8_t untold_ = 0;  // in: classes to tell the neighbour; credits: lanes with an update due
  bool is_down_ = false;
  const Settings* settings_;
  FramePool* frames_;
  std::unique_ptr<Credits> credits_;  // null without credits
  std::unique_ptr<Watch> watch_;      // null unless heads have a lifetime or congestion is marked
  std::array<Lane, classes> lanes_;
  VlArbiter arbiter_;  // here, since in front it would push a class off the cache line

 public:
  ManagementLane management;

 private:
  Counters counters_;
  PauseState pause_;
};

inline void Port::put(Time now, FrameRef ref, Frame& frame) {
  Lane& lane = lanes_[frame.service_class];
  frame.next = no_frame;
  if (lane.first == no_frame) {
    lane.first = ref;
    waiting_ = static_cast<std::uint8_t>(waiting_ | 1u << frame.service_class);
    if (watch_ != nullptr) [[unlikely]]
      watch_->heads[frame.service_class].since = now;
  } else {
    (*frames_)[lane.last].next = ref;
  }
  lane.last = ref;
  lane.queue_bytes += frame.buffer_bytes;
  counters_.queue_bytes_max = std::max(counters_.queue_bytes_max, lane.queue_bytes);
}

inline void Port::count_sent(const Frame& frame) {
  if (credits_ != nullptr) {
    credits_->senders[frame.service_class].sent(frame.buffer_bytes);
    arbiter_.sent(frame.buffer_bytes);
  }
  ++counters_.frames;
  counters_.bytes += frame.link_bytes();
}

inline FrameRef Port::pull(Time now, Random& random) {
  const std::uint8_t open = sendable();
  if (watch_ != nullptr) [[unlikely]]
    watch_credits(static_cast<std::uint8_t>(waiting_ & ~open));
  if (open == 0) {
    if (waiting_ != 0 && credits_ != nullptr) ++counters_.credit_stalls;
    return no_frame;
  }
  auto c = static_cast<std::uint32_t>(std::countr_zero(open));
  if (credits_ != nullptr) {
    c = choose(open);
  } else if ((open & (open - 1)) != 0) {
    c = class_to_send(open);
  }
  Lane& lane = lanes_[c];
  const FrameRef ref = lane.first;
  Frame& frame = (*frames_)[ref];
  if (settings_->ecn.enabled) mark(frame, random);
  if (watch_ != nullptr) [[unlikely]]
    watch_leaving(now, frame, random);
  lane.first = frame.next;
  if (frame.next == no_frame) {
    waiting_ = static_cast<std::uint8_t>(waiting_ & ~(1u << c));
    lane.deficit = 0;
  } else {
    frames_->prefetch(frame.next);
  }
  lane.queue_bytes -= frame.buffer_bytes;
  count_sent(frame);
  if (watch_ != nullptr) [[unlikely]]
    watch_credits(static_cast<std::uint8_t>(waiting_ & ~sendable()));
  return ref;
}

inline std::uint8_t Port::sendable() const {
  if (credits_ == nullptr) return static_cast<std::uint8_t>(waiting_ & ~stopped_);
  std::uint8_t open = 0;
  const std::uint32_t may_send = waiting_ & settings_->arbitration.lanes();
  for (std::uint32_t left = may_send; left != 0; left &= left - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
    const std::uint32_t bytes = (*frames_)[lanes_[lane].first].buffer_bytes;
    if (!credits_->senders[lane].may_send(bytes)) continue;
    open = static_cast<std::uint8_t>(open | 1u << lane);
  }
  return open;
}

// The functions by which the owner of an InfiniBand port does more than move frames.
struct PortControl {
  // Returns true if frames of some lane are dropped (Port::drops).
  static bool drops_any(const Port& port) { return port.dropping_ != 0; }
  // Ends the stalls of all lanes early: frames are no longer dropped.
  static void end_stalls(Port& port, Time now);
  // Replaces the settings by others, which must outlive the port. They may differ in the
  // arbitration and in `stall_count`.
  static void replace_arbitration(Port& port, const Settings& settings) {
    port.settings_ = &settings;
    port.arbiter_ = {};
  }
  // Takes a flow control packet with both of its totals. Frames may then be sent that could not be
  // before.
  static void take_credits(Port& port, Time now, CreditUpdate update, std::uint32_t total_sent) {
    port.credits_->receivers[update.lane].resynchronise(total_sent);
    port.handle_control(now, Control::of(update));
  }
  // Returns the credits of a lane, to tell them again.
  static CreditUpdate tell(Port& port, std::uint8_t lane) {
    return {lane, port.credits_->receivers[lane].tell()};
  }
};

}  // namespace tulle::port
