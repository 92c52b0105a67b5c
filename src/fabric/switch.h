#pragma once

// A switch: frames come in at one port, wait in the queue of another, and leave. A state machine
// without input or output: the driver tells it the time, hands it frames and control messages, and
// pulls from a port what is to be sent next, whenever that port is free.
//
// Memory is accounted by where a frame came in, since that is who can be asked to stop:
//   none     nobody is asked; a frame that finds no room is lost
//   pfc      each port and class may fill its share of the memory, asks its neighbour to stop
//            beyond that, and has headroom for what arrives until the neighbour has stopped
//            (IEEE 802.1Qbb)
//   credits  each port and virtual lane has memory of its own, and the neighbour sends only what it
//            was told fits (IBTA 7.9)
// A frame takes room until its first bit leaves.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/prefetch.h"
#include "base/random.h"
#include "base/time.h"
#include "fabric/congestion.h"
#include "fabric/control.h"
#include "fabric/credits.h"
#include "fabric/frame.h"
#include "fabric/partitions.h"
#include "fabric/pause.h"
#include "fabric/sl_to_vl.h"
#include "fabric/vl_arbiter.h"

namespace tulle::fabric {

enum class FlowControl : std::uint8_t { none, pfc, credits };

// Which of several shortest paths a frame takes.
enum class PathChoice : std::uint8_t {
  flow,      // by a hash of its flow's addresses and ports: ECMP
  flowlet,   // the same, chosen anew after a gap in the flow
  packet,    // each packet another: spraying
  adaptive,  // the emptiest queue, in coarse grades; of equal ones any
};

// Random early detection on a queue's bytes (Floyd and Jacobson 1993), as DCQCN's congestion point
// uses it: never marked up to least_bytes, up to `probability` at most_bytes, always beyond.
struct EcnSettings {
  bool enabled = false;
  std::uint32_t least_bytes = 0;  // Kmin
  std::uint32_t most_bytes = 0;   // Kmax
  double probability = 0;         // Pmax
};

struct SwitchSettings {
  FlowControl flow_control = FlowControl::pfc;
  PathChoice path_choice = PathChoice::flow;
  Time flowlet_gap = Time::microseconds(50);
  std::uint64_t buffer_bytes = 32'000'000;  // shared by all ports
  // pfc: a port and class is asked to stop above this many bytes, or, if 0, above `alpha` times
  // what is left of the shared memory (Choudhury and Hahne 1998); and to go on `xon_gap_bytes`
  // below.
  std::uint32_t xoff_bytes = 0;
  double alpha = 0.125;
  std::uint32_t xon_gap_bytes = 2 * 4'178;
  std::uint32_t headroom_bytes = 100'000;  // of each port and class, beside the shared memory
  std::uint8_t lossless_classes = 0xFF;    // those that PFC protects
  std::uint32_t pause_quanta = pause_quanta_max;  // what a request to stop asks for, until renewed
  // A class that its neighbour has kept stopped for so long loses what waits for it, and what
  // comes, until it may go on: one stuck adapter must not stop a fabric. Zero: no such watchdog.
  Time watchdog;
  std::uint32_t lossy_queue_bytes = 0;  // most of one queue of a lossy class; 0: alpha's share
  // Credits: a frame that stands at the head of a lane's queue for so long is discarded (HOQLife,
  // IBTA 18.2.5.4), at ports to switches and to hosts. Zero: it may stand there for ever.
  Time head_lifetime;
  Time leaf_head_lifetime;
  // A lane that has so many discarded in a row discards all that comes for eight lifetimes
  // (VLStallCount); 0: never.
  std::uint32_t stall_count = 0;
  std::uint32_t lane_buffer_bytes =
      131'008;  // credits: of each port and virtual lane; 2,047 blocks
  EcnSettings ecn;
  CongestionSettings congestion;  // credits
  VlArbitration arbitration;      // credits: what share of a link a lane gets
  // Otherwise, what share of a link a class gets, in bytes a round (deficit round robin, Shreedhar
  // and Varghese 1995); 0: before all that have a share, the highest class first.
  std::array<std::uint32_t, classes> quantum_bytes = {4'200, 4'200, 4'200, 4'200,
                                                      4'200, 4'200, 0,     0};
};

struct PortCounters {
  std::uint64_t frames = 0;             // sent
  std::uint64_t bytes = 0;              // sent, as they take time on the link
  std::uint32_t queue_bytes_max = 0;    // of one class, waiting to be sent
  std::uint32_t ingress_bytes_max = 0;  // of one class, come in and not left
  std::uint64_t marked = 0;             // that no switch had marked before
  std::uint64_t dropped = 0;            // for want of room, on their way to this port
  std::uint64_t pauses = 0;             // stop messages received
  std::int64_t paused_ps = 0;           // while some class was stopped
  std::uint64_t damaged = 0;            // frames sent that a bit error made worthless
  std::uint64_t watchdog_trips = 0;
  std::uint64_t watchdog_dropped = 0;  // frames
  std::uint64_t credit_stalls = 0;     // times that all that waited had to wait for credits
  std::uint64_t pkey_dropped_in = 0;   // frames of a partition that may not come in here
  std::uint64_t pkey_dropped_out = 0;  // that may not leave here
  // Frames that stood at the head of their queue too long, or came while such were discarded.
  std::uint64_t discarded = 0;
  std::uint64_t unmapped = 0;  // frames dropped on their way to this port: no lane for their level
  // Frames that a fault cost: what waited or was to be sent when the link was down, what was on it
  // when it went down, and what came in here (by a switch's port) and had no way left.
  std::uint64_t lost = 0;
  std::uint64_t lost_bytes = 0;  // of these, as they take room
  std::uint64_t unrouted = 0;    // of these, what had no way left
};

class Switch {
 public:
  static constexpr std::uint16_t no_port = 0xFFFF;

