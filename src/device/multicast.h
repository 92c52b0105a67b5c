#pragma once

#include <map>
#include <vector>

#include "device/adapter.h"

namespace tulle::device {

inline constexpr QpNumber multicast_qp{0xFF'FFFF};  // IBTA 5.3.2 and 9.6.1.3: whoever is attached

// Control path, and packets to a group: ordered, so that all runs deliver in the same order.
struct Adapter::MulticastGroups {
  std::map<Gid, std::vector<transport::QueuePair*>> by_address;
};

}  // namespace tulle::device
