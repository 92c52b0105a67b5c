#include "transport/srd/engine.h"

#include "transport/queue_pair.h"
#include "transport/srd/device.h"

namespace tulle::transport::srd {

using verbs::QpState;

void Engine::hand_over(QueuePair& qp) {
  if (qp.state() != QpState::rts) return;
  for (; handed_over_ < qp.send_queue.size(); ++handed_over_) {
    ++under_way_;
    qp.environment.srd->post(qp, qp.send_queue[handed_over_]);
  }
}

void Engine::finish(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status) {
  wqe.executed = true;
  --under_way_;
  qp.complete(wqe, status, wqe.length);
  while (!qp.send_queue.empty() && qp.send_queue.front().executed) {
    qp.send_queue.pop();
    --handed_over_;
  }
  if (qp.state() == QpState::sqd) qp.sent_all();
}

bool Engine::has_receive(const QueuePair& qp) const {
  return !kept_.empty() || qp.receives_waiting() > 0;
}

std::uint64_t Engine::next_receive_length(const QueuePair& qp) const {
  return kept_.empty() ? qp.next_receive_length() : kept_.front().length();
}

bool Engine::take_receive(QueuePair& qp, verbs::Receive& out) {
  return take_kept(out) || qp.take_receive(out);
}

bool Engine::take_kept(verbs::Receive& out) {
  if (kept_.empty()) return false;
  out = kept_.front();
  kept_.erase(kept_.begin());
  return true;
}

void Engine::forget(QueuePair& qp) {
  if (qp.environment.srd != nullptr) qp.environment.srd->forget(qp);
  under_way_ = handed_over_ = 0;
}

void Engine::reset(QueuePair& qp) {
  forget(qp);
  kept_.clear();
}

}  // namespace tulle::transport::srd
