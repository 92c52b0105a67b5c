#include "study/experiment/flow_paths.h"

#include "fabric/switch.h"
#include "rdma/port/frame.h"
#include "rdma/port/framing/roce_v2.h"
#include "study/workload/player.h"

namespace tulle::experiment {

FlowPaths::FlowPaths(const scenario::Setup& setup, const fabric::Wiring& wiring,
                     const fabric::Routes& routes)
    : setup_(setup),
      wiring_(wiring),
      routes_(routes),
      by_lid_(setup.network.link_layer == sim::LinkLayer::infiniband),
      ways_(wiring.places()) {
  const fabric::Topology& topology = setup.topology;
  salts_.reserve(topology.switches);
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    salts_.push_back(fabric::path_salt(setup.network.seed, node));
  }
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      const fabric::Wiring::Peer& peer = wiring.peer(node, port);
      if (peer.link == fabric::Wiring::no_link) continue;
      const fabric::Link& link = topology.links[peer.link];
      const bool is_from_b = link.b == node && link.b_port == port;
      ways_[wiring.place(node, port)] = {2 * peer.link + (is_from_b ? 1 : 0), peer.node};
    }
  }
}

std::span<const FlowPaths::Direction> FlowPaths::of(std::uint32_t index, std::uint32_t started) {
  const workload::Flow& flow = setup_.flows[index];
  return between(flow.source, flow.destination, index, started);
}

std::span<const FlowPaths::Direction> FlowPaths::back(std::uint32_t index, std::uint32_t started) {
  const workload::Flow& flow = setup_.flows[index];
  return between(flow.destination, flow.source, index, started);
}

// Both ends of a connection have the same flow label, and the same LID index.
std::span<const FlowPaths::Direction> FlowPaths::between(std::uint32_t from, std::uint32_t to,
                                                         std::uint32_t index,
                                                         std::uint32_t started) {
  const std::uint32_t hosts = setup_.topology.hosts;
  std::uint32_t hash = 0;
  if (!by_lid_) {
    // A label that is not 0 makes the port alone. The numbers of the queue pairs are not needed.
    const std::uint32_t label =
        workload::flow_label_of(setup_.flows[index], index, setup_.player.seed);
    const std::uint16_t source_port =
        setup_.network.is_roce_v1 ? std::uint16_t{0} : port::source_port(label, {}, {});
    hash = port::flow_hash(from, to, source_port);
  }
  const std::uint32_t lid_path = started % setup_.player.paths;
  path_.clear();
  Way way = ways_[wiring_.place(from, 0)];
  for (;;) {
    path_.push_back(way.direction);
    if (way.node < hosts) return path_;
    const std::uint16_t port = by_lid_ ? routes_.port(way.node, to, lid_path)
                                       : fabric::equal_cost_port(hash, salts_[way.node - hosts],
                                                                 routes_.candidates(way.node, to));
    way = ways_[wiring_.place(way.node, port)];
  }
}

}  // namespace tulle::experiment
