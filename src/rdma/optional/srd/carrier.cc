#include "rdma/optional/srd/carrier.h"

#include <algorithm>

#include "rdma/optional/srd/peers.h"

namespace tulle::transport::srd {

bool Carrier::pull(Time now, OutgoingPacket& out) {
  if (!answers_.empty()) {
    const Answer answer = answers_.front();
    answers_.pop();
    peers_.inbound(answer.inbound).fill(now, answer, out);
    return true;
  }
  while (first_ != nullptr) {
    Outbound& outbound = *first_;
    leave_first();
    const bool pulled = outbound.pull(now, out);
    if (pulled && outbound.has_work()) activate(outbound);
    watch(outbound);
    if (pulled) return true;
  }
  return false;
}

void Carrier::attend(Outbound& outbound) {
  if (outbound.has_work()) activate(outbound);
  watch(outbound);
}

void Carrier::activate(Outbound& outbound) {
  if (outbound.is_active) return;
  outbound.is_active = true;
  outbound.next_active = nullptr;
  (last_ != nullptr ? last_->next_active : first_) = &outbound;
  last_ = &outbound;
}

void Carrier::leave_first() {
  first_->is_active = false;
  first_ = first_->next_active;
  if (first_ == nullptr) last_ = nullptr;
}

void Carrier::watch(Outbound& outbound) {
  const Time deadline = outbound.next_deadline();
  if (deadline >= outbound.timer_armed_at) return;
  outbound.timer_armed_at = deadline;
  timers_.push_back({deadline, timer_order_++, &outbound});
  std::push_heap(timers_.begin(), timers_.end(), is_later);
}

void Carrier::rebase(Time by) {
  for (std::uint32_t i = 0; i < answers_.size(); ++i) tulle::rebase(by, answers_[i].came_at);
  for (Timer& timer : timers_) tulle::rebase(by, timer.at);
  std::make_heap(timers_.begin(), timers_.end(), is_later);
}

void Carrier::handle_deadline(Time now) {
  while (!timers_.empty() && timers_.front().at <= now) {
    std::pop_heap(timers_.begin(), timers_.end(), is_later);
    const Timer timer = timers_.back();
    timers_.pop_back();
    Outbound& outbound = *timer.outbound;
    if (outbound.timer_armed_at != timer.at) continue;  // an earlier timer has replaced it
    outbound.timer_armed_at = Time::never();
    if (outbound.next_deadline() <= now) outbound.handle_deadline(now);
    attend(outbound);
  }
}

}  // namespace tulle::transport::srd
