#pragma once

// The packets with data of an InfiniBand subnet: those of programs on its hosts, from port to port
// as the nodes' tables say. The switches are those of a simulation (fabric/switch.h), with credits
// on each link. It is a state machine without input or output. Packets take no time on a link
// unless rates are kept, and wait only where credits are missing or a program does not take them.
//
// A host's port is a switch as well, with the cable at one port and a port for each program that
// has a slot of the host (IBTA 10.2.5 leaves open how an adapter shares its port). A packet is for
// the program that has the slot of its destination queue pair.
//
// A packet is the bytes from its LRH to its pad. The checks are left to the code that carries
// packets between machines: here, packets are in this process's memory.
//
// A cable whose other end is elsewhere (fabric/subnet.h) loses packets. The two ends tell each
// other again and again how much they have sent, so that no credits are lost for ever.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "fabric/attached_programs.h"
#include "fabric/link_states.h"
#include "fabric/link_times.h"
#include "fabric/multicast_numbers.h"
#include "fabric/node_port.h"
#include "fabric/packet_store.h"
#include "fabric/port_queue.h"
#include "fabric/subnet.h"
#include "fabric/switch.h"
#include "fabric/waiting_ports.h"
#include "fabric/written_arbitration.h"
#include "rdma/port/flow_control/control.h"
#include "rdma/port/frame.h"
#include "rdma/wire/path.h"

namespace tulle::fabric {

class SubnetTraffic {
 public:
  // Returns the slot that has a queue pair, from 1 to slots_max.
  using SlotOf = std::uint32_t (*)(QpNumber qp);
  static constexpr std::uint32_t slots_max = AttachedPrograms::slots_max;
  static constexpr std::uint32_t packet_bytes_max = PacketStore::packet_bytes_max;
  static constexpr std::uint32_t packets_max = PacketStore::packets_max;
  static constexpr std::uint32_t packets_of_host_max = PacketStore::packets_of_host_max;
  // A packet that has made so many hops is discarded, since tables that lead in a circle would keep
  // it for ever.
  static constexpr std::uint32_t hops_max = 64;
  static constexpr int steps_max = 16'384;  // in one call of run(), each of one port

  // The subnet must outlive this object.
  SubnetTraffic(Time now, Subnet& subnet, SlotOf slot_of);
  ~SubnetTraffic();
  SubnetTraffic(const SubnetTraffic&) = delete;
  SubnetTraffic& operator=(const SubnetTraffic&) = delete;

