#include "study/experiment/ideal.h"

#include <algorithm>

#include "rdma/wire/ddp.h"
#include "rdma/wire/mpa.h"
#include "rdma/wire/packet.h"

namespace tulle::experiment {
namespace {

// Bytes of headers of a WRITE: in its first packet, in each further one, and in the
// acknowledgement.
struct Headers {
  std::uint32_t first = 0, more = 0, acknowledgement = 0;
};

Headers headers_of(verbs::QpType transport) {
  using wire::Operation, wire::TransportClass;
  const auto bytes = [](TransportClass of, Operation operation) {
    return static_cast<std::uint32_t>(wire::header_bytes(wire::opcode(of, operation)));
  };
  if (transport == verbs::QpType::srd) {
    const std::uint32_t each = bytes(TransportClass::srd, Operation::write_middle);
    return {each, each, bytes(TransportClass::srd, Operation::acknowledge)};
  }
  return {bytes(TransportClass::rc, Operation::write_first),
          bytes(TransportClass::rc, Operation::write_middle),
          bytes(TransportClass::rc, Operation::acknowledge)};
}

}  // namespace

IdealTimes::IdealTimes(const fabric::Topology& topology, const fabric::Wiring& wiring,
                       const fabric::Routes& routes, const sim::NetworkSettings& settings,
                       verbs::QpType transport)
    : transport_(transport),
      wiring_(wiring),
      routes_(routes),
      settings_(settings),
      hops_(wiring.places()) {
  const std::vector<std::int64_t> fastest = sim::fastest_links(topology);
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      const fabric::Wiring::Peer& peer = wiring.peer(node, port);
      if (peer.link == fabric::Wiring::no_link) continue;
      Hop& hop = hops_[wiring.place(node, port)];
      const fabric::Link& link = topology.links[peer.link];
      hop.bits_per_second = link.bits_per_second;
      hop.delay = link.delay + sim::delay_around(topology, settings, node, peer.node);
      hop.next = peer.node;
      hop.arrives = topology.is_host(peer.node);
      // As in sim::Network, a frame that comes in more slowly than it may leave is stored.
      hop.cuts_through =
          settings.cut_through && !hop.arrives && link.bits_per_second >= fastest[peer.node];
    }
  }
}

Time IdealTimes::of(const workload::Flow& flow) {
  if (settings_.host.plays_tcp) return over_tcp(flow);
  return one_way(flow) + way_back(flow);
}

Time IdealTimes::way_back(const workload::Flow& flow) {
  set_path(flow.destination, flow.source);
  const std::uint32_t acknowledgement = headers_of(transport_).acknowledgement;
  return Time{send(bytes_on_link(0, acknowledgement), 1)};
}

Time IdealTimes::one_way(const workload::Flow& flow) {
  const auto [first_headers, more_headers, acknowledgement] = headers_of(transport_);
  const std::uint64_t mtu = settings_.host.mtu_bytes;
  const std::uint64_t packets = (flow.bytes + mtu - 1) / mtu;
  const std::uint64_t last = flow.bytes - (packets - 1) * mtu;
  set_path(flow.source, flow.destination);
  std::int64_t arrives = send(bytes_on_link(packets == 1 ? last : mtu, first_headers), 1);
  if (packets > 2) send(bytes_on_link(mtu, more_headers), packets - 2);
  if (packets > 1) arrives = send(bytes_on_link(last, more_headers), 1);
  return Time{arrives};
}

// Returns the bytes that a packet takes on a link.
std::int64_t IdealTimes::bytes_on_link(std::uint64_t payload, std::uint32_t headers) const {
  constexpr std::uint32_t icrc = 4;
  const port::Overhead& around = sim::overhead(settings_);
  const auto padded = static_cast<std::uint32_t>((payload + 3) / 4 * 4);
  return std::int64_t{around.stored_bytes(padded + headers + icrc)} + around.gap_bytes +
         sim::train_header_bytes(settings_, static_cast<std::uint32_t>(payload));
}

Time IdealTimes::over_tcp(const workload::Flow& flow) {
  const port::Overhead& around = port::tcp_overhead;
  const auto on_link = [&](std::uint64_t payload) {
    const auto ulpdu = static_cast<std::uint32_t>(payload) + wire::ddp::tagged_header_bytes;
    const bool framed = settings_.host.plays_iwarp && payload > 0;
    const auto segment = static_cast<std::uint32_t>(
        wire::tcp_header_bytes + (framed ? wire::mpa::fpdu_bytes(ulpdu) : payload));
    return std::int64_t{around.stored_bytes(segment)} + around.gap_bytes +
           sim::train_header_bytes(settings_, static_cast<std::uint32_t>(payload));
  };
  std::uint64_t mss = settings_.host.tcp.mss_bytes;
  if (settings_.host.plays_iwarp) {
    mss = wire::mpa::ulpdu_bytes_max(settings_.host.tcp.mss_bytes) - wire::ddp::tagged_header_bytes;
  }
  const std::uint64_t segments = (flow.bytes + mss - 1) / mss;
  set_path(flow.source, flow.destination);
  if (segments > 1) send(on_link(mss), segments - 1);
  const std::int64_t arrives = send(on_link(flow.bytes - (segments - 1) * mss), 1);
  set_path(flow.destination, flow.source);
  return Time{arrives + send(on_link(0), 1)};
}

void IdealTimes::set_path(std::uint32_t from, std::uint32_t to) {
  path_.clear();
  std::uint16_t port = 0;
  do {
    path_.push_back(hops_[wiring_.place(from, port)]);
    from = path_.back().next;
    if (!path_.back().arrives) port = routes_.candidates(from, to).front();
  } while (!path_.back().arrives);
}

// Sends `count` frames of one length behind the frames sent before. Returns the time when the last
// has arrived.
std::int64_t IdealTimes::send(std::int64_t bytes, std::uint64_t count) {
  std::int64_t arrives = 0;
  std::int64_t bits_per_second = 0, takes = 0;  // of the hop before: links often have one rate
  for (; count > 0; --count) {
    bool alike = true;  // every port becomes busy for as much longer as the first one
    std::int64_t longer = -1;
    std::int64_t at = 0;
    for (Hop& hop : path_) {
      const std::int64_t was_free_at = hop.free_at;
      const std::int64_t begins = std::max(at, was_free_at);
      if (hop.bits_per_second != bits_per_second) {
        bits_per_second = hop.bits_per_second;
        takes = bytes * 8'000'000'000'000 / bits_per_second;
      }
      hop.free_at = begins + takes;
      at = (hop.cuts_through ? begins : hop.free_at) + hop.delay.ps;
      if (longer < 0) longer = hop.free_at - was_free_at;
      alike = alike && hop.free_at - was_free_at == longer;
    }
    arrives = at;
    if (!alike) continue;
    // Each further frame repeats the times of this one, that much later.
    const std::int64_t later = longer * static_cast<std::int64_t>(count - 1);
    for (Hop& hop : path_) hop.free_at += later;
    return arrives + later;
  }
  return arrives;
}

}  // namespace tulle::experiment
