#pragma once

// Collectives that switches reduce and share out: the network's on aggregation trees (SHARP), and
// the scale-up network's within servers (NVLink SHARP, NCCL's NVLS).

#include "study/workload/collectives.h"

namespace tulle::workload {

// Returns an error if the servers or their networks lack the switches that the algorithm needs,
// which is in_network or nvls.
Result<void> check_switches(const CollectiveSettings& settings, Algorithm algorithm);

// Returns about how many tasks the collective takes.
double in_network_tasks(const CollectiveSettings& settings);

// The GPUs of one number in all servers have a separate tree, as many as there are GPUs in a
// server, and each has its part of the bytes. Data go in chunks: from the GPUs of a server to the
// one with the number (by the server's switch, which reduces, or straight), from there up the tree,
// where each switch reduces, and the same way back. The settings were checked.
TaskGraph make_in_network(const CollectiveSettings& settings);

// The switches of servers reduce and share out, and the GPUs of one number form a ring in between.
TaskGraph make_nvls(const CollectiveSettings& settings);

}  // namespace tulle::workload
