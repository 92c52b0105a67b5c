#pragma once

#include <map>
#include <vector>

#include "device/adapter.h"

namespace tulle::device {

// IBTA 5.3.2 and 9.6.1.3: all attached queue pairs.
inline constexpr QpNumber multicast_qp{0xFF'FFFF};

// The groups for the control path and for packets to a group. They are ordered, so that all runs
// deliver in the same order.
struct Adapter::MulticastGroups {
  std::map<Gid, std::vector<transport::QueuePair*>> by_address;
};

}  // namespace tulle::device
