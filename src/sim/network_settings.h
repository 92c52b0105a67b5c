#pragma once

// The settings of a simulated network, and what follows from them alone.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/endpoint_monitor.h"
#include "fabric/lane_plan.h"
#include "fabric/non_minimal.h"
#include "fabric/switch.h"
#include "fabric/topology.h"
#include "rdma/optional/host_stack.h"
#include "rdma/port/framing/overhead.h"
#include "rdma/port/link_layer.h"
#include "rdma/transport/congestion/settings.h"
#include "rdma/transport/recovery.h"
#include "rdma/wire/path.h"
#include "sim/faults.h"

namespace tulle::sim {

using port::LinkLayer;

struct HostSettings {
  // Delays in the adapter for every frame: from the cause of a transmission to the first bit on the
  // wire, and from the last bit off the wire until the adapter has acted on the frame.
  Time send_delay;
  Time receive_delay;
  std::uint32_t mtu_bytes = 4'096;
  // One frame of the simulation represents so many packets of a message. Above 1, mtu_bytes and the
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
// have none, and links to them are inside of a switch.
Time delay_around(const fabric::Topology& topology, const NetworkSettings& settings,
                  std::uint32_t from, std::uint32_t to);
// Returns the rate of each node's fastest link, in bits a second.
std::vector<std::int64_t> fastest_links(const fabric::Topology& topology);
// Returns the most bytes that a frame occupies in a buffer.
std::uint32_t longest_frame_bytes(const NetworkSettings& settings);
// Returns the bytes that the second and all further packets of a train take on a link besides their
// payload: headers, check sums and gaps. It is 0 for a frame that is one packet.
std::uint32_t train_header_bytes(const NetworkSettings& settings, std::uint32_t payload_bytes);

}  // namespace tulle::sim
