#pragma once

// Moves the management datagrams of a subnet, for tests and fuzzers.

#include "base/time.h"
#include "fabric/subnet.h"
#include "fabric/subnet_managers.h"

namespace tulle::fabric {

// Moves all at this point in time. `is_lost` says which of those that arrive at a manager are lost.
template <typename IsLost>
void settle(Time now, Subnet& subnet, SubnetManagers& managers, IsLost is_lost) {
  for (bool is_moving = true; is_moving;) {
    is_moving = managers.progress(now);
    subnet.run(now);
    while (const auto arrival = subnet.take_arrival()) {
      is_moving = true;
      if (!is_lost()) managers.receive(now, *arrival);
    }
  }
}
inline void settle(Time now, Subnet& subnet, SubnetManagers& managers) {
  settle(now, subnet, managers, [] { return false; });
}

}  // namespace tulle::fabric
