#pragma once

// A switch: frames come in at one port, wait in the queue of another, and leave. It is a state
// machine without input or output. The driver tells it the time, hands it frames, and pulls the
// next frame to send from a port whenever that port is free. What happens at a port itself is in
// rdma/port/port.h. The switch forwards by its own table, accounts for its memory, and answers for
// the management of its ports.
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

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/prefetch.h"
#include "base/random.h"
#include "base/time.h"
#include "fabric/endpoint_monitor.h"
#include "fabric/routing.h"
#include "rdma/port/frame.h"
#include "rdma/port/partitions.h"
#include "rdma/port/port.h"
#include "rdma/port/settings.h"
#include "rdma/port/sl_to_vl.h"

namespace tulle::fabric {

class NonMinimalRouting;

// The ways in which a switch chooses among several shortest paths.
enum class PathChoice : std::uint8_t {
  flow,      // by a hash of the flow's addresses and ports: ECMP
  flowlet,   // the same, chosen again after a gap in the flow
  packet,    // at random for each packet: spraying
  adaptive,  // the emptiest queue, in coarse grades; any of equal ones
};

// The settings of a switch and of its ports.
struct SwitchSettings : port::Settings {
  PathChoice path_choice = PathChoice::flow;
  Time flowlet_gap = Time::microseconds(50);
  std::uint64_t buffer_bytes = 32'000'000;  // shared by all ports
  // pfc: a port and class is asked to stop above this many bytes. If 0, the threshold is `alpha`
  // times the rest of the shared memory (Choudhury and Hahne 1998). The class may resume
  // `xon_gap_bytes` below the threshold.
  std::uint32_t xoff_bytes = 0;
  double alpha = 0.125;
  std::uint32_t xon_gap_bytes = 2 * 4'178;
  std::uint32_t headroom_bytes = 100'000;  // for each port and class, on top of the shared memory
  std::uint32_t lossy_queue_bytes = 0;     // longest queue of a lossy class; 0: alpha's share
  // Credits: a frame that has been at the head of a lane's queue for this long is discarded
  // (HOQLife, IBTA 18.2.5.4), at ports to switches and to hosts. Zero means that it may stay there
  // indefinitely.
  Time head_lifetime;
  Time leaf_head_lifetime;

  bool has_head_lifetimes() const {
    return head_lifetime > Time::zero() || leaf_head_lifetime > Time::zero();
  }
};

// Returns the number by which the switch at a node mixes the hashes of flows, which differs from
// switch to switch.
std::uint32_t path_salt(std::uint64_t seed, std::uint32_t node);
// Returns the port that a switch of that salt chooses among its candidates for a flow (ECMP).
// There must be a candidate.
std::uint16_t equal_cost_port(std::uint32_t flow_hash, std::uint32_t salt,
                              std::span<const std::uint16_t> candidates);

using SwitchPartitions = std::vector<port::Partitions>;  // by port

class Switch {
 public:
  static constexpr std::uint16_t no_port = 0xFFFF;
  using Notices = port::ManagementPool<EndpointNotice>;

  Switch(const SwitchSettings& settings, std::uint32_t node, std::uint16_t ports,
         std::uint64_t seed, port::FramePool& frames);

  // --- set-up ---

  // Sets the table by which the switch forwards. It must outlive the switch. With `by_lid`, the
  // table has one port for each LID (IBTA 14.2.5.10: LinearForwardingTable). Otherwise it has all
  // ports that lead to the destination, and the switch chooses.
  void set_routes(const Routes& routes, bool by_lid) {
    routes_ = &routes;
    forwards_by_lid_ = by_lid;
  }
  // Lets frames take other paths than the shortest. `routing` must outlive the switch.
  void set_non_minimal(const NonMinimalRouting& routing) { non_minimal_ = &routing; }
  // Credits: sets the table of lanes on which frames leave. The table must outlive the switch.
  // Without one, a frame stays on the lane by which it came.
  void set_lanes(const port::SlToVl& table) { lanes_ = table.is_default() ? nullptr : &table; }
  // Makes ports let through only frames of their partitions. The table must outlive the switch.
  void set_partitions(const SwitchPartitions& of_ports) { partitions_ = &of_ports; }
  // Says that a host is at the other end of a port's link. By default it is a switch.
  void set_leaf_port(std::uint16_t port) { is_leaf_port_[port] = true; }
  // Makes the switch watch the traffic to the host at a port and send notices to its sources.
  void set_monitor(std::uint16_t port, const EndpointMonitor& monitor);
  // Sets the place of the notices on their way, which must outlive the switch. Without one, the
  // switch sends and forwards none.
  void set_notices(Notices& notices) { notices_ = &notices; }