  using Program = AttachedProgram;
  void attach(Time now, Program program);
  // A program that takes nothing for `stopped_patience` is stopped, or slow because it waits for a
  // processor, say. A slow one has `slow_patience` before it loses what comes. A packet between
  // switches may wait for longer, so that a slow program alone loses packets. `is_slow` tells the
  // two apart; without it, all are stopped.
  static constexpr Time stopped_patience = Time::milliseconds(100);
  static constexpr Time slow_patience = Time::milliseconds(1'000);
  void tell_slow_from_stopped(std::function<bool(Program)> is_slow) {
    is_slow_ = std::move(is_slow);
  }
  // Discards what waits for a program.
  void detach(Time now, Program program);

  // Takes a program's packet. Its bytes may change while they are read. One that cannot be valid is
  // discarded, and counted: it says another length, comes from a LID that its port does not have,
  // or is a management packet.
  enum class Offer : std::uint8_t {
    taken,
    no_room,  // its lane has none: offer it again after run() has moved something
  };
  Offer offer(Time now, Program program, std::span<const std::byte> packet);

  // Lets packets take as long on links as these have bits of data for, by their active widths and
  // speeds. Otherwise, packets take no time.
  void keep_rates() { link_times_.keep_rates(); }

  // Follows what the manager and the cables have done to links, and what it has written of the
  // arbitration among lanes, since the last call.
  void follow(Time now);
  // Moves packets as far as they go, and discards those that have waited too long. Returns false if
  // it stopped earlier, after a fixed number of steps, so that others have their turn.
  bool run(Time now);
  // Returns true if links make up for time that was missed: run() has let a packet's time go by, or
  // a few, and the next call lets more go by. Programs offer and take packets between these calls,
  // as they would have done.
  bool is_behind() const { return link_times_.is_behind(); }
  // Returns a program for which packets have come, once after they have.
  std::optional<Program> take_ready() { return programs_.take_ready(); }
  // Returns the next packet for a program, or nothing. The bytes are valid until the next call of a
  // function of this object.
  std::span<const std::byte> take(Time now, Program program);
  // A program that took nothing for too long, so that what comes for it is discarded at once, has
  // room again. is_given_up() tells of such a program.
  bool is_given_up(Program program) const;
  void resume(Time now, Program program);
  // Returns true if a packet waits for a program.
  bool has_packet(Program program) const;
  // A packet that a port sends over a link.
  struct Sent {
    std::uint32_t node = 0;
    std::uint16_t port = 0;  // from 1 on
    std::uint8_t lane = 0;
    std::span<const std::byte> packet;  // its LRH may name another lane
  };
  // Sets an observer of all that links carry, or none.
  void on_send(std::function<void(const Sent&)> told) { on_send_ = std::move(told); }
  // Credits that a port tells the other end of its link, and what it has sent itself on that lane
  // in total, in blocks of 64 bytes modulo 2^12.
  struct Told {
    std::uint32_t node = 0;
    std::uint16_t port = 0;  // from 1 on
    port::CreditUpdate update;
    std::uint32_t total_sent = 0;
  };
  // Sets an observer of these, or none.
  void on_tell(std::function<void(const Told&)> told) { on_tell_ = std::move(told); }
  // Returns when run() must be called although nothing has happened.
  Time next_event() const {
    if (!to_send_.empty() || is_behind()) return Time::zero();
    return std::min(waiting_.next_check(), link_times_.next());
  }
  void rebase(Time by);

  // --- cables to other machines ---

  // A packet that crosses a link.
  struct Crossing {
    std::uint32_t link = 0;
    std::uint8_t lane = 0;
    std::uint8_t hops = 0;
    std::uint32_t number = 0;  // of a multicast packet, which differs from those of all others
    std::span<const std::byte> packet;  // its LRH may name another lane
  };
  // Carries what crosses links.
  class Carrier {
   public:
    virtual ~Carrier() = default;
    // Returns false if a packet over the link must wait.
    virtual bool has_room(std::uint32_t link) const = 0;
    virtual void carry(const Crossing& crossing) = 0;
    virtual void tell(std::uint32_t link, port::CreditUpdate update, std::uint32_t total_sent) = 0;
  };
  // Sets what carries packets over the links that lead elsewhere. It must outlive this object. The
  // numbers of multicast packets continue from `first`, whose upper 8 bits they keep: these are
  // those of this machine alone. The others should differ from life to life of the process, since
  // switches elsewhere remember them.
  void set_carrier(Carrier& carrier, std::uint32_t first);
  // A packet has come from the other end. One for which its lane has no room is discarded, and
  // counted: nobody sends that who keeps to the credits.
  void arrive(Time now, const Crossing& crossing);
  // The other end of a link tells credits, and how much it has sent in total.
  void take_credits(Time now, std::uint32_t link, port::CreditUpdate update,
                    std::uint32_t total_sent);
  // Tells the credits of all lanes of a link, as is done from time to time.
  void tell_again(std::uint32_t link);

  struct Counters {
    std::uint64_t packets = 0;    // that came from programs
    std::uint64_t delivered = 0;  // to programs
    std::uint64_t invalid = 0;
    std::uint64_t unrouted = 0;    // no table has a way, or no program has the queue pair
    std::uint64_t overdue = 0;     // waited for too long
    std::uint64_t laneless = 0;    // their service level has no lane there
    std::uint64_t foreign = 0;     // a switch's port is not of their partition
    std::uint64_t lost = 0;        // their link went down, or their program went
    std::uint64_t uncredited = 0;  // came from elsewhere without credits
  };
  Counters counters() const { return counters_; }

 private:
  using At = NodePort;
  static constexpr std::uint16_t cable = 0;  // of a host
  // Copies of multicast packets come in by their own port, which has no neighbour. So a copy takes
  // no credits of the link by which the original came.
  std::uint16_t copies_of(std::uint32_t node) const {
    return static_cast<std::uint16_t>(nodes_[node]->ports() - 1);
  }
  bool is_host(std::uint32_t node) const { return subnet_.topology().is_host(node); }
  bool is_program(At at) const {
    return is_host(at.node) && at.port != cable && at.port != copies_of(at.node);
  }
  At end_here(std::uint32_t link) const;
  void send_elsewhere(Time now, At at, std::uint32_t link);
  void ensure_host(std::uint32_t host);
  bool label(port::FrameRef ref, std::uint32_t host);
  std::optional<std::uint8_t> lane_of(At in, std::uint16_t out, const port::Frame& frame);
  void arrive(Time now, At at, port::FrameRef ref);
  void arrive_at_switch(Time now, At at, port::FrameRef ref, Lid to);
  void arrive_at_host(Time now, At at, port::FrameRef ref, Lid to);
  // `came_by` is the port by which the packet, or its original, came in.
  void forward(Time now, At in, port::FrameRef ref, std::uint16_t out, std::uint16_t came_by);
  void spread(Time now, At in, port::FrameRef ref, std::span<const std::uint16_t> outs);
  void discard(Time now, At in, port::FrameRef ref, std::uint64_t& counter);
  void discard(Time now, At in, port::FrameRef ref);
  bool carries(At at) const;
  void kick(At at) { to_send_.push(at); }
  void send_all(Time now, At at);
  bool is_link_free(At at);
  void take_link(At at, const port::Frame& frame);
  void talk(std::uint32_t node);
  std::uint32_t told(At at, port::CreditUpdate update);
  void leave(At at, port::FrameRef ref);
  auto& counters_of(At at) {
    return subnet_.counters(at.node, static_cast<std::uint8_t>(at.port + 1));
  }
  bool discard_heads(Time now, At at);
  Time head_lifetime(Time now, At at) const;
  void set_link(Time now, At at, bool is_up);
  void follow_arbitration(std::uint32_t node);

  Subnet& subnet_;
  SlotOf slot_of_;
  std::unique_ptr<const SwitchSettings> switch_settings_;
  std::unique_ptr<const SwitchSettings> host_settings_;
  WrittenArbitration arbitration_;
  PacketStore packets_;
  std::vector<std::unique_ptr<Switch>> nodes_;  // null: a host that had no program
  AttachedPrograms programs_;
  LinkStates link_states_;
  PortQueue to_send_;
  WaitingPorts waiting_;
  LinkTimes link_times_;
  std::vector<std::uint16_t> outs_;
  MulticastNumbers multicast_numbers_;
  port::FrameRef taken_ = port::no_frame;     // the frame that take() has shown
  std::function<bool(Program)> is_slow_;      // null: none is
  std::function<void(const Sent&)> on_send_;  // null: nobody observes
  std::function<void(const Told&)> on_tell_;
  Carrier* carrier_ = nullptr;  // null: all nodes are here
  std::vector<At> held_back_;   // ports whose carrier has no room
  Counters counters_;
};

}  // namespace tulle::fabric
