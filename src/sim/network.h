#pragma once

// A cluster in virtual time: adapters, switches and the links between them, packet by packet.
//
// What decides is not here: adapters and switches are the state machines that they are anywhere.
// This driver keeps virtual time, and moves frames over links: a port sends one frame after the
// other at its link's rate, and what is sent arrives a propagation delay later. A frame costs one
// event, its arrival, where it finds its port free, and a second one, the port's becoming free,
// where it has to wait.
//
// A run is a function of its topology, settings and of what the caller does. Nothing is global,
// each node draws from a random stream of its own, and events at the same time are ordered by where
// they happen.
//
// Nodes take turns: each goes through its events of a round that is no longer than the shortest
// link's delay, before which nothing that another does can reach it (see rounds.h). Who has to see
// all that happens in the order of time asks for that; what happens is the same.

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
#include "fabric/non_minimal.h"
#include "fabric/payloads.h"
#include "fabric/recovery.h"
#include "fabric/routing.h"
#include "fabric/switch.h"
#include "fabric/topology.h"
#include "link/link_layer.h"
#include "link/overhead.h"
#include "sim/event.h"
#include "sim/faults.h"
#include "sim/intake.h"
#include "sim/notices.h"
#include "sim/rounds.h"
#include "sim/turn.h"
#include "wire/path.h"

namespace tulle::sim {

using link::LinkLayer;

struct HostSettings {
  // In the adapter, of every frame: from what made it send to the first bit on the wire, and from
  // the last bit off the wire to its having acted on it.
  Time send_delay;
  Time receive_delay;
  std::uint32_t mtu_bytes = 4'096;
  // PFC: an adapter that has asked its neighbour to stop for so long asks no more, and loses what
  // it has no room for. Zero: no such watchdog.
  Time watchdog;
  transport::congestion::Settings congestion;  // DCQCN's line rate is each host's own link's
  transport::RecoverySettings recovery;
  transport::srd::Settings srd;  // the line rate is each host's own link's
  transport::tcp::Settings tcp;
  device::HostStackSettings stack;  // a kernel's between adapters and the rest
  bool plays_tcp = false;           // its frames may be as long as TCP's segments
  bool plays_iwarp = false;         // which begin with headers, that are bytes also before ghosts

