#pragma once

// A cluster in virtual time: adapters, switches and the links between them, packet by packet.
//
// This driver makes no protocol decisions: adapters and switches are the same state machines as
// everywhere. The driver keeps virtual time and moves frames over links. A port sends one frame
// after the other at its link's rate, and a frame arrives a propagation delay after it was sent. A
// frame costs one event, its arrival, if it finds its port free. If it has to wait, it costs a
// second one, when the port becomes free.
//
// A run is a function of its topology, its settings and the caller's actions. There is no global
// state, each node draws from a separate random stream, and events at the same time are ordered by
// where they happen.
//
// Nodes take turns. In its turn, a node goes through its events of a round. A round is no longer
// than the shortest link's delay, before which no other node can affect it (see rounds.h). An
// observer that must see all events in order of time asks for that order. The simulation's results
// are the same.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/fixed_array.h"
#include "base/random.h"
#include "base/time.h"
#include "device/adapter.h"
#include "device/host_stack.h"
#include "fabric/lane_plan.h"
#include "fabric/non_minimal.h"
#include "fabric/recovery.h"
#include "fabric/routing.h"
#include "fabric/switch.h"
#include "fabric/topology.h"
#include "port/framing/overhead.h"
#include "port/link_layer.h"
#include "port/payloads.h"
#include "port/port.h"
#include "sim/event.h"
#include "sim/faults.h"
#include "sim/intake.h"
#include "sim/rounds.h"
#include "sim/turn.h"
#include "wire/path.h"

namespace tulle::sim {

using port::LinkLayer;

struct HostSettings {
  // Delays in the adapter for every frame: from the cause of a transmission to the first bit on the
  // wire, and from the last bit off the wire until the adapter has acted on the frame.
  Time send_delay;
  Time receive_delay;
  std::uint32_t mtu_bytes = 4'096;
  // One frame of the simulation stands for so many packets of a message. Above 1, mtu_bytes and the
  // segments of TCP are those of that many packets together.
  std::uint32_t train_packets = 1;
  // PFC: an adapter that has asked its neighbour to stop for this long asks no longer, and loses
  // the frames for which it has no room. Zero means no watchdog.
  Time watchdog;
  transport::congestion::Settings congestion;  // DCQCN's line rate is that of each host's link
  transport::RecoverySettings recovery;
  transport::srd::Settings srd;  // the line rate is that of each host's link
  transport::tcp::Settings tcp;
  device::HostStackSettings stack;  // a kernel between adapters and the network
  bool plays_tcp = false;           // frames may be as long as TCP's segments
  bool plays_iwarp = false;         // frames begin with headers that are bytes even before ghosts

