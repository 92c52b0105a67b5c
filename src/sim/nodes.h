#pragma once

// The adapters, switches and link ends of a simulated network. They are shared by the parts that
// move them (sim/part.h): each node belongs to one part, which alone touches it in a round. If
// several processes simulate the network together (sim/processes.h), each has its own nodes alone,
// with their ends of links. The nodes of others have places in the lists, but are not there.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/random.h"
#include "base/sparse_array.h"
#include "base/time.h"
#include "fabric/non_minimal.h"
#include "fabric/routing.h"
#include "fabric/switch.h"
#include "fabric/topology.h"
#include "rdma/device/adapter.h"
#include "rdma/port/port.h"
#include "sim/event_kind.h"
#include "sim/intake.h"
#include "sim/network_settings.h"

namespace tulle::sim {

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
  // Bits of waits_for.
  static constexpr std::uint8_t its_becoming_free = 1;
  static constexpr std::uint8_t its_link = 2;

  port::Port* port = nullptr;  // the adapter's or the switch's
  std::uint32_t node = 0;
  std::uint16_t number = 0;
  std::uint8_t waits_for = 0;                 // conditions before it may send: the bits above
  EventKind arrives_as = EventKind::arrival;  // a frame at the other end
  std::int64_t busy_until = 0;                // ps
  std::int64_t delay = 0;                     // ps, of the link and of the delays around it
  std::int64_t picoseconds_per_byte = 0;
  std::uint32_t peer = 0;            // the node at the other end
  std::uint32_t peer_end = 0;        // index of the other end, see Place::first_end
  std::uint32_t peer_turn : 24 = 0;  // the peer's Place::turn and Place::part
  std::uint32_t peer_part : 8 = 0;
  bool pause_end_planned = false;
  bool renewal_planned = false;
  bool watchdog_planned = false;
  bool peer_cuts_through = false;
  std::int64_t bits_per_second = 0;
};

static_assert(sizeof(LinkEnd) == 64);

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

// Says where a node is.
struct Place {
  std::uint32_t first_end = 0;  // index of its first port's end in Nodes::ends
  std::uint32_t turn : 24 = 0;  // its number among those that take turns in its part
  std::uint32_t part : 8 = 0;
};

struct Nodes {
  static constexpr std::uint32_t parts_max = 256;  // Place::part has 8 bits

  Nodes(const NetworkSettings& settings, const fabric::Routes& routes,
        const fabric::Topology& topology);

  bool is_host(std::uint32_t node) const { return node < hosts.size(); }
  std::size_t end_index(std::uint32_t node, std::uint16_t port) const {
    return places[node].first_end + port;
  }
  // Returns the process that moves the nodes of a part.
  std::uint32_t process_of(std::uint32_t part) const { return part / parts_each; }
  LinkEnd& end(std::uint32_t node, std::uint16_t port) { return ends[end_index(node, port)]; }

  NetworkSettings settings;
  const fabric::Routes& routes;
  std::uint32_t processes = 1;   // that simulate the network together
  std::uint32_t parts_each = 1;  // of each process
  SparseArray<Host> hosts;
  SparseArray<fabric::Switch> switches;
  SparseArray<LinkEnd> ends;  // by index, see Place::first_end
  std::vector<Random> noise;  // by sending node; empty without bit errors
  // True if links may lose frames. With faults, the next member says how, by port.
  bool disturbed = false;
  std::vector<PortFaults> port_faults;
  std::vector<FaultAction> fault_actions;
  std::unique_ptr<fabric::NonMinimalRouting> non_minimal;  // null: all paths are minimal
  std::vector<fabric::SwitchPartitions> partitions;        // by switch; empty without partitions
  std::vector<Place> places;                               // by node
  Time lookahead = Time::never();
  Time delay_max;                   // of all links, with the delays around them
  std::uint32_t payload_bytes = 0;  // room of each frame for bytes of its payload; 0: ghosts
  bool carries_fronts = false;      // true: headers in front of ghosts are carried as bytes
  bool has_head_lifetimes = false;
  bool has_kernels = false;  // true: each host has a kernel
};

}  // namespace tulle::sim