  // The longest payload of a frame.
  std::uint32_t payload_bytes_max() const {
    return plays_tcp ? std::max(mtu_bytes, tcp.mss_bytes) : mtu_bytes;
  }
};

struct NetworkSettings {
  std::uint64_t seed = 1;
  LinkLayer link_layer = LinkLayer::ethernet;
  unsigned lmc = 0;  // InfiniBand: hosts have 2^lmc LIDs (IBTA 7.11.1)
  // Both as a switch's data sheet gives them: from the first bit in to the first bit out of an
  // empty switch, cut-through; what storing and forwarding adds is the frame's own length.
  Time switch_latency;
  bool cut_through = false;
  // What forward error correction adds to every link's delay (IEEE 802.3 clause 91: some 100 ns for
  // RS(544,514) at 100 Gb/s), and the share of bits that are wrong after it. A frame with one is
  // lost at the end of its link.
  Time fec_delay;
  double bit_error_rate = 0;
  // Beside it, each host's n-th, 2n-th … data packet is lost on the host's own link; 0: none.
  std::uint32_t lose_every = 0;
  bool carries_bytes = false;  // payloads; else they are ghosts, lengths without bytes
  HostSettings host;
  fabric::SwitchSettings switches;
  // What switches tell hosts; host.congestion.endpoint_limits then says that these obey.
  fabric::EndpointSettings endpoints;
  fabric::LanePlan lanes;                  // with credits
  fabric::NonMinimalSettings non_minimal;  // with a dragonfly and PathChoice::adaptive, no outages
  // By host, its port's table; empty: all are full members of the default partition, and no switch
  // asks. Else switches may, at ports to hosts, of what comes in and of what goes out.
  std::vector<std::vector<Pkey>> pkeys;
  bool enforce_inbound = true;
  bool enforce_outbound = true;
  Faults faults;
};

const link::Overhead& overhead(LinkLayer layer);
// By node, the rate of its fastest link, in bits a second.
std::vector<std::int64_t> fastest_links(const fabric::Topology& topology);
// The most that a frame takes in a buffer.
std::uint32_t longest_frame_bytes(const NetworkSettings& settings);

// What has just happened that an application may care for.
struct NetworkEvent {
  enum class Kind : std::uint8_t { nothing, host, alarm };
  Kind kind = Kind::nothing;  // nothing: there is nothing left to happen
  std::uint32_t host = 0;     // host: it has new completions; alarm: whose it is
  std::uint32_t token = 0;    // alarm
};

// What a port begins to send, and when the other end will act on it.
struct Sending {
  Time now;
  Time arrives;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  const fabric::Frame* frame = nullptr;  // null: a control message
  fabric::Control control;
  const std::byte* payload = nullptr;  // the frame's; null: a ghost
  std::uint32_t ghost_bytes = 0;       // and of it, at the end, what is a ghost all the same
  bool lost = false;                   // the link goes down before it is there
};

// A frame that a switch drops, as it comes in or since its link is gone; `in_port` says whence it
// came.
struct Loss {
  Time now;
  std::uint32_t node = 0;
  const fabric::Frame* frame = nullptr;
};
// The link of a port goes down or comes up, at this end of it.
struct LinkChange {
  Time now;
  std::uint32_t node = 0;
  std::uint16_t port = 0;
  bool is_up = false;
};
// What faults came to.
struct FaultTotals {
  std::uint64_t frames = 0;    // lost
  std::uint64_t bytes = 0;     // lost, as they take room
  std::uint64_t unrouted = 0;  // frames of these that had no way left
  Time last_loss;
};

class Network {
 public:
  Network(const fabric::Topology& topology, const fabric::Routes& routes,
          const NetworkSettings& settings);
  ~Network();
  Network(const Network&) = delete;  // its switches know where it is
  Network& operator=(const Network&) = delete;

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  device::Adapter& adapter(std::uint32_t host) { return hosts_[host].adapter; }
  const device::Adapter& adapter(std::uint32_t host) const { return hosts_[host].adapter; }
  // Returns the address of a host's port: on Ethernet its GID, which is an IPv4 address; on
  // InfiniBand the one of its 2^LMC LIDs that the path bits select.
  PortAddress address_of(std::uint32_t host, std::uint8_t path_bits = 0) const;
  // Return the headers that a frame would have in front of its transport's headers, and which it
  // does not carry: IP and UDP, or on InfiniBand the LRH, for hosts with 2^lmc LIDs.
  static wire::IpUdp ip_of(const fabric::Frame& frame);
  static wire::LocalRoute local_route_of(const fabric::Frame& frame, unsigned lmc);
  // Of the host that an event is of; after run() has found nothing more, of the last that happened.
  Time now() const { return now_; }

  // To be called when the application has given a host something to do; in answer to an event, none
  // but the host that it is of.
  void attend(std::uint32_t host);
  // An event of the application's own. In answer to an event: at another host not before
  // lookahead() is over.
  void alarm(Time at, std::uint32_t host, std::uint32_t token);
  // Lets things happen until one concerns the application, or it is later than `until`, which must
  // not be earlier than in the call before.
  NetworkEvent run(Time until = Time::never());
  // How soon a node can hear of what another does: the shortest delay of a link.
  Time lookahead() const { return lookahead_; }

  // From now on all happens in the order of time. To be called before anything has happened.
  void order_by_time();
  // For who looks on: is told of every frame and control message, in the order of time.
  void on_send(std::function<void(const Sending&)> told) {
    order_by_time();
    on_send_ = std::move(told);
  }

  // What goes by other ways than the routes once links are down; without it, all that is for a dead
  // port is lost. Must outlive the network. To be called before anything has happened.
  void follow(const fabric::Recovery& recovery);
  // For who looks on at faults, beside on_send().
  void on_loss(std::function<void(const Loss&)> told) { on_loss_ = std::move(told); }
  void on_link_change(std::function<void(const LinkChange&)> told) {
    on_link_change_ = std::move(told);
  }
  FaultTotals fault_totals() const;
  // Null: the host has no kernel's stack.
  const device::HostStack* stack(std::uint32_t host) const;