  // Returns the longest payload of a frame.
  std::uint32_t payload_bytes_max() const {
    return plays_tcp ? std::max(mtu_bytes, tcp.mss_bytes) : mtu_bytes;
  }
};

struct NetworkSettings {
  std::uint64_t seed = 1;
  LinkLayer link_layer = LinkLayer::ethernet;
  // Ethernet: packets are RoCE v1's. They have no IP header, so that switches can neither mark them
  // nor tell the flows between two hosts apart.
  bool is_roce_v1 = false;
  unsigned lmc = 0;  // InfiniBand: each host has 2^lmc LIDs (IBTA 7.11.1)
  // Latency and mode of a switch, as data sheets give them: from the first bit in to the first bit
  // out of an empty switch, with cut-through. Store-and-forward adds the time of the frame's
  // length.
  Time switch_latency;
  bool cut_through = false;
  // The delay that forward error correction adds to every link (IEEE 802.3 clause 91: some 100 ns
  // for RS(544,514) at 100 Gb/s), and the share of bits that are wrong after it. A frame with a
  // wrong bit is lost at the end of its link.
  Time fec_delay;
  double bit_error_rate = 0;
  // In addition, each host's n-th, 2n-th … data packet is lost on the host's link. 0 means none.
  std::uint32_t lose_every = 0;
  bool carries_bytes = false;  // true: payloads have bytes; false: they are ghosts
  HostSettings host;
  fabric::SwitchSettings switches;
  // Notices from switches to hosts. host.congestion.endpoint_limits then tells the hosts to obey
  // them.
  fabric::EndpointSettings endpoints;
  fabric::LanePlan lanes;  // with credits only
  // Needs a dragonfly and PathChoice::adaptive, without outages.
  fabric::NonMinimalSettings non_minimal;
  // The partition table of each host's port. If empty, all hosts are full members of the default
  // partition, and switches enforce nothing. Otherwise switches may enforce partitions at ports to
  // hosts, for frames that enter and that leave.
  std::vector<std::vector<Pkey>> pkeys;
  bool enforce_inbound = true;
  bool enforce_outbound = true;
  Faults faults;
};

// The framing of the adapters, and the bytes that it adds.
const port::Framing& framing_of(const NetworkSettings& settings);
const port::Overhead& overhead(const NetworkSettings& settings);
// Returns the delay of a frame from one node to its neighbour besides their link's: that of
// adapters, of the switch that it comes to, and of error correction. Ports of aggregation nodes
// have none, and links to them lie inside of a switch.
Time delay_around(const fabric::Topology& topology, const NetworkSettings& settings,
                  std::uint32_t from, std::uint32_t to);
// Returns the rate of each node's fastest link, in bits a second.
std::vector<std::int64_t> fastest_links(const fabric::Topology& topology);
// Returns the most bytes that a frame occupies in a buffer.
std::uint32_t longest_frame_bytes(const NetworkSettings& settings);
// Returns the bytes that the second and all further packets of a train take on a link besides their
// payload: headers, check sums and gaps. It is 0 for a frame that is one packet.
std::uint32_t train_header_bytes(const NetworkSettings& settings, std::uint32_t payload_bytes);

// An event that may concern the application.
struct NetworkEvent {
  enum class Kind : std::uint8_t { nothing, host, alarm };
  Kind kind = Kind::nothing;  // nothing: no event is left
  std::uint32_t host = 0;     // host: has new completions; alarm: host of the alarm
  std::uint32_t token = 0;    // token of an alarm
};

// A frame or message that a port begins to send, and the time at which the other end acts on it.
struct Sending {
  Time now;
  Time arrives;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  const port::Frame* frame = nullptr;  // null: a control message
  port::Control control;
  const std::byte* payload = nullptr;  // payload of the frame; null: a ghost
  std::uint32_t ghost_bytes = 0;       // bytes at the end of the payload that are ghosts
  bool lost = false;                   // the link goes down before the frame arrives
};

// A frame that a switch drops, as it comes in or because its link is gone. The frame's `in_port` is
// the port by which it came.
struct Loss {
  Time now;
  std::uint32_t node = 0;
  const port::Frame* frame = nullptr;
};
// The link of a port goes down or comes up, seen at this end.
struct LinkChange {
  Time now;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  bool is_up = false;
};
// Totals of the frames lost to faults.
struct FaultTotals {
  std::uint64_t frames = 0;    // lost frames
  std::uint64_t bytes = 0;     // bytes of lost frames, as they take room
  std::uint64_t unrouted = 0;  // lost frames that had no route left
  Time last_loss;
};

class Network {
 public:
  Network(const fabric::Topology& topology, const fabric::Routes& routes,
          const NetworkSettings& settings);
  ~Network();
  Network(const Network&) = delete;  // its switches hold pointers into it
  Network& operator=(const Network&) = delete;

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  device::Adapter& adapter(std::uint32_t host) { return hosts_[host].adapter; }
  const device::Adapter& adapter(std::uint32_t host) const { return hosts_[host].adapter; }
  // Returns the address of a host's port: on Ethernet its GID, which is an IPv4 address; on
  // InfiniBand the one of its 2^LMC LIDs that the path bits select.
  PortAddress address_of(std::uint32_t host, std::uint8_t path_bits = 0) const;
  // Return the headers that a frame would have in front of its transport's headers, and which it
  // does not carry: IP and UDP, or on InfiniBand the LRH, for hosts with 2^lmc LIDs.
  static wire::IpUdp ip_of(const port::Frame& frame);
  // Returns the MAC address of a host: a locally administered one (IEEE 802) that holds its number.
  static wire::MacAddress mac_of(std::uint32_t host);
  // The same of a packet of RoCE v1.
  static wire::EthernetPath ethernet_path_of(const port::Frame& frame);
  static wire::LocalRoute local_route_of(const port::Frame& frame, unsigned lmc);
  // Returns the time of the host whose event run() returned. If run() found no more events, it is
  // the time of the last one.
  Time now() const { return now_; }

