#include "rdma/transport/rc/direct_transfer.h"

#include <array>
#include <cstddef>
#include <span>

#include "rdma/transport/local_memory.h"

namespace tulle::transport::rc {

using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;

DirectTransfer::Outcome DirectTransfer::execute(Time now, const QueuePair& qp,
                                                std::uint32_t index) {
  const SendWqe& wqe = qp.send_queue[index];
  if (at_ ? *at_ != index : !may_begin(qp, wqe)) return Outcome::not_direct;
  const Outcome outcome = advance(now, qp, wqe);
  at_.reset();
  if (outcome == Outcome::under_way) at_ = index;
  return outcome;
}

// Returns true if no transfer may overtake the request: what it writes, reads or invalidates may be
// what the transfer is about.
bool DirectTransfer::holds_back(const SendWqe& wqe) {
  return wqe.opcode != SendOpcode::send && wqe.opcode != SendOpcode::send_with_immediate;
}

bool DirectTransfer::may_begin(const QueuePair& qp, const SendWqe& wqe) const {
  const bool fits = wqe.opcode == SendOpcode::write || wqe.opcode == SendOpcode::read;
  if (holding_back_ > 0 || wqe.started || !fits || wqe.length == 0) return false;
  // A queue pair that may have no READ outstanding must not send one (IBTA 10.8.3.3).
  if (wqe.opcode == SendOpcode::read && qp.attributes().max_rd_atomic == 0) return false;
  return qp.state() == QpState::rts;
}

// Submits the transfer, or moves the one that is under way on. The local keys are checked again for
// each step, since a region may be deregistered between two of them.
DirectTransfer::Outcome DirectTransfer::advance(Time now, const QueuePair& qp, const SendWqe& wqe) {
  std::array<std::span<std::byte>, verbs::sges_max> pieces;
  std::size_t count = 0;
  const bool read = wqe.opcode == SendOpcode::read;
  if (wqe.flags.has(SendFlag::inline_data)) {
    pieces[count++] = {const_cast<std::byte*>(qp.send_queue.inline_data(wqe)), wqe.length};
  } else {
    const verbs::Sge* sges = qp.send_queue.sges(wqe);
    for (std::uint32_t i = 0; i < wqe.sge_count; ++i) {
      if (sges[i].length == 0) continue;
      const auto access = qp.environment.keys.local(sges[i].lkey, domain_of(qp, wqe),
                                                    sges[i].address, sges[i].length, read);
      if (access.verdict != verbs::KeyTable::Verdict::ok) return Outcome::refused;
      pieces[count++] = {access.memory, sges[i].length};
    }
  }
  const DirectPath::Transfer transfer{
      read, wqe.remote_address, wqe.rkey, wqe.length, {pieces.data(), count}};
  DirectPath& path = *qp.environment.direct;
  const std::uint32_t moved = at_ ? ticket_.moved : 0;
  const bool is_allowed =
      at_ ? path.step(qp, token_, transfer, ticket_) : path.submit(qp, token_, transfer, ticket_);
  due_ = Time::never();
  if (!is_allowed) return Outcome::refused;
  if (ticket_.moved == wqe.length) return Outcome::complete;
  // Transfers that have waited longest come first in the next turn: one that was submitted at this
  // moment and has not moved comes before one that has.
  if (ticket_.moved != moved) {
    waits_since_ = now + Time::picoseconds(1);
  } else if (!at_) {
    waits_since_ = now;
  }
  due_ = waits_since_;
  return Outcome::under_way;
}

}  // namespace tulle::transport::rc
