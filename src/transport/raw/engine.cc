#include "transport/raw/engine.h"

#include "transport/queue_pair.h"

namespace tulle::transport::raw {

using verbs::CompletionStatus;
using verbs::QpState;

bool Engine::pull_frame(QueuePair& qp, std::uint32_t frame_bytes_max, OutgoingPacket& out) {
  if (qp.state() != QpState::rts || pulled_ >= qp.send_queue.size()) return false;
  const SendWqe wqe = qp.send_queue[pulled_];
  CompletionStatus status = CompletionStatus::success;
  if (wqe.length < frame_bytes_min || wqe.length > frame_bytes_max) {
    status = CompletionStatus::local_length_error;
  } else if (!qp.gather(wqe, 0, wqe.length, out)) {
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
  if (qp.state() == QpState::sqd) qp.sent_all();
}

void Engine::receive(QueuePair& qp, Payload frame) {
  const QpState state = qp.state();
  if (state != QpState::rtr && state != QpState::rts && state != QpState::sqd &&
      state != QpState::sqe) {
    ++qp.environment.counters.dropped_packets;
    return;
  }
  // As with datagrams: who sends too much must not be able to end the queue pair.
  verbs::Receive receive;
  if (qp.next_receive_length() < frame.bytes || !qp.take_receive(receive)) {
    ++qp.environment.counters.dropped_messages;
    return;
  }
  verbs::Completion completion;
  completion.wr_id = receive.wr_id;
  completion.opcode = verbs::CompletionOpcode::receive;
  completion.byte_length = frame.bytes;
  if (!qp.scatter(receive.sges.data(), receive.sge_count, 0, frame)) {
    completion.status = CompletionStatus::local_protection_error;
  }
  qp.complete_receive(completion);
  if (completion.status != CompletionStatus::success) qp.enter_error();
}

}  // namespace tulle::transport::raw