  // Lets a host act. The caller must call this when the application has given the host something to
  // do. In answer to an event, only the host of that event may be named.
  void attend(std::uint32_t host);
  // Plans an event for the application. In answer to an event, an event at another host must be at
  // least lookahead() later.
  void alarm(Time at, std::uint32_t host, std::uint32_t token);
  // Lets events happen until one concerns the application, or the next is later than `until`.
  // `until` must not be earlier than in the previous call.
  NetworkEvent run(Time until = Time::never());
  // Returns how soon a node can be affected by another: the shortest delay of a link.
  Time lookahead() const { return lookahead_; }

  // Makes all events happen in order of time. The caller must call this before anything has
  // happened.
  void order_by_time();
  // Sets an observer of every frame and control message, in order of time.
  void on_send(std::function<void(const Sending&)> told) {
    order_by_time();
    on_send_ = std::move(told);
  }

  // Reroutes around links that are down. Without it, all frames for a dead port are lost.
  // `recovery` must outlive the network. The caller must call this before anything has happened.
  void follow(const fabric::Recovery& recovery);
  // Sets an observer of lost frames, beside on_send().
  void on_loss(std::function<void(const Loss&)> told) { on_loss_ = std::move(told); }
  void on_link_change(std::function<void(const LinkChange&)> told) {
    on_link_change_ = std::move(told);
  }
  FaultTotals fault_totals() const;
  // Returns null if the host has no kernel stack.
  const device::HostStack* stack(std::uint32_t host) const;

  // Returns the time of the next event. Time::never() means that no event is left.
  Time next_event();

  std::uint64_t events() const { return events_; }
  // Returns the sum over data packets of the links that they were sent over.
  std::uint64_t data_packet_hops() const { return data_hops_; }
  std::uint64_t frames_sent() const { return all_hops_; }
  // Returns the number of notices that switches have sent to hosts about endpoints.
  std::uint64_t notices() const;
  const fabric::Switch& switch_at(std::uint32_t node) const { return switches_[node - hosts()]; }
  // Returns the counters of a port's sending side.
  const port::Counters& counters(std::uint32_t node, std::uint16_t port) const {
    return port_at(node, port).counters();
  }
  // Returns a port of an adapter or of a switch.
  const port::Port& port_at(std::uint32_t node, std::uint16_t port) const {
    return *ends_[end_index(node, port)].port;
  }
  const port::FramePool& frames() const { return frames_; }

 private:
  static constexpr std::uint32_t first_address = 0x0A00'0001;  // 10.0.0.1
  static Gid gid_of(std::uint32_t host) { return Gid::from_ipv4(first_address + host); }
  wire::Path path_of(const port::Frame& frame) const;

  // The kinds of events, in the order in which they happen at one time and node.
  enum Kind : std::uint8_t {
    fault,
    control,
    arrival,
    port_free,
    deadline,
    application,
    pause_end,
    pause_renewal,
    watchdog,
    slow_arrival,  // arrival at a host with an intake
    taken_in,      // a host with an intake has taken in a frame
    notice,        // arrival of a notice from a switch
    stack_work,    // work of a host's kernel
  };

