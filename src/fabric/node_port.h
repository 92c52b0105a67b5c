#pragma once

#include <cstdint>

namespace tulle::fabric {

// A port, or the place of one in a list of ports.
struct NodePort {
  std::uint32_t node = 0;
  std::uint16_t port = 0;  // from 0 on
  bool operator==(const NodePort&) const = default;
};

}  // namespace tulle::fabric
