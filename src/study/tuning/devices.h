#pragma once

// Says what the settings of a simulated RoCE v2 fabric are called on real switches and adapters.

#include <string>
#include <vector>

#include "study/scenario/setup.h"

namespace tulle::tuning {

// Returns the marking and buffer settings of the switches as a part of SONiC's config_db.json
// (tables WRED_PROFILE and BUFFER_PROFILE of sonic-swss, doc/Configuration.md); empty: the fabric
// has neither. Its profiles are called TULLE_ECN and TULLE_LOSSLESS. `config load` merges it, and
// the operator attaches the profiles to queues and priority groups, which the simulation has no
// names for.
std::string sonic_config(const scenario::Setup& setup);

// Returns where sonic_config() has other values than were simulated, since switches have steps: a
// sentence each, without its full stop.
std::vector<std::string> sonic_differences(const scenario::Setup& setup);

// Returns a shell script that gives an NVIDIA adapter the DCQCN parameters, by the files of
// MLNX_OFED under /sys/class/net/INTERFACE/ecn ("DCQCN parameters", NVIDIA's documentation), and
// PFC by mlnx_qos; empty: the hosts have no DCQCN. A value that the adapter cannot hold is the
// nearest one, with a comment that says so.
std::string adapter_script(const scenario::Setup& setup);

}  // namespace tulle::tuning