  // Connects a host's kernel stack to the network.
  struct KernelDriver;
  struct Host {
    explicit Host(const device::Configuration& configuration);
    ~Host();
    device::Adapter adapter;
    std::uint64_t completions = 0;
    std::uint32_t since_lost = 0;  // data packets since the last loss, with lose_every
    Time deadline_planned = Time::never();
    std::unique_ptr<KernelDriver> kernel;  // null: the adapter does all the work
    std::unique_ptr<Intake> intake;        // null: the adapter always takes frames in at once
  };
  // One end of a link, from the sender's view, and its identity for events that name it.
  struct LinkEnd {
    port::Port* port = nullptr;  // the adapter's or the switch's
    std::uint32_t node = 0;
    std::uint16_t number = 0;
    std::int64_t busy_until = 0;  // ps
    std::int64_t delay = 0;       // ps, of the link and of the delays around it
    std::int64_t picoseconds_per_byte = 0;
    std::uint32_t peer = 0;
    std::uint16_t peer_port = 0;
    std::uint8_t waits_for = 0;  // conditions before it may send: the bits below
    Kind arrives_as = arrival;   // kind of event that a frame is at the other end
    bool pause_end_planned = false;
    bool renewal_planned = false;
    bool watchdog_planned = false;
    bool peer_cuts_through = false;
    std::int64_t bits_per_second = 0;
  };
  // Bits of LinkEnd::waits_for.
  static constexpr std::uint8_t its_becoming_free = 1;
  static constexpr std::uint8_t its_link = 2;

  // Faults of a link, from the sender's view.
  struct PortFaults {
    // Future times at which the link goes down, the last one first.
    std::vector<std::int64_t> downs;
    double bit_error_rate = 0;
  };
  // A change at one node. The event's port tells which link or host it concerns.
  struct FaultAction {
    enum class Kind : std::uint8_t {
      go_down,
      come_up,
      bit_errors,
      slow_down,
      recover,
      reroute,
      avoid,
      stop_avoiding,
    };
    Kind kind{};
    double bit_error_rate = 0;
    std::int64_t bits_per_second = 0;        // slow_down
    const fabric::Routes* routes = nullptr;  // reroute
  };
  std::size_t end_index(std::uint32_t node, std::uint16_t port) const {
    return first_end_[node] + port;
  }
  bool is_host(std::uint32_t node) const { return node < hosts_.size(); }
  void connect(const fabric::Topology& topology, const fabric::Link& link,
               const std::vector<std::int64_t>& fastest);
  void set_victim_mask(const fabric::Link& link);
  void set_up_switch(fabric::Switch& at, std::uint32_t node);
  void set_partitions(const fabric::Topology& topology);
  void exchange_credits();
  void set_up_rounds();
  bool begin_turn(Time until);
  void prepare_turn(std::uint32_t node);
  void look_ahead();
  void fetch_frame(std::size_t ahead);
  std::uint32_t turn_of(std::uint32_t node) const { return in_order_of_time_ ? 0 : node; }
  bool handle(Kind kind, std::uint32_t node, std::uint16_t port, std::uint32_t datum);
  void arrive_at_host(std::uint32_t host, port::FrameRef frame);
  // Hosts with a kernel stack are in network_stack.cc.
  void set_up_stacks();
  void arrive_at_kernel(std::uint32_t host, port::FrameRef frame);
  void attend_kernel(std::uint32_t host);
  void run_kernel(std::uint32_t host);
  port::FrameRef pull_from_kernel(std::uint32_t host);
  bool kernel_has_frame(const Host& host) const;
  QpNumber receiver_of(const port::Frame& frame) const;
  void hand_over(std::uint32_t host, port::FrameRef frame);
  void hand_over_segment(std::uint32_t host, port::FrameRef frame);
  void arrive_at_switch(std::uint32_t node, std::uint16_t in_port, port::FrameRef frame);
  void handle_control(std::uint32_t node, std::uint16_t port, port::Control control);
  void handle_pause(LinkEnd& end, port::Control control);
  static Time pause_time(const LinkEnd& end, const NetworkSettings& settings);
  void end_pauses(std::uint32_t node, std::uint16_t port);
  void renew_pause(std::uint32_t node, std::uint16_t port);
  void watch(std::uint32_t node, std::uint16_t port);
  void plan_head_watch(std::uint32_t node, std::uint16_t port);
  void watch_heads(std::uint32_t node, std::uint16_t port);
  void plan_once(bool& planned, Time at, std::uint32_t node, std::uint16_t port, Kind kind);
  void kick(std::uint32_t node, std::uint16_t port);
  void kick_talkers(std::uint32_t node);
  port::FrameRef pull_from_host(std::uint32_t host);
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
  void tell_sending(Time arrives, const LinkEnd& end, port::FrameRef frame, bool lost);
  bool has_more(std::uint32_t node, std::uint16_t port) const;
  void send(LinkEnd& end, port::FrameRef frame);
  void send_control(LinkEnd& end, port::Control control);
  static void take_in(port::Port& port, const port::Frame& frame);
  void discard(std::uint32_t node, std::uint16_t port, port::FrameRef ref);
  static std::int64_t time_on_link(const LinkEnd& end, std::uint32_t bytes);
  void plan(std::int64_t at, std::uint32_t node, std::uint16_t port, Kind kind,
            std::uint32_t datum);
  void plan_deadline(std::uint32_t host);