  // --- a frame comes in ---

  // Takes in a frame that has arrived whole, or as much of it as its path needs, and forwards it by
  // the switch's table. Returns the port in whose queue the frame now waits. Returns no_port if the
  // frame was dropped, and the caller must give it back to the pool.
  std::uint16_t receive(Time now, std::uint16_t in_port, port::FrameRef ref);
  // Do the same with given candidates, or a given output port.
  std::uint16_t receive(Time now, std::uint16_t in_port, port::FrameRef ref,
                        std::span<const std::uint16_t> candidates);
  std::uint16_t receive(Time now, std::uint16_t in_port, port::FrameRef ref,
                        std::uint16_t out_port);
  // The same, on a given lane.
  std::uint16_t receive(Time now, std::uint16_t in_port, port::FrameRef ref, std::uint16_t out_port,
                        std::uint8_t lane);
  // Returns the credits of a frame that has come in and that the caller discards, since it has no
  // way. The caller gives the frame back to the pool.
  void discard_arrival(Time now, std::uint16_t in_port, port::FrameRef ref) {
    drop_unrouted(now, in_port, (*frames_)[ref]);
  }

  // --- a frame leaves ---

  // Returns the next frame to send by a free port, or no_frame if there is none or none may be
  // sent.
  port::FrameRef pull(Time now, std::uint16_t port);
  // True if one of its ports has a control message, a message of management or a frame to send.
  bool has_more(const port::Port& port) const {
    return port.has_control() || port.has_frame() ||
           (notices_ != nullptr && !port.management.empty());
  }
  // Returns a port that has had a message to send since it was last taken here, or no_port if there
  // is none.
  std::uint16_t take_talker() {
    if (!has_talkers()) return no_port;
    const std::uint16_t port = talkers_.back();
    talkers_.pop_back();
    return port;
  }
  bool has_talkers() const { return !talkers_.empty(); }

  // --- links, watchdogs and recovery ---

  // Takes down the link of a port. Returns all frames that waited for it as a list (by
  // Frame::next), which the caller must give back to the pool.
  port::FrameRef take_down(Time now, std::uint16_t port);
  // Returns when a fault last cost a frame. Zero means never.
  Time last_loss() const { return last_loss_; }
  // Trips the watchdog for classes that have been stopped too long. Returns true if the caller must
  // look again later.
  bool watch(Time now, std::uint16_t port);
  // Returns how long a frame may stay at the head of a port's queues. Zero means indefinitely.
  Time head_lifetime(std::uint16_t port) const {
    return is_leaf_port_[port] ? settings_->leaf_head_lifetime : settings_->head_lifetime;
  }
  // Discards the frames that have been there too long. Returns when to check again. Time::never()
  // means that no frame waits and no lane is stalled.
  Time discard_heads(Time now, std::uint16_t port);
  struct Overdue {
    port::FrameRef frames = port::no_frame;  // a list
    Time next = Time::never();               // when more are overdue
  };
  // The same, where a frame may stay there for another time than the settings say. The caller must
  // give the frames back to the pool.
  Overdue take_overdue(Time now, std::uint16_t port, Time lifetime);
  void rebase(Time by);
  // Prepares the switch for routes that change: from now on it drops frames whose destination has
  // no route left. reroute() replaces the table, and avoid() keeps a port from being chosen.
  void expect_recovery() { is_recovering_ = true; }
  void reroute(const Routes& routes) { routes_ = &routes; }
  void avoid(std::uint16_t port, bool is_avoided);

  // --- management ---

  // Forwards a notice that came in, or that this switch sends. Returns its output port, or no_port
  // if the notice has no way and is dropped.
  std::uint16_t forward_notice(std::uint32_t place);
  // Returns the number of notices that this switch has sent.
  std::uint64_t notices() const { return notices_sent_; }

  // Prefetches the memory that the next frames will touch, apart from the ports.
  void prefetch() const {
    tulle::prefetch(&settings_);
    tulle::prefetch(&shared_bytes_);
  }
  port::Port& port(std::uint16_t number) { return ports_[number]; }
  const port::Port& port(std::uint16_t number) const { return ports_[number]; }
  std::uint16_t ports() const { return static_cast<std::uint16_t>(ports_.size()); }
  std::uint64_t bytes_held() const { return shared_bytes_ + headroom_bytes_; }
  std::uint64_t bytes_held_max() const { return held_max_; }
  // Returns the number of frames of lossless classes that found no room, which means that flow
  // control failed.
  std::uint64_t lossless_drops() const { return lossless_drops_; }
  // Draws a number in [0, bound) from this switch's random stream, for choices of path.
  std::uint64_t draw(std::uint64_t bound) { return random_.below(bound); }

