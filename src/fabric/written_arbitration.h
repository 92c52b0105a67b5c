#pragma once

// The arbitration among lanes that a subnet manager has written at nodes (IBTA 7.6.9), for the
// ports of their switches.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/switch.h"
#include "management/subnet/node.h"
#include "rdma/port/port.h"

namespace tulle::fabric {

class WrittenArbitration {
 public:
  explicit WrittenArbitration(std::uint32_t nodes) : settings_(nodes), writes_seen_(nodes) {}

  // Returns true if a manager has written any of a node's since the last call.
  bool has_changed(std::uint32_t node, const management::subnet::Node& agent) {
    const std::uint32_t writes = agent.arbitration_writes();
    return std::exchange(writes_seen_[node], writes) != writes;
  }
  // Returns true if a manager has written any of a node's, as far as has_changed() has seen.
  bool is_written(std::uint32_t node) const { return writes_seen_[node] != 0; }
  // Sets the arbitration of a node's ports. Those of which nothing is written have the usual one.
  // `of` must not be used without this object.
  void apply(std::uint32_t node, const management::subnet::Node& agent, const port::Settings& usual,
             Switch& of);

 private:
  // By node and port: settings with the arbitration, if any is written.
  std::vector<std::vector<std::unique_ptr<const port::Settings>>> settings_;
  std::vector<std::uint32_t> writes_seen_;  // by node
};

}  // namespace tulle::fabric