  // When the next thing happens; never: nothing is left to happen.
  Time next_event();

  std::uint64_t events() const { return events_; }
  // Data packets times the links that they were sent over.
  std::uint64_t data_packet_hops() const { return data_hops_; }
  std::uint64_t frames_sent() const { return all_hops_; }
  // That switches have sent to hosts about endpoints.
  std::uint64_t notices() const { return notices_ == nullptr ? 0 : notices_->told; }
  const fabric::Switch& switch_at(std::uint32_t node) const { return switches_[node - hosts()]; }
  // Of what is sent by a port.
  const fabric::PortCounters& counters(std::uint32_t node, std::uint16_t port) const {
    return is_host(node) ? hosts_[node].counters : switches_[node - hosts()].counters(port);
  }
  const fabric::FramePool& frames() const { return frames_; }

 private:
  static constexpr std::uint32_t first_address = 0x0A00'0001;  // 10.0.0.1
  static Gid gid_of(std::uint32_t host) { return Gid::from_ipv4(first_address + host); }
  wire::Path path_of(const fabric::Frame& frame) const;

  // In the order in which they happen at one time and node.
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
    slow_arrival,  // at a host that a fault makes slow
    taken_in,      // by such a host
    notice,        // from a switch to a host
    stack_work,    // of a host's kernel
  };

  // A host with a kernel's stack: between it and the network.
  struct KernelDriver;
  struct Host {
    explicit Host(const device::Configuration& configuration);
    ~Host();
    device::Adapter adapter;
    fabric::PortCounters counters;
    std::uint64_t completions = 0;
    std::uint32_t since_lost = 0;  // data packets, with lose_every
    Time deadline_planned = Time::never();
    fabric::PauseState pause;
    std::uint8_t untold = 0;  // lanes with an update of credits due; classes that are to stop or go
    std::array<fabric::CreditSender, fabric::classes> senders;
    std::array<fabric::CreditReceiver, fabric::classes> receivers;
    fabric::VlArbiter arbiter;
    std::unique_ptr<KernelDriver> kernel;  // null: the adapter does all
    std::unique_ptr<Intake> intake;        // null: it takes in at once what comes, at all times
  };
  // The sending side of a port; and whose it is, for events that name it.
  struct Port {
    std::uint32_t node = 0;
    std::uint16_t number = 0;
    std::int64_t busy_until = 0;  // ps
    std::int64_t delay = 0;       // ps, of the link and of what stands before it
    std::int64_t picoseconds_per_byte = 0;
    std::uint32_t peer = 0;
    std::uint16_t peer_port = 0;
    std::uint8_t waits_for = 0;  // before it sends: bits, as below
    Kind arrives_as = arrival;   // what it sends, at the other end
    bool pause_end_planned = false;
    bool renewal_planned = false;
    bool watchdog_planned = false;
    bool peer_cuts_through = false;
    std::int64_t bits_per_second = 0;
  };
  // Of Port::waits_for.
  static constexpr std::uint8_t its_becoming_free = 1;
  static constexpr std::uint8_t its_link = 2;

  // Faults of a port's link, as its sender meets them.
  struct PortFaults {
    std::vector<std::int64_t> downs;  // when the link goes down, the last first; those to come
    double bit_error_rate = 0;
  };
  // A change at one node; what it is of is its port.
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
  // What a switch forwards by.
  struct Detour {
    const fabric::Routes* routes = nullptr;
    std::vector<std::uint16_t> avoided;  // ports that it knows are dead
  };

