#pragma once

// Internal to this folder: builds a topology from links. Each link takes the next free port at both
// ends.

#include <utility>

#include "fabric/topology.h"

namespace tulle::fabric {

class TopologyBuilder {
 public:
  TopologyBuilder(std::uint32_t hosts, std::uint32_t switches, Shape shape) {
    topology_.hosts = hosts;
    topology_.switches = switches;
    topology_.shape = std::move(shape);
    topology_.ports.resize(topology_.nodes());
  }

  void link(std::uint32_t a, std::uint32_t b, const LinkSettings& settings) {
    const auto a_port = static_cast<std::uint16_t>(topology_.ports[a]++);
    const auto b_port = static_cast<std::uint16_t>(topology_.ports[b]++);
    topology_.links.push_back({a, b, a_port, b_port, settings.bits_per_second, settings.delay});
  }

  Topology take() { return std::move(topology_); }

 private:
  Topology topology_;
};

}  // namespace tulle::fabric
