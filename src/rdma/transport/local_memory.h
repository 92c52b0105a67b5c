#pragma once

// A queue pair's access to its own side's memory: the data that its requests name by local keys.
//
// Local keys belong to a protection domain. Send requests use that of the queue pair. Receive
// requests from a shared receive queue use that of the queue (IBTA 10.2.9).

#include <cstdint>
#include <span>

#include "rdma/transport/packet_io.h"
#include "rdma/transport/send_queue.h"
#include "rdma/transport/withheld.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/types.h"

namespace tulle::transport {

class QueuePair;

// Fills in the payload of a packet with `bytes` of the request's data from `offset`. Returns false
// on a local protection error.
[[nodiscard]] bool gather(const QueuePair& qp, const SendWqe& wqe, std::uint32_t offset,
                          std::uint32_t bytes, OutgoingPacket& out);
// Each writes a payload to the SGEs of a send or receive request from `offset`. It returns false on
// a local protection error, or if the SGEs are too short. A device that withholds payload later
// shows the edges of the message that are in this payload.
[[nodiscard]] bool scatter(const QueuePair& qp, const SendWqe& wqe, std::uint64_t offset,
                           Payload payload, Edges edges = {});
[[nodiscard]] bool scatter(const QueuePair& qp, const verbs::Receive& receive, std::uint64_t offset,
                           Payload payload, Edges edges = {});
// Finds where scatter() would write `bytes` from `offset` of a receive request with these SGEs: as
// many of them as have room. Returns false on a local protection error.
[[nodiscard]] bool find_placement(const QueuePair& qp, std::span<const verbs::Sge> receive,
                                  std::uint64_t offset, std::uint32_t bytes, Placement& out);
// Returns the protection domain of a send request's local keys. The device's own requests read into
// the memory of receive requests (rdma/transport/tag_matching.h).
const verbs::ProtectionDomain& domain_of(const QueuePair& qp, const SendWqe& wqe);
// Binds a window or invalidates a key, as the request says.
[[nodiscard]] verbs::CompletionStatus execute_local(QueuePair& qp, const SendWqe& wqe);

}  // namespace tulle::transport