  std::size_t port_index(std::uint32_t node, std::uint16_t port) const {
    return first_port_[node] + port;
  }
  bool is_host(std::uint32_t node) const { return node < hosts_.size(); }
  void connect(const fabric::Link& link, const std::vector<std::int64_t>& fastest);
  void set_victim_mask(const fabric::Link& link);
  void set_partitions(const fabric::Topology& topology);
  void exchange_credits();
  void set_up_rounds();
  bool begin_turn(Time until);
  void prepare_turn(std::uint32_t node);
  void look_ahead();
  void fetch_frame(std::size_t ahead);
  std::uint32_t turn_of(std::uint32_t node) const { return in_order_of_time_ ? 0 : node; }
  bool handle(Kind kind, std::uint32_t node, std::uint16_t port, std::uint32_t datum);
  void arrive_at_host(std::uint32_t host, fabric::FrameRef frame);
  // Hosts with a kernel's stack: network_stack.cc.
  void set_up_stacks();
  void arrive_at_kernel(std::uint32_t host, fabric::FrameRef frame);
  void attend_kernel(std::uint32_t host);
  void run_kernel(std::uint32_t host);
  fabric::FrameRef pull_from_kernel(std::uint32_t host);
  bool kernel_has_frame(const Host& host) const;
  QpNumber receiver_of(const fabric::Frame& frame) const;
  void hand_over(std::uint32_t host, fabric::FrameRef frame);
  void hand_over_segment(std::uint32_t host, fabric::FrameRef frame);
  std::uint16_t forward(const fabric::Switch& at, std::uint32_t node,
                        const fabric::Frame& frame) const;
  void arrive_at_switch(std::uint32_t node, std::uint16_t in_port, fabric::FrameRef frame);
  void end_arrival(std::uint32_t node, fabric::FrameRef frame, std::uint16_t out_port);
  void handle_control(std::uint32_t node, std::uint16_t port, fabric::Control control);
  void handle_pause(std::uint32_t node, std::uint16_t port, fabric::Control control);
  void end_pauses(std::uint32_t node, std::uint16_t port);
  void renew_pause(std::uint32_t node, std::uint16_t port);
  void watch(std::uint32_t node, std::uint16_t port);
  Time head_lifetime(const Port& port) const;
  void plan_head_watch(std::uint32_t node, std::uint16_t port);
  void watch_heads(std::uint32_t node, std::uint16_t port);
  void plan_once(bool& planned, Time at, std::uint32_t node, std::uint16_t port, Kind kind);
  void kick(std::uint32_t node, std::uint16_t port);
  void kick_talkers(std::uint32_t node);
  fabric::FrameRef pull_from_host(std::uint32_t host);
  bool pull_by_lane(Host& host);
  fabric::FrameRef frame_of(std::uint32_t host, const device::Datagram& datagram);
  void label(fabric::Frame& frame, std::uint32_t host, const device::Datagram& datagram) const;
  static void measure(fabric::Frame& frame, const link::Overhead& around, std::uint32_t inner_bytes,
                      std::uint32_t payload_bytes);
  void hold_segment(fabric::FrameRef frame, const device::Datagram& datagram);
  void carry_payload(fabric::FrameRef frame, const device::Datagram& datagram);
  const std::byte* payload_of(fabric::FrameRef frame) const {
    return payloads_ == nullptr ? nullptr : payloads_->of(frame);
  }
  void carry_front(fabric::FrameRef frame, const device::Datagram& datagram);
  transport::Payload segment_of(fabric::FrameRef frame);
  void tell_sending(Time arrives, std::uint32_t node, std::uint16_t port, fabric::FrameRef frame,
                    bool lost);
  fabric::Control pull_control(std::uint32_t node, std::uint16_t port);
  bool has_more(std::uint32_t node, std::uint16_t port) const;
  void send(std::uint32_t node, std::uint16_t port, fabric::FrameRef frame);
  void send_control(std::uint32_t node, std::uint16_t port, fabric::Control control);
  void take_in(Host& host, const fabric::Frame& frame);
  void free_memory(Host& host, const fabric::Frame& frame) const;
  std::uint32_t levels_held_back(const Host& host) const;
  std::uint32_t lanes_of(std::uint32_t levels) const;
  void discard(std::uint32_t node, std::uint16_t port, fabric::FrameRef ref);
  std::int64_t time_on_link(const Port& port, std::uint32_t bytes) const;
  void plan(std::int64_t at, std::uint32_t node, std::uint16_t port, Kind kind,
            std::uint32_t datum);
  void plan_deadline(std::uint32_t host);

