#include "rdma/verbs/completion_queue.h"

#include <algorithm>

namespace tulle::verbs {

void CompletionEvents::add(CompletionQueue& cq) {
  if (cq.event_waits_) return;
  cq.event_waits_ = true;
  cq.next_event_ = nullptr;
  (last != nullptr ? last->next_event_ : first) = &cq;
  last = &cq;
}

CompletionQueue* CompletionEvents::take() {
  CompletionQueue* cq = first;
  if (cq == nullptr) return nullptr;
  first = cq->next_event_;
  if (first == nullptr) last = nullptr;
  cq->event_waits_ = false;
  return cq;
}

void CompletionEvents::remove(CompletionQueue& cq) {
  if (!cq.event_waits_) return;
  CompletionQueue* previous = nullptr;
  for (CompletionQueue* at = first; at != &cq; at = at->next_event_) previous = at;
  (previous != nullptr ? previous->next_event_ : first) = cq.next_event_;
  if (last == &cq) last = previous;
  cq.event_waits_ = false;
}

void CompletionEvents::hold(CompletionQueue& cq) {
  held.push_back(&cq);
  if (tell != nullptr) tell(tell_context);
}

Time CompletionEvents::raise_due(Time now) {
  Time next = Time::never();
  for (std::size_t i = 0; i < held.size();) {
    CompletionQueue& cq = *held[i];
    CompletionQueue::Moderation& moderation = *cq.moderation_;
    if (moderation.due == Time::never()) moderation.due = now + moderation.period;
    if (moderation.due <= now) {
      cq.raise();  // removes it from `held`
      continue;
    }
    next = std::min(next, moderation.due);
    ++i;
  }
  return next;
}

void CompletionEvents::rebase(Time by) {
  for (CompletionQueue* cq : held) tulle::rebase(by, cq->moderation_->due);
}

bool CompletionQueue::push(const Completion& completion) {
  if (ring_.full() || overrun_) {
    overrun_ = true;
    return false;
  }
  ring_.push() = completion;
  if (times_ != nullptr) [[unlikely]]
    times_->ring.push(times_->clock->nanoseconds());
  // IBTA 11.4.2.2: a completion in error counts as solicited.
  const bool solicited = completion.solicited || completion.status != CompletionStatus::success;
  if (armed_ == Armed::any || (armed_ == Armed::solicited && solicited)) {
    if (moderation_ != nullptr) [[unlikely]] {
      if (++moderation_->waiting == 1) events_.hold(*this);
      if (moderation_->waiting < moderation_->count) return true;
    }
    raise();
  }
  return true;
}

void CompletionQueue::raise() {
  become(Armed::no);
  if (moderation_ != nullptr && moderation_->waiting > 0) {
    std::erase(events_.held, this);
    moderation_->waiting = 0;
    moderation_->due = Time::never();
  }
  events_.add(*this);
}

void CompletionQueue::moderate(std::uint32_t count, Time period) {
  std::unique_ptr<Moderation> wanted;
  if (count > 1 && period > Time()) {
    wanted = std::make_unique<Moderation>(Moderation{count, period});
    events_.held.reserve(events_.moderated + 1);
    ++events_.moderated;
  }
  if (moderation_ != nullptr) {
    if (moderation_->waiting > 0) raise();
    --events_.moderated;
  }
  moderation_ = std::move(wanted);
}

std::uint32_t CompletionQueue::poll(std::span<Completion> out) {
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), ring_.size()));
  for (std::uint32_t i = 0; i < count; ++i) {
    out[i] = ring_.front();
    ring_.pop();
  }
  if (times_ != nullptr) [[unlikely]] {
    for (std::uint32_t i = 0; i < count; ++i) {
      times_->of_last = times_->ring.front();
      times_->ring.pop();
    }
  }
  return count;
}

void CompletionQueue::keep_times(const CompletionClock& clock) {
  times_ = std::make_unique<Times>(Times{&clock, Ring<std::uint64_t>(capacity())});
}

void CompletionQueue::arm(bool solicited_only) {
  // A request for any completion after one for solicited completions widens it. In the opposite
  // order the wider request stays (IBTA 11.4.2.2).
  if (!solicited_only) {
    become(Armed::any);
  } else if (armed_ == Armed::no) {
    become(Armed::solicited);
  }
}

bool CompletionQueue::resize(std::uint32_t entries) {
  if (entries < ring_.size()) return false;
  Ring<Completion> larger(entries);
  Ring<std::uint64_t> more_times(times_ != nullptr ? entries : 0);
  for (; !ring_.empty(); ring_.pop()) larger.push() = ring_.front();
  ring_ = std::move(larger);
  if (times_ == nullptr) return true;
  for (; !times_->ring.empty(); times_->ring.pop()) more_times.push(times_->ring.front());
  times_->ring = std::move(more_times);
  return true;
}

void CompletionQueue::forget(QpNumber qp) {
  for (std::uint32_t left = ring_.size(); left > 0; --left) {
    const Completion completion = ring_.front();
    ring_.pop();
    const bool stays = completion.qp != qp;
    if (stays) ring_.push() = completion;
    if (times_ == nullptr) continue;
    const std::uint64_t time = times_->ring.front();
    times_->ring.pop();
    if (stays) times_->ring.push(time);
  }
}

}  // namespace tulle::verbs
