#pragma once

#include <vector>

#include "rdma/port/sl_to_vl.h"

namespace tulle::fabric {

// The tables of a whole fabric.
struct LanePlan {
  port::LaneRow hosts = port::default_lanes;
  std::vector<port::SlToVl> switches;  // by switch; empty: all switches have the default
};

}  // namespace tulle::fabric