  // Faults are in network_faults.cc.
  void plan_faults(const fabric::Topology& topology);
  void plan_outages(const fabric::Topology& topology);
  void plan_bit_errors(const fabric::Topology& topology);
  void plan_slow_hosts();
  void plan_action(Time at, std::uint32_t node, std::uint16_t port, const FaultAction& action);
  void handle_fault(std::uint32_t node, std::uint16_t port, const FaultAction& action);
  void go_down(std::uint32_t node, std::uint16_t port);
  void come_up(std::uint32_t node, std::uint16_t port);
  bool disturb(const LinkEnd& end, port::Frame& frame, std::int64_t arrives);
  PortFaults& faults_of(const LinkEnd& end) {
    return port_faults_[end_index(end.node, end.number)];
  }
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

  // Notices are in network_notices.cc.
  void set_up_notices();
  void handle_notice(std::uint32_t node, std::uint32_t place);
  bool send_notice(LinkEnd& end);

  NetworkSettings settings_;
  const fabric::Routes& routes_;
  Time now_;
  port::FramePool frames_;
  std::unique_ptr<port::Payloads> payloads_;  // null: ghosts
  bool carries_fronts_ = false;  // true: headers in front of ghosts are carried as bytes
  FixedArray<Host> hosts_;
  std::vector<Random> noise_;  // by sending node; empty without bit errors
  // True if links may lose frames. With faults, the next member says how, by port.
  bool disturbed_ = false;
  std::vector<PortFaults> port_faults_;
  std::vector<FaultAction> fault_actions_;
  fabric::Switch::Notices notices_;                         // from switches to hosts
  std::unique_ptr<fabric::NonMinimalRouting> non_minimal_;  // null: all paths are minimal
  Time last_loss_;                                          // latest loss on a link or at a host
  std::vector<fabric::SwitchPartitions> partitions_;        // by switch; empty without partitions
  std::vector<fabric::Switch> switches_;
  std::vector<std::uint32_t> first_end_;  // by node: index of its first port's end in ends_
  std::vector<LinkEnd> ends_;
  Time lookahead_ = Time::never();
  Time short_turn_;
  bool has_head_lifetimes_ = false;
  bool has_kernels_ = false;       // true: each host has a kernel
  bool in_order_of_time_ = false;  // true: all nodes share one turn
  std::unique_ptr<Rounds> rounds_;
  Turn events_of_turn_;
  std::uint32_t turn_ = Rounds::no_node;  // node whose turn it is
  Time turn_end_;
  std::uint32_t next_block_ = Rounds::none;  // block of the next turn's events to look at next
  Time latest_;                              // latest time of any event so far
  device::Datagram outgoing_;
  wire::Packet handed_over_;  // a member because decoding clears it
  std::function<void(const Sending&)> on_send_;
  std::function<void(const Loss&)> on_loss_;
  std::function<void(const LinkChange&)> on_link_change_;
  std::uint64_t events_ = 0;
  std::uint64_t data_hops_ = 0;
  std::uint64_t all_hops_ = 0;
};

}  // namespace tulle::sim
