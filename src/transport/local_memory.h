#pragma once

// A queue pair's access to the memory of its own protection domain: the data that its requests name
// by local keys.

#include <cstdint>

#include "transport/packet_io.h"
#include "transport/send_queue.h"
#include "verbs/types.h"

namespace tulle::transport {

class QueuePair;

// Fills in the payload of a packet with `bytes` of the request's data from `offset`. Returns false
// on a local protection error.
[[nodiscard]] bool gather(const QueuePair& qp, const SendWqe& wqe, std::uint32_t offset,
                          std::uint32_t bytes, OutgoingPacket& out);
// Writes a payload to the SGEs from `offset`. Returns false on a local protection error, or if the
// SGEs are too short.
[[nodiscard]] bool scatter(const QueuePair& qp, const verbs::Sge* sges, std::uint32_t sge_count,
                           std::uint64_t offset, Payload payload);
// Binds a window or invalidates a key, as the request says.
[[nodiscard]] verbs::CompletionStatus execute_local(QueuePair& qp, const SendWqe& wqe);

}  // namespace tulle::transport
