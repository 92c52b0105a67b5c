#pragma once

// A switch: frames come in at one port, wait in the queue of another, and leave. It is a state
// machine without input or output. The driver tells it the time, hands it frames and control
// messages, and pulls the next frame to send from a port whenever that port is free.
//
// Memory is accounted by the input port, since only the neighbour at that port can be asked to
// stop:
//   none     no neighbour is asked; a frame that finds no room is lost
//   pfc      each port and class may fill its share of the memory, asks its neighbour to stop
//            beyond that, and has headroom for the frames that arrive until the neighbour has
//            stopped (IEEE 802.1Qbb)
//   credits  each port and virtual lane has separate memory, and the neighbour sends only as much
//            as it was told fits (IBTA 7.9)
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

// The ways in which a switch chooses among several shortest paths.
enum class PathChoice : std::uint8_t {
  flow,      // by a hash of the flow's addresses and ports: ECMP
  flowlet,   // the same, chosen anew after a gap in the flow
  packet,    // at random for each packet: spraying
  adaptive,  // the emptiest queue, in coarse grades; any of equal ones
};

// Random early detection on a queue's bytes (Floyd and Jacobson 1993), as DCQCN's congestion point
// uses it. Frames are never marked up to least_bytes, with a probability that rises to
// `probability` at most_bytes, and always beyond.
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
  // pfc: a port and class is asked to stop above this many bytes. If 0, the threshold is `alpha`
  // times the rest of the shared memory (Choudhury and Hahne 1998). The class may go on
  // `xon_gap_bytes` below the threshold.
  std::uint32_t xoff_bytes = 0;
  double alpha = 0.125;
  std::uint32_t xon_gap_bytes = 2 * 4'178;
  std::uint32_t headroom_bytes = 100'000;  // for each port and class, beside the shared memory
  std::uint8_t lossless_classes = 0xFF;    // classes that PFC protects
  std::uint32_t pause_quanta = pause_quanta_max;  // pause time of a request to stop, until renewed
  // If a neighbour keeps a class stopped for this long, the frames that wait for it and those that
  // arrive are dropped until the class may go on: one stuck adapter must not stop a fabric. Zero
  // means no watchdog.
  Time watchdog;
  std::uint32_t lossy_queue_bytes = 0;  // longest queue of a lossy class; 0: alpha's share
  // Credits: a frame that stands at the head of a lane's queue for this long is discarded (HOQLife,
  // IBTA 18.2.5.4), at ports to switches and to hosts. Zero means that it may stand there
  // indefinitely.
  Time head_lifetime;
  Time leaf_head_lifetime;
  // A lane that discards this many frames in a row discards all arriving frames for eight lifetimes
  // (VLStallCount). 0 means never.
  std::uint32_t stall_count = 0;
  std::uint32_t lane_buffer_bytes = 131'008;  // credits: for each port and lane; 2,047 blocks
  EcnSettings ecn;
  CongestionSettings congestion;  // credits only
  VlArbitration arbitration;      // credits: a lane's share of a link
  // pfc, none: a class's share of a link in bytes a round (deficit round robin, Shreedhar and
  // Varghese 1995). A class with 0 comes before all classes that have a share, the highest class
  // first.
  std::array<std::uint32_t, classes> quantum_bytes = {4'200, 4'200, 4'200, 4'200,
                                                      4'200, 4'200, 0,     0};
};

