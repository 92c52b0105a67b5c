#pragma once

// Ports that have something to send, in the order in which they got it. Each is in the queue once.

#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/node_port.h"

namespace tulle::fabric {

class PortQueue {
 public:
  explicit PortQueue(std::uint32_t nodes) : is_in_(nodes) {}
  void set_ports(std::uint32_t node, std::uint16_t ports) { is_in_[node].resize(ports); }

  bool empty() const { return ports_.empty(); }
  void push(NodePort at) {
    std::vector<bool>::reference is_in = is_in_[at.node][at.port];
    if (is_in) return;
    is_in = true;
    ports_.push_back(at);
  }
  NodePort pop() {
    const NodePort at = ports_.front();
    ports_.pop_front();
    is_in_[at.node][at.port] = false;
    return at;
  }

 private:
  std::deque<NodePort> ports_;
  std::vector<std::vector<bool>> is_in_;  // by node and port
};

}  // namespace tulle::fabric