  Switch(const SwitchSettings& settings, std::uint32_t node, std::uint16_t ports,
         std::uint64_t seed, FramePool& frames);

  // Credits: the lane on which a frame leaves; the table must outlive the switch. Without one a
  // frame stays on the lane by which it came.
  void set_lanes(const SlToVl& table) { lanes_ = table.is_default() ? nullptr : &table; }

  // Ports that let through what is of their partitions; the table must outlive the switch.
  void set_partitions(const SwitchPartitions& of_ports) { partitions_ = &of_ports; }

  // Credits: a port marks what it sends though it is a victim of congestion (IBTA annex A10).
  void mark_as_victim(std::uint16_t port) { in_victim_mask_[port] = true; }

  // A whole frame has come in, or as much of it as its way needs. Returns the port in whose queue
  // it now waits; no_port: it was dropped, and is the caller's to give back.
  std::uint16_t receive(Time now, std::uint16_t in_port, FrameRef ref,
                        std::span<const std::uint16_t> candidates);
  // The same where the way is known.
  std::uint16_t receive(Time now, std::uint16_t in_port, FrameRef ref, std::uint16_t out_port);
  // The way of a flow's every frame: by a hash of its addresses and ports, which each switch mixes
  // in a way of its own.
  std::uint16_t choose_by_flow(const Frame& frame, std::span<const std::uint16_t> candidates) const;
  // A frame came in that goes no further: with credits it took its room, which is free again.
  void take_in_lost(std::uint16_t in_port, const Frame& frame);
  // The same for one to whose destination there is no way left.
  void drop_unrouted(Time now, std::uint16_t in_port, Frame& frame);
  // The link of a port is gone, and with it all that waited for it, which is returned as a list (by
  // Frame::next) and is the caller's to give back. Until bring_up() what is for the port is lost,
  // and its neighbour stops nothing.
  FrameRef take_down(Time now, std::uint16_t port);
  // The link is there again: its credits are counted anew (IBTA 7.9.4: a link's initialisation sets
  // FCTBS and ABR to 0), and the neighbour is told what there is to tell.
  void bring_up(std::uint16_t port);
  // When a fault last cost a frame; zero: none did.
  Time last_loss() const { return last_loss_; }

