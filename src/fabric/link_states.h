#pragma once

// Which links of a subnet are up, as those who carry its packets have been notified.

#include <cstdint>
#include <functional>
#include <vector>

#include "fabric/node_port.h"
#include "fabric/subnet.h"

namespace tulle::fabric {

class LinkStates {
 public:
  explicit LinkStates(const Topology& topology)
      : is_up_(topology.links.size()), ups_seen_(topology.links.size()) {}

  bool is_up(std::uint32_t link) const { return is_up_[link]; }
  struct Change {
    std::uint32_t link = 0;
    NodePort end;           // one that is here
    bool restarts = false;  // it has gone down and up at once, at the other end
    bool is_up = false;
  };
  // Calls `changed` for each link that has changed since the last call. Links without an end here
  // are left out.
  void follow(const Subnet& subnet, const std::function<void(const Change&)>& changed);

 private:
  std::vector<bool> is_up_;              // by link
  std::vector<std::uint32_t> ups_seen_;  // by link
  std::uint64_t changes_seen_ = 0;
};

}  // namespace tulle::fabric