struct PortCounters {
  std::uint64_t frames = 0;             // sent
  std::uint64_t bytes = 0;              // sent, with all bytes that take time on the link
  std::uint32_t queue_bytes_max = 0;    // longest queue of one class waiting to be sent
  std::uint32_t ingress_bytes_max = 0;  // most bytes of one class that came in and had not left
  std::uint64_t marked = 0;             // frames that no switch had marked before
  std::uint64_t dropped = 0;            // frames without room, on their way to this port
  std::uint64_t pauses = 0;             // stop messages received
  std::int64_t paused_ps = 0;           // time during which some class was stopped
  std::uint64_t damaged = 0;            // frames sent that a bit error destroyed
  std::uint64_t watchdog_trips = 0;
  std::uint64_t watchdog_dropped = 0;  // frames
  std::uint64_t credit_stalls = 0;     // times that all waiting frames lacked credits
  std::uint64_t pkey_dropped_in = 0;   // frames of a partition that may not enter here
  std::uint64_t pkey_dropped_out = 0;  // frames of a partition that may not leave here
  // Frames that stood at the head of their queue too long, or arrived while their lane discarded
  // everything.
  std::uint64_t discarded = 0;
  std::uint64_t unmapped = 0;  // frames dropped on their way to this port: no lane for their level
  // Frames lost to a fault: those that waited for or were sent to a link that was down, those that
  // were on the link when it went down, and those that came in here (by a switch's port) and had no
  // route left.
  std::uint64_t lost = 0;
  std::uint64_t lost_bytes = 0;  // bytes of the lost frames, as they take room
  std::uint64_t unrouted = 0;    // lost frames that had no route left
};

class Switch {
 public:
  static constexpr std::uint16_t no_port = 0xFFFF;

  Switch(const SwitchSettings& settings, std::uint32_t node, std::uint16_t ports,
         std::uint64_t seed, FramePool& frames);

  // Credits: sets the table of lanes on which frames leave. The table must outlive the switch.
  // Without one, a frame stays on the lane by which it came.
  void set_lanes(const SlToVl& table) { lanes_ = table.is_default() ? nullptr : &table; }

  // Makes ports let through only frames of their partitions. The table must outlive the switch.
  void set_partitions(const SwitchPartitions& of_ports) { partitions_ = &of_ports; }

  // Credits: lets a port mark the frames that it sends even if it is a victim of congestion (IBTA
  // annex A10).
  void mark_as_victim(std::uint16_t port) { in_victim_mask_[port] = true; }

  // Takes in a frame that has arrived whole, or as much of it as its path needs. Returns the port
  // in whose queue the frame now waits. Returns no_port if the frame was dropped, and the caller
  // must give it back to the pool.
  std::uint16_t receive(Time now, std::uint16_t in_port, FrameRef ref,
                        std::span<const std::uint16_t> candidates);
  // Does the same with a known output port.
  std::uint16_t receive(Time now, std::uint16_t in_port, FrameRef ref, std::uint16_t out_port);
  // Returns the output port of all frames of a flow. It depends on a hash of the flow's addresses
  // and ports, which each switch mixes differently.
  std::uint16_t choose_by_flow(const Frame& frame, std::span<const std::uint16_t> candidates) const;
  // Drops an incoming frame under credit flow control and returns the credits for its room to the
  // sender.
  void take_in_lost(std::uint16_t in_port, const Frame& frame);
  // Drops an incoming frame that has no route left to its destination.
  void drop_unrouted(Time now, std::uint16_t in_port, Frame& frame);
  // Takes down the link of a port. Returns all frames that waited for it as a list (by
  // Frame::next), which the caller must give back to the pool. Until bring_up(), frames for the
  // port are lost, and its neighbour stops nothing.
  FrameRef take_down(Time now, std::uint16_t port);
  // Brings the link of a port up again. Its credits are counted anew (IBTA 7.9.4: a link's
  // initialisation sets FCTBS and ABR to 0), and the neighbour is sent the current state of flow
  // control.
  void bring_up(std::uint16_t port);
  // Returns when a fault last cost a frame. Zero means never.
  Time last_loss() const { return last_loss_; }

  // Returns the next frame to send by a free port, or no_frame if there is none or none may be
  // sent.
  FrameRef pull(Time now, std::uint16_t port);
  // True if pull() would find a frame.
  bool has_frame(std::uint16_t port) const { return sendable(ports_[port]) != 0; }