  // The next frame to send by a port, which is free; no_frame: none, or none that may go.
  FrameRef pull(Time now, std::uint16_t port);
  // Whether pull() would find something.
  bool has_frame(std::uint16_t port) const { return sendable(ports_[port]) != 0; }

  // A control message that came in at a port: it says what may be sent by that port.
  // A pause holds for `pause`, unless renewed. True: a class was stopped that was not before.
  bool handle_control(Time now, std::uint16_t port, const Control& control,
                      Time pause = Time::never());
  // Pauses that have run out end; returns when the next one does.
  Time expire_pauses(Time now, std::uint16_t port);
  // Says again which classes the neighbour is to stop; false: none.
  bool renew_stops(std::uint16_t port);
  // Trips the watchdog for classes that have been stopped too long. True: look again later.
  bool watch(Time now, std::uint16_t port);
  // Discards what has stood at the head of a port's queues for `lifetime`. Returns when to look
  // again; never: nothing waits.
  Time discard_heads(Time now, std::uint16_t port, Time lifetime);
  // The next control message for the neighbour at a port; kind none: nothing to say.
  Control pull_control(std::uint16_t port);
  bool has_control(std::uint16_t port) const { return ports_[port].control_due; }
  // A port that has got something to say since it was last taken here; no_port: none.
  std::uint16_t take_talker() {
    if (talkers_.empty()) return no_port;
    const std::uint16_t port = talkers_.back();
    talkers_.pop_back();
    return port;
  }

  const PortCounters& counters(std::uint16_t port) const { return ports_[port].counters; }
  PortCounters& counters(std::uint16_t port) { return ports_[port].counters; }
  // Fetch what the frames of a class or two will touch.
  void prefetch() const {
    for (const Port& port : ports_) {
      tulle::prefetch(&port);
      tulle::prefetch(&port.counters);
      tulle::prefetch(&port.counters.credit_stalls);
    }
  }
  std::uint16_t ports() const { return static_cast<std::uint16_t>(ports_.size()); }
  std::uint64_t bytes_held() const { return shared_bytes_ + headroom_bytes_; }
  std::uint64_t bytes_held_max() const { return held_max_; }
  // Frames of lossless classes that found no room: flow control failed.
  std::uint64_t lossless_drops() const { return lossless_drops_; }
  // What came in at a port in a class and has not left.
  std::uint32_t ingress_bytes(std::uint16_t port, std::uint32_t service_class) const {
    return ports_[port].of_class[service_class].in_bytes;
  }
  // What waits for a port, of all classes.
  std::uint64_t queue_bytes(std::uint16_t port) const {
    std::uint64_t bytes = 0;
    for (const Class& queue : ports_[port].of_class) bytes += queue.out_bytes;
    return bytes;
  }
  // In [0, bound), from this switch's random stream: for choices of path.
  std::uint64_t draw(std::uint64_t bound) { return random_.below(bound); }
  std::uint32_t queue_bytes(std::uint16_t port, std::uint32_t service_class) const {
    return ports_[port].of_class[service_class].out_bytes;
  }
  CreditSender& credit_sender(std::uint16_t port, std::uint32_t lane) {
    return credits_[port * classes + lane].sender;
  }
  CreditReceiver& credit_receiver(std::uint16_t port, std::uint32_t lane) {
    return credits_[port * classes + lane].receiver;
  }
  const CreditSender& credit_sender(std::uint16_t port, std::uint32_t lane) const {
    return credits_[port * classes + lane].sender;
  }
  const CreditReceiver& credit_receiver(std::uint16_t port, std::uint32_t lane) const {
    return credits_[port * classes + lane].receiver;
  }

