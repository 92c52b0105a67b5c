#pragma once

// NCCL's protocols: how a GPU tells another one that data have come. The names are NCCL's, as in
// its variable NCCL_PROTO.

#include <array>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "study/workload/collectives.h"
#include "study/workload/servers.h"

namespace tulle::workload {

// Returns how many bytes a GPU stores or sends for so many bytes of data, at least as many.
std::uint64_t wire_bytes(Protocol protocol, std::uint64_t bytes);

// Returns the servers with the latency and the delay that messages of this protocol have.
Servers with_protocol(const Servers& servers, Protocol protocol);

// Returns an error if NCCL has no such protocol for this algorithm, or nothing is known of it.
Result<void> check_protocol(const CollectiveSettings& settings, Algorithm algorithm);

// Returns the protocol with which a ring or a tree is estimated to take the least time: that of the
// longest way's steps, one after the other, or that of the busiest port's bytes. Other algorithms
// go by `simple`. `adapter_bits_per_second` is the rate of an adapter.
Protocol usual_protocol(const CollectiveSettings& settings, std::int64_t adapter_bits_per_second);

}  // namespace tulle::workload