  // Faults: network_faults.cc.
  void plan_faults(const fabric::Topology& topology);
  void plan_outages(const fabric::Topology& topology);
  void plan_bit_errors(const fabric::Topology& topology);
  void plan_slow_hosts();
  void plan_action(Time at, std::uint32_t node, std::uint16_t port, const FaultAction& action);
  void handle_fault(std::uint32_t node, std::uint16_t port, const FaultAction& action);
  void go_down(std::uint32_t node, std::uint16_t port);
  void come_up(std::uint32_t node, std::uint16_t port);
  static void restart_credits(Host& host);
  bool disturb(std::uint32_t node, std::uint16_t port, fabric::Frame& frame, std::int64_t arrives);
  bool goes_down_by(std::uint32_t node, std::uint16_t port, std::int64_t arrives) const;
  bool is_damaged(std::uint32_t node, std::uint32_t bytes, double bit_error_rate);
  bool is_to_lose(std::uint32_t node, const fabric::Frame& frame);
  void lose_on_link(std::uint32_t node, std::uint16_t port, const fabric::Frame& frame);
  void arrive_by_detour(std::uint32_t node, std::uint16_t in_port, fabric::FrameRef frame);
  void let_go(std::uint32_t node, fabric::FrameRef frame);
  void arrive_at_slow_host(std::uint32_t host, fabric::FrameRef frame);
  void begin_taking_in(std::uint32_t host);
  void end_taking_in(std::uint32_t host);
  void take_in_next(std::uint32_t host);
  void update_asking(std::uint32_t host);
  void watch_host(std::uint32_t host);
  fabric::Control pull_host_control(Host& host) const;

  // Notices: network_notices.cc.
  void set_up_notices();
  void watch_endpoint(std::uint32_t node, std::uint16_t out_port, const fabric::Frame& frame);
  void forward_notice(std::uint32_t node, std::uint32_t place);
  void handle_notice(std::uint32_t node, std::uint32_t place);
  bool send_notice(std::uint32_t node, std::uint16_t port);
  fabric::PortCounters& sending_counters(std::uint32_t node, std::uint16_t port) {
    return is_host(node) ? hosts_[node].counters : switches_[node - hosts()].counters(port);
  }

  NetworkSettings settings_;
  const fabric::Routes& routes_;
  Time now_;
  fabric::FramePool frames_;
  std::unique_ptr<fabric::Payloads> payloads_;  // null: ghosts
  bool carries_fronts_ = false;                 // of ghosts the headers in front, which are bytes
  FixedArray<Host> hosts_;
  // As a host's adapter counts them.
  std::array<std::uint32_t, fabric::classes> levels_of_lane_{};
  std::uint32_t levels_without_lane_ = 0;
  std::vector<Random> noise_;  // by sending node; empty without bit errors
  // Whether links may lose what is sent over them; and then how, by port, where there are faults.
  bool disturbed_ = false;
  std::vector<PortFaults> port_faults_;
  std::vector<FaultAction> fault_actions_;
  std::vector<Detour> detours_;       // by switch; empty: all keep to the routes
  std::unique_ptr<Notices> notices_;  // null: switches say nothing to hosts
  std::unique_ptr<fabric::NonMinimalRouting> non_minimal_;  // null: all paths are minimal
  std::vector<std::uint16_t> ways_;
  Time last_loss_;                                    // on a link or at a host
  std::vector<fabric::SwitchPartitions> partitions_;  // by switch; empty without partitions
  std::vector<fabric::Switch> switches_;
  std::vector<std::uint32_t> first_port_;  // of ports_, by node
  std::vector<Port> ports_;
  Time lookahead_ = Time::never();
  Time short_turn_;
  bool has_head_lifetimes_ = false;
  bool has_kernels_ = false;       // each host
  bool in_order_of_time_ = false;  // all nodes have one turn
  std::unique_ptr<Rounds> rounds_;
  Turn events_of_turn_;
  std::uint32_t turn_ = Rounds::no_node;  // whose it is
  Time turn_end_;
  std::uint32_t next_block_ = Rounds::none;  // of the next turn's events: to be looked at
  Time latest_;                              // of all that has happened
  device::Datagram outgoing_;
  wire::Packet handed_over_;  // decoding clears it
  std::function<void(const Sending&)> on_send_;
  std::function<void(const Loss&)> on_loss_;
  std::function<void(const LinkChange&)> on_link_change_;
  std::uint64_t events_ = 0;
  std::uint64_t data_hops_ = 0;
  std::uint64_t all_hops_ = 0;
};

}  // namespace tulle::sim
