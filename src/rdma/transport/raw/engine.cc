#include "rdma/transport/raw/engine.h"

#include "base/check.h"
#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::raw {

using verbs::CompletionStatus;
using verbs::QpState;

constinit const Transport transport = {
    .type = verbs::QpType::raw_packet,
    .name = "RAW_PACKET",
    .ladder = verbs::Ladder::raw_packet,
    .sends = {verbs::SendOpcode::send},
    .found_by = FoundBy::flow_rules,
    .scheduled_by = ScheduledBy::frames,
    .make = make_queue_pair<Engine>,
};

constinit const Transport receive_transport = {
    .type = verbs::QpType::receive_work_queue,
    .name = "RECEIVE_WORK_QUEUE",
    .ladder = verbs::Ladder::raw_packet,
    .found_by = FoundBy::flow_rules,
    .scheduled_by = ScheduledBy::frames,
    .make = make_queue_pair<Engine>,
};

Engine& Engine::of(QueuePair& qp) {
  TULLE_CHECK(qp.transport.scheduled_by == ScheduledBy::frames);
  return static_cast<Engine&>(qp.engine());
}

Agenda Engine::agenda(const QueuePair& qp) const { return {.work = !qp.send_queue.empty()}; }

bool Engine::pull_frame(QueuePair& qp, std::uint32_t frame_bytes_max, OutgoingPacket& out) {
  if (qp.state() != QpState::rts || pulled_ >= qp.send_queue.size()) return false;
  const SendWqe wqe = qp.send_queue[pulled_];
  CompletionStatus status = CompletionStatus::success;
  if (wqe.length < frame_bytes_min || wqe.length > frame_bytes_max) {
    status = CompletionStatus::local_length_error;
  } else if (!gather(qp, wqe, 0, wqe.length, out)) {
    status = CompletionStatus::local_protection_error;
  }
  if (status == CompletionStatus::success) {
    ++pulled_;
    return true;
  }
  if (pulled_ > 0) return false;
  qp.send_queue.pop();
  qp.complete(wqe, status, wqe.length);
  qp.enter_send_queue_error();
  return false;
}

void Engine::sent(QueuePair& qp, std::uint32_t count) {
  TULLE_CHECK(count <= pulled_);
  pulled_ = 0;
  for (std::uint32_t i = 0; i < count && !qp.send_queue.empty(); ++i) {
    const SendWqe wqe = qp.send_queue.front();
    qp.send_queue.pop();
    qp.complete(wqe, CompletionStatus::success, wqe.length);
  }
}

void Engine::receive(QueuePair& qp, Payload frame) {
  if (!qp.receives()) {
    ++qp.environment.counters.dropped_packets;
    return;
  }
  // As with UD, a stranger's frame that is too long must not end the queue pair.
  verbs::Receive receive;
  if (qp.next_receive_length() < frame.bytes || !qp.take_receive(receive)) {
    ++qp.environment.counters.dropped_messages;
    return;
  }
  verbs::Completion completion;
  completion.wr_id = receive.wr_id;
  completion.opcode = verbs::CompletionOpcode::receive;
  completion.byte_length = frame.bytes;
  if (!scatter(qp, receive, 0, frame)) {
    completion.status = CompletionStatus::local_protection_error;
  }
  qp.complete_receive(completion);
  if (completion.status != CompletionStatus::success) qp.enter_error();
}

}  // namespace tulle::transport::raw
