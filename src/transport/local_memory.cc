#include "transport/local_memory.h"

#include <algorithm>
#include <span>

#include "base/guarded_access.h"
#include "transport/queue_pair.h"

namespace tulle::transport {

using verbs::CompletionStatus;

namespace {

const verbs::ProtectionDomain& domain_of_receives(const QueuePair& qp) {
  return qp.init.srq != nullptr ? *qp.init.srq->pd : *qp.init.pd;
}

bool write_to(const QueuePair& qp, const verbs::ProtectionDomain& pd,
              std::span<const verbs::Sge> sges, std::uint64_t offset, Payload payload) {
  std::uint32_t left = payload.bytes;
  const std::byte* from = payload.data;
  for (const verbs::Sge& sge : sges) {
    if (left == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - offset, left));
    const auto access = qp.environment.keys.local(sge.lkey, pd, sge.address + offset, part, true);
    if (access.verdict != verbs::KeyTable::Verdict::ok) return false;
    if (access.memory != nullptr && from != nullptr && !copy_guarded(access.memory, from, part)) {
      return false;
    }
    if (from != nullptr) from += part;
    left -= part;
    offset = 0;
  }
  return left == 0;
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
  const verbs::Sge* sges = qp.send_queue.sges(wqe);
  std::uint64_t skip = offset;
  for (std::uint32_t i = 0; i < wqe.sge_count && bytes > 0; ++i) {
    const verbs::Sge& sge = sges[i];
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - skip, bytes));
    const auto access =
        qp.environment.keys.local(sge.lkey, *qp.init.pd, sge.address + skip, part, false);
    if (access.verdict != verbs::KeyTable::Verdict::ok) return false;
    if (access.memory != nullptr) out.pieces[out.piece_count++] = {access.memory, part};
    bytes -= part;
    skip = 0;
  }
  return bytes == 0;
}

bool scatter(const QueuePair& qp, const SendWqe& wqe, std::uint64_t offset, Payload payload) {
  return write_to(qp, domain_of(qp, wqe), {qp.send_queue.sges(wqe), wqe.sge_count}, offset,
                  payload);
}

bool scatter(const QueuePair& qp, const verbs::Receive& receive, std::uint64_t offset,
             Payload payload) {
  return write_to(qp, domain_of_receives(qp), {receive.sges.data(), receive.sge_count}, offset,
                  payload);
}

bool find_placement(const QueuePair& qp, std::span<const verbs::Sge> receive, std::uint64_t offset,
                    std::uint32_t bytes, Placement& out) {
  for (const verbs::Sge& sge : receive) {
    if (bytes == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - offset, bytes));
    const auto access = qp.environment.keys.local(sge.lkey, domain_of_receives(qp),
                                                  sge.address + offset, part, true);
    if (access.verdict != verbs::KeyTable::Verdict::ok || access.memory == nullptr) return false;
    out.add(access.memory, part);
    bytes -= part;
    offset = 0;
  }
  return true;
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