 private:
  struct Flowlet {
    std::uint32_t flow_hash = 0;
    std::uint16_t port = no_port;
    Time last;
  };

  // Functions that every frame passes are inlined, although they are long.
  [[gnu::always_inline]] std::uint16_t way_of(Time now, std::uint16_t in_port, port::Frame& frame);
  // Returns the output port of all frames of a flow. It depends on a hash of the flow's addresses
  // and ports, which each switch mixes differently.
  std::uint16_t choose_by_flow(const port::Frame& frame,
                               std::span<const std::uint16_t> candidates) const;
  [[gnu::always_inline]] std::uint16_t take_in(Time now, std::uint16_t in_port, port::FrameRef ref,
                                               port::Frame& frame, std::uint16_t out_port);
  [[gnu::always_inline]] std::uint16_t put(Time now, port::FrameRef ref, port::Frame& frame,
                                           std::uint16_t out_port);
  void enter(std::uint16_t in_port, port::Frame& frame);
  bool has_credits() const { return settings_->flow_control == port::FlowControl::credits; }
  std::uint16_t receive_recovering(Time now, std::uint16_t in_port, port::FrameRef ref);
  std::uint16_t choose(Time now, const port::Frame& frame,
                       std::span<const std::uint16_t> candidates);
  std::uint16_t least_loaded(std::span<const std::uint16_t> candidates, std::uint32_t first) const;
  std::uint64_t give(port::FrameRef first);
  port::FrameRef empty_queue(port::Port& port, std::uint32_t lane);
  void drop_for(Time now, std::uint16_t out_port, const port::Frame& frame);
  void drop_unrouted(Time now, std::uint16_t in_port, port::Frame& frame);
  void lose(Time now, port::Port& port, const port::Frame& frame);
  void give_back_credits(std::uint16_t in_port, std::uint32_t lane, const port::Frame& frame);
  bool lets_through(std::uint16_t out_port, const port::Frame& frame);
  bool change_lane(std::uint16_t out_port, port::Frame& frame);
  [[gnu::always_inline]] bool admit(std::uint16_t out_port, const port::Frame& frame);
  [[gnu::always_inline]] bool admit_lossless(port::Port& in, const port::Frame& frame);
  bool admit_lossy(std::uint16_t out_port, const port::Frame& frame);
  [[gnu::always_inline]] void release(const port::Frame& frame);
  [[gnu::always_inline]] void release_shared(port::Port& in, const port::Frame& frame);
  std::uint64_t share() const;
  std::uint64_t stop_threshold() const;
  void talks(std::uint16_t port, bool has_begun) {
    if (has_begun) talkers_.push_back(port);
  }
  void watch_endpoint(Time now, std::uint16_t out_port, const port::Frame& frame);

  // The members that every frame touches are together, in front.
  const SwitchSettings* settings_;
  port::FramePool* frames_;
  const Routes* routes_ = nullptr;
  const NonMinimalRouting* non_minimal_ = nullptr;  // null: all paths are minimal
  const port::SlToVl* lanes_ = nullptr;
  const SwitchPartitions* partitions_ = nullptr;
  std::vector<port::Port> ports_;
  Notices* notices_ = nullptr;  // null: the switch sends and forwards none
  std::uint64_t shared_bytes_ = 0;
  std::uint64_t headroom_bytes_ = 0;
  std::uint64_t held_max_ = 0;
  std::uint32_t node_;
  std::uint32_t salt_ = 0;
  bool forwards_by_lid_ = false;
  bool is_recovering_ = false;  // true: destinations may have no route, and ports may be dead
  bool has_monitors_ = false;   // true if monitors_ is not empty
  std::vector<std::uint16_t> talkers_;
  Random random_;
  std::vector<bool> is_leaf_port_;
  // The traffic to the hosts at this switch's ports; empty: none is watched.
  std::vector<std::unique_ptr<EndpointMonitor>> monitors_;
  std::vector<std::uint16_t> avoided_;  // ports that the switch knows are dead
  std::vector<std::uint16_t> ways_;
  std::vector<Flowlet> flowlets_;  // by hash; empty unless path_choice is flowlet
  std::uint64_t lossless_drops_ = 0;
  std::uint64_t notices_sent_ = 0;
  Time last_loss_;
};

}  // namespace tulle::fabric
