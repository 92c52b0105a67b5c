#include "rdma/transport/local_memory.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/guarded_access.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport {

using verbs::CompletionStatus;

namespace {

const verbs::ProtectionDomain& domain_of_receives(const QueuePair& qp) {
  return qp.init.srq != nullptr ? *qp.init.srq->pd : *qp.init.pd;
}

// Goes through `bytes` of the data that SGEs describe, from `offset`, and calls visit(memory, part)
// with each piece; `memory` is null where the simulation carries no bytes. Returns the bytes for
// which the SGEs have no room, or nothing on a local protection error or if a visit returned false.
template <typename Visit>
std::optional<std::uint32_t> visit_pieces(const QueuePair& qp, const verbs::ProtectionDomain& pd,
                                          std::span<const verbs::Sge> sges, std::uint64_t offset,
                                          std::uint32_t bytes, bool write, Visit visit) {
  for (const verbs::Sge& sge : sges) {
    if (bytes == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - offset, bytes));
    const auto access = qp.environment.keys.local(sge.lkey, pd, sge.address + offset, part, write);
    if (access.verdict != verbs::KeyTable::Verdict::ok || !visit(access.memory, part)) return {};
    bytes -= part;
    offset = 0;
  }
  return bytes;
}

bool write_to(const QueuePair& qp, const verbs::ProtectionDomain& pd,
              std::span<const verbs::Sge> sges, std::uint64_t offset, Payload payload) {
  const std::byte* from = payload.data;
  Withheld* const withheld = qp.environment.withheld.get();
  return visit_pieces(qp, pd, sges, offset, payload.bytes, true,
                      [&](std::byte* memory, std::uint32_t part) {
                        if (from == nullptr) return true;
                        const std::byte* const piece = std::exchange(from, from + part);
                        if (memory == nullptr) return true;
                        if (withheld != nullptr) [[unlikely]]
                          withheld->release_under(qp.number, memory, part);
                        return copy_guarded(memory, piece, part);
                      }) == 0u;
}

// Keeps a few bytes until their completion is polled.
bool keep(const QueuePair& qp, const verbs::ProtectionDomain& pd, std::span<const verbs::Sge> sges,
          std::uint64_t offset, Payload edge, bool is_receive) {
  const std::byte* from = edge.data;
  return visit_pieces(
             qp, pd, sges, offset, edge.bytes, true, [&](std::byte* memory, std::uint32_t part) {
               const std::byte* const piece = std::exchange(from, from + part);
               return memory == nullptr ||
                      qp.environment.withheld->keep(qp.number, is_receive, memory, piece, part) ||
                      copy_guarded(memory, piece, part);
             }) == 0u;
}

// Writes a payload whose edges appear when the completion of its message is polled.
bool write_between(const QueuePair& qp, const verbs::ProtectionDomain& pd,
                   std::span<const verbs::Sge> sges, std::uint64_t offset, Payload payload,
                   Edges edges, bool is_receive) {
  const std::uint32_t first = edges.first ? std::min(payload.bytes, Withheld::edge_bytes) : 0;
  const std::uint32_t last = edges.last ? std::min(payload.bytes - first, Withheld::edge_bytes) : 0;
  const std::uint32_t middle = payload.bytes - first - last;
  return keep(qp, pd, sges, offset, {payload.data, first}, is_receive) &&
         write_to(qp, pd, sges, offset + first, {payload.data + first, middle}) &&
         keep(qp, pd, sges, offset + first + middle, {payload.data + first + middle, last},
              is_receive);
}

}  // namespace

const verbs::ProtectionDomain& domain_of(const QueuePair& qp, const SendWqe& wqe) {
  if (wqe.flags.has(verbs::SendFlag::of_device)) [[unlikely]]
    return domain_of_receives(qp);
  return *qp.init.pd;
}

bool gather(const QueuePair& qp, const SendWqe& wqe, std::uint32_t offset, std::uint32_t bytes,
            OutgoingPacket& out) {
  out.clear_payload();
  out.payload_bytes = bytes;
  if (wqe.flags.has(verbs::SendFlag::inline_data)) {
    if (bytes > 0) out.pieces[out.piece_count++] = {qp.send_queue.inline_data(wqe) + offset, bytes};
    return true;
  }
  return visit_pieces(qp, *qp.init.pd, {qp.send_queue.sges(wqe), wqe.sge_count}, offset, bytes,
                      false, [&](const std::byte* memory, std::uint32_t part) {
                        if (memory != nullptr) out.pieces[out.piece_count++] = {memory, part};
                        return true;
                      }) == 0u;
}

bool scatter(const QueuePair& qp, const SendWqe& wqe, std::uint64_t offset, Payload payload,
             Edges edges) {
  const std::span<const verbs::Sge> sges(qp.send_queue.sges(wqe), wqe.sge_count);
  if (qp.environment.withheld != nullptr && !wqe.flags.has(verbs::SendFlag::of_device))
      [[unlikely]] {
    return write_between(qp, domain_of(qp, wqe), sges, offset, payload, edges, false);
  }
  return write_to(qp, domain_of(qp, wqe), sges, offset, payload);
}

bool scatter(const QueuePair& qp, const verbs::Receive& receive, std::uint64_t offset,
             Payload payload, Edges edges) {
  const std::span<const verbs::Sge> sges(receive.sges.data(), receive.sge_count);
  // An XRC target completes to a queue of each shared receive queue, in no order.
  if (qp.environment.withheld != nullptr && qp.transport.receives != Receives::from_named_queue)
      [[unlikely]] {
    return write_between(qp, domain_of_receives(qp), sges, offset, payload, edges, true);
  }
  return write_to(qp, domain_of_receives(qp), sges, offset, payload);
}

bool find_placement(const QueuePair& qp, std::span<const verbs::Sge> receive, std::uint64_t offset,
                    std::uint32_t bytes, Placement& out) {
  return visit_pieces(qp, domain_of_receives(qp), receive, offset, bytes, true,
                      [&](std::byte* memory, std::uint32_t part) {
                        if (memory != nullptr) out.add(memory, part);
                        return memory != nullptr;
                      })
      .has_value();
}

CompletionStatus execute_local(QueuePair& qp, const SendWqe& wqe) {
  verbs::KeyTable& keys = qp.environment.keys;
  if (wqe.opcode == verbs::SendOpcode::bind_window) {
    const BindTarget& target = qp.send_queue.bind_target(wqe);
    const bool bound = target.window != nullptr &&
                       keys.bind(*target.window, *qp.init.pd, qp.number, target.binding);
    return bound ? CompletionStatus::success : CompletionStatus::memory_window_bind_error;
  }
  return keys.invalidate(wqe.invalidate_rkey, *qp.init.pd, qp.number)
             ? CompletionStatus::success
             : CompletionStatus::local_qp_operation_error;
}

}  // namespace tulle::transport