 private:
  struct Class {
    // out
    FrameRef first = no_frame;
    FrameRef last = no_frame;
    std::uint32_t out_bytes = 0;
    std::uint32_t deficit = 0;
    // in
    std::uint32_t in_bytes = 0;
    std::uint32_t in_headroom = 0;
  };
  // What every frame touches lies together, in front.
  struct alignas(64) Port {
    std::uint8_t waiting = 0;  // out: classes with frames
    std::uint8_t stopped = 0;  // out: by the neighbour
    // out: what is for these is lost: the watchdog drops it, as they were stopped for so long; or
    // the link is down
    std::uint8_t dropping = 0;
    std::uint8_t turn = 0;  // out: whose round it is
    bool turn_begun = false;
    std::uint8_t stopping = 0;  // in: classes that the neighbour is to stop
    std::uint8_t untold = 0;    // in: of which it does not know; credits: lanes with an update due
    bool control_due = false;
    std::array<Class, classes> of_class;
    VlArbiter arbiter;  // beside the counters; in front it would push a class off the line
    PortCounters counters;
    PauseState pause;
    bool down = false;
  };
  struct LaneCredits {
    CreditSender sender;
    CreditReceiver receiver;
  };
  struct Head {
    Time since;
    Time stalled_until = Time::zero();  // zero: the lane is not
    std::uint32_t discarded_in_row = 0;
  };
  struct Flowlet {
    std::uint32_t flow_hash = 0;
    std::uint16_t port = no_port;
    Time last;
  };

  std::uint16_t choose(Time now, const Frame& frame, std::span<const std::uint16_t> candidates);
  std::uint16_t least_loaded(std::span<const std::uint16_t> candidates, std::uint32_t first) const;
  static void update_pause(Time now, Port& port);
  FrameRef empty_queue(Port& port, std::uint32_t service_class);
  std::uint64_t drop_waiting(Port& port, std::uint32_t service_class);
  void discard_head(Time now, Port& port, std::uint32_t lane, Head& head, Time lifetime);
  void drop_for(Time now, std::uint16_t out_port, const Frame& frame);
  void lose(Time now, Port& port, const Frame& frame);
  void give_back_credits(const Frame& frame);
  bool lets_through(std::uint16_t out_port, const Frame& frame);
  bool change_lane(std::uint16_t out_port, Frame& frame);
  bool admit(std::uint16_t in_port, std::uint16_t out_port, const Frame& frame);
  bool admit_lossless(std::uint16_t in_port, const Frame& frame);
  bool admit_lossy(std::uint16_t out_port, const Frame& frame);
  void release(const Frame& frame);
  void release_shared(Port& in, const Frame& frame);
  void release_credits(const Frame& frame);
  void tell_credits(std::uint16_t in_port, std::uint32_t lane);
  std::uint64_t share() const;
  std::uint64_t stop_threshold() const;
  void talk(std::uint16_t port, std::uint8_t service_class_bit);
  std::uint8_t sendable(const Port& port) const;
  std::uint8_t class_to_send(Port& port, std::uint8_t sendable);
  void mark(Port& port, Frame& frame);
  void watch_leaving(Time now, std::uint16_t port, Frame& frame);
  void mark_congestion(std::uint16_t port, Frame& frame);
  void watch_credits(std::uint16_t port, std::uint8_t lacking);

  const SwitchSettings* settings_;
  FramePool* frames_;
  const SlToVl* lanes_ = nullptr;
  const SwitchPartitions* partitions_ = nullptr;
  Random random_;
  std::uint32_t salt_;
  std::vector<Port> ports_;
  std::vector<LaneCredits> credits_;  // by port and lane; empty without credits
  bool watches_lanes_ = false;        // one of the next two is not empty
  std::vector<Head> heads_;           // by port and lane; empty unless they have a lifetime
  // By port and lane, and by port; empty unless congestion is marked.
  std::vector<LaneCongestion> congestion_;
  std::vector<bool> in_victim_mask_;
  std::vector<Flowlet> flowlets_;  // by hash; empty unless used
  std::vector<std::uint16_t> talkers_;
  std::uint64_t shared_bytes_ = 0;
  std::uint64_t headroom_bytes_ = 0;
  std::uint64_t held_max_ = 0;
  std::uint64_t lossless_drops_ = 0;
  Time last_loss_;
};

}  // namespace tulle::fabric
