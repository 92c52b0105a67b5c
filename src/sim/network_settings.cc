#include "sim/network_settings.h"

#include <algorithm>

#include "rdma/port/framing/infiniband.h"
#include "rdma/port/framing/roce_v1.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/tcp.h"

namespace tulle::sim {

Time Faults::first() const {
  Time first = Time::never();
  for (const fabric::Outage& outage : outages) first = std::min(first, outage.from);
  for (const BitErrors& errors : bit_errors) first = std::min(first, errors.from);
  for (const SlowHost& slow : slow_hosts) first = std::min(first, slow.from);
  return first;
}

Time delay_around(const fabric::Topology& topology, const NetworkSettings& settings,
                  std::uint32_t from, std::uint32_t to) {
  Time delay = topology.is_host(to) ? Time::zero() : settings.switch_latency;
  if (topology.is_adapter(from)) delay += settings.host.send_delay;
  if (topology.is_adapter(to)) delay += settings.host.receive_delay;
  const std::uint32_t lower = std::min(from, to);
  const bool is_inside = topology.is_host(lower) && !topology.is_adapter(lower);
  return is_inside ? delay : delay + settings.fec_delay;
}

std::vector<std::int64_t> fastest_links(const fabric::Topology& topology) {
  std::vector<std::int64_t> fastest(topology.nodes());
  for (const fabric::Link& link : topology.links) {
    for (const std::uint32_t node : {link.a, link.b}) {
      fastest[node] = std::max(fastest[node], link.bits_per_second);
    }
  }
  return fastest;
}

const port::Framing& framing_of(const NetworkSettings& settings) {
  if (settings.link_layer == LinkLayer::infiniband) return port::infiniband;
  return settings.is_roce_v1 ? port::roce_v1 : port::roce_v2;
}

const port::Overhead& overhead(const NetworkSettings& settings) {
  return framing_of(settings).overhead;
}

std::uint32_t longest_frame_bytes(const NetworkSettings& settings) {
  const std::uint32_t longest = settings.host.payload_bytes_max();
  const std::uint32_t packet = overhead(settings).stored_bytes(
      settings.host.mtu_bytes +
      static_cast<std::uint32_t>(wire::header_bytes_max + wire::icrc_bytes));
  const std::uint32_t further = train_header_bytes(settings, longest);
  if (!settings.host.plays_tcp) return packet + further;
  return further + std::max(packet, port::tcp_overhead.stored_bytes(settings.host.tcp.mss_bytes +
                                                                    wire::tcp_header_bytes));
}

std::uint32_t train_header_bytes(const NetworkSettings& settings, std::uint32_t payload_bytes) {
  const HostSettings& host = settings.host;
  if (host.train_packets == 1 || payload_bytes == 0) return 0;
  const std::uint32_t whole = host.plays_tcp ? host.tcp.mss_bytes : host.mtu_bytes;
  const std::uint32_t packet = whole / host.train_packets;
  const std::uint32_t further = (payload_bytes - 1) / packet;
  if (host.plays_tcp) {
    const port::Overhead& around = port::tcp_overhead;
    return further * (around.header_bytes + around.gap_bytes + wire::tcp_header_bytes);
  }
  const auto headers = static_cast<std::uint32_t>(
      wire::header_bytes(wire::opcode(wire::TransportClass::rc, wire::Operation::write_middle)));
  return further * (overhead(settings).around_transport_bytes() + headers);
}

}  // namespace tulle::sim