  // Handles a control message that came in at a port and says what that port may send. A pause
  // holds for `pause`, unless renewed. Returns true if a class was stopped that was not stopped
  // before.
  bool handle_control(Time now, std::uint16_t port, const Control& control,
                      Time pause = Time::never());
  // Ends the pauses that have run out. Returns when the next one does.
  Time expire_pauses(Time now, std::uint16_t port);
  // Repeats to the neighbour which classes it must stop. Returns false if there are none.
  bool renew_stops(std::uint16_t port);
  // Trips the watchdog for classes that have been stopped too long. Returns true if the caller must
  // look again later.
  bool watch(Time now, std::uint16_t port);
  // Discards frames that have stood at the head of a port's queues for `lifetime`. Returns when to
  // look again. Time::never() means that no frame waits and no lane is stalled.
  Time discard_heads(Time now, std::uint16_t port, Time lifetime);
  // Returns the next control message for the neighbour at a port. Kind none means that there is
  // nothing to say.
  Control pull_control(std::uint16_t port);
  bool has_control(std::uint16_t port) const { return ports_[port].control_due; }
  // Returns a port that has had a control message to send since it was last taken here, or no_port
  // if there is none.
  std::uint16_t take_talker() {
    if (talkers_.empty()) return no_port;
    const std::uint16_t port = talkers_.back();
    talkers_.pop_back();
    return port;
  }

  const PortCounters& counters(std::uint16_t port) const { return ports_[port].counters; }
  PortCounters& counters(std::uint16_t port) { return ports_[port].counters; }
  // Prefetches the memory that the frames of a class or two will touch.
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
  // Returns the number of frames of lossless classes that found no room, which means that flow
  // control failed.
  std::uint64_t lossless_drops() const { return lossless_drops_; }
  // Returns the bytes of a class that came in at a port and have not left.
  std::uint32_t ingress_bytes(std::uint16_t port, std::uint32_t service_class) const {
    return ports_[port].of_class[service_class].in_bytes;
  }
  // Returns the bytes of all classes that wait for a port.
  std::uint64_t queue_bytes(std::uint16_t port) const {
    std::uint64_t bytes = 0;
    for (const Class& queue : ports_[port].of_class) bytes += queue.out_bytes;
    return bytes;
  }
  // Draws a number in [0, bound) from this switch's random stream, for choices of path.
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
  // The members that every frame touches lie together, in front.
  struct alignas(64) Port {
    std::uint8_t waiting = 0;  // out: classes with frames
    std::uint8_t stopped = 0;  // out: classes that the neighbour has stopped
    // out: classes whose frames are dropped, because the watchdog tripped, the lane is stalled or
    // the link is down
    std::uint8_t dropping = 0;
    std::uint8_t turn = 0;  // out: class whose round it is
    bool turn_begun = false;
    std::uint8_t stopping = 0;  // in: classes that the neighbour must stop
    // in: classes to tell the neighbour; credits: lanes with an update due
    std::uint8_t untold = 0;
    bool control_due = false;
    std::array<Class, classes> of_class;
    VlArbiter arbiter;  // beside the counters, as in front it would push a class off the cache line
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
    Time stalled_until = Time::zero();  // zero: the lane is not stalled
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
  bool watches_lanes_ = false;        // true if heads_ or congestion_ is not empty
  std::vector<Head> heads_;           // by port and lane; empty unless frames have a lifetime
  // Indexed by port and lane, and by port. Both are empty unless congestion is marked.
  std::vector<LaneCongestion> congestion_;
  std::vector<bool> in_victim_mask_;
  std::vector<Flowlet> flowlets_;  // by hash; empty unless path_choice is flowlet
  std::vector<std::uint16_t> talkers_;
  std::uint64_t shared_bytes_ = 0;
  std::uint64_t headroom_bytes_ = 0;
  std::uint64_t held_max_ = 0;
  std::uint64_t lossless_drops_ = 0;
  Time last_loss_;
};

}  // namespace tulle::fabric
