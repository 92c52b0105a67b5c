#include "tests/scenarios/world.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "tests/scenarios/broken.h"

namespace tulle::scenarios {

using verbs::CompletionStatus;
using verbs::EventType;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;

namespace {

// Limits that only a hung scenario reaches: by then every retry of every request has run out, and
// there were far more events than a scenario needs.
constexpr Time time_max = Time::seconds(300);
constexpr std::uint64_t events_max = 3'000'000;

constexpr std::uint64_t receive_bit = std::uint64_t{1} << 63;

}  // namespace

Outcome World::run() {
  plan_alarms();
  for (auto& end : ends_) {
    end->hot_versions.push_back(
        end->peer->exposed.gather(std::array{Piece{end->peer->hot_offset, 40}}));
    pump(*end);
  }
  while (!all_finished()) {
    const sim::Happening happening = cluster_.step();
    promise(happening.kind != sim::Happening::Kind::nothing,
            "nothing is left to happen, and unfinished are" + unfinished());
    promise(cluster_.now() < time_max && cluster_.events() < events_max,
            "no end in sight; unfinished are" + unfinished());
    if (happening.kind == sim::Happening::Kind::alarm) {
      handle_alarm(happening.node.value, happening.token);
    }
    look_at(happening.node.value);
  }
  settle();
  if (sabotage_ == Sabotage::payload_damaged) outcome_.sabotaged = cluster_.faults().corrupted > 0;
  for (auto& end : ends_) promises_.check_finished(*end);
  check_perfect();
  tear_down();
  for (auto& end : ends_) promises_.check_memory(*end);
  for (auto& pool : pools_) promises_.check_receives(*pool);
  for (auto& node : nodes_) promises_.check_node(node);
  destroy_all();
  outcome_.digest = cluster_.digest();
  outcome_.events = cluster_.events();
  return outcome_;
}

bool World::finished(const End& end) const {
  if (end.outstanding() > 0) return false;
  if (end.gave_up) return true;
  return end.first_error ? end.qp->state() != QpState::sqe : end.posted.size() == end.ops.size();
}

bool World::all_finished() const {
  return std::all_of(ends_.begin(), ends_.end(),
                     [this](const auto& end) { return finished(*end); });
}

std::string World::unfinished() const {
  std::string out;
  for (const auto& end : ends_) {
    if (finished(*end)) continue;
    out += " [" + end->name() + ": " + std::to_string(end->completed) + " completed, " +
           std::to_string(end->posted.size()) + " posted of " + std::to_string(end->ops.size()) +
           "]";
  }
  return out;
}

// Delivers what is still on its way, and polls every completion.
void World::settle() {
  while (cluster_.events() < events_max) {
    const sim::Happening happening = cluster_.step();
    if (happening.kind == sim::Happening::Kind::nothing) break;
    if (happening.kind == sim::Happening::Kind::alarm) {
      handle_alarm(happening.node.value, happening.token);
    }
    look_at(happening.node.value);
  }
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    for (auto& queue : queues_[node]) poll(node, *queue.cq);
  }
}

void World::tear_down() {
  tearing_down_ = true;
  if (sabotage_ != Sabotage::none) sabotage_memory();
  for (auto& end : ends_) {
    transport::QueuePairAttributes to;
    to.state = QpState::error;
    if (end->qp->state() != QpState::error) modify(*end, to, QpAttribute::state);
    modify_target(*end, to, QpAttribute::state);
  }
  settle();
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) pull_events(node);
  for (auto& end : ends_) promises_.check_flushed(*end);
}

// Checks that nothing was sent twice if nothing was lost, late or refused. Also adds up the
// retransmitted packets.
void World::check_perfect() {
  bool quiet = plan_.weather == Weather::perfect && !plan_.cut_off;
  for (const ChannelPlan& channel : plan_.channels) {
    quiet = quiet && channel.mishap == Mishap::none;
  }
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    const transport::Counters& counters = adapter(node).counters().transport;
    outcome_.retransmitted += counters.retransmitted_packets;
    if (!quiet) continue;
    promise(counters.retransmitted_packets == 0 && counters.ack_timeouts == 0 &&
                counters.sequence_naks_sent == 0 && counters.implied_naks == 0 &&
                counters.rnr_naks_sent == 0 && counters.dropped_messages == 0,
            "packets were sent again over a perfect network");
  }
}

// --- alarms ---

void World::alarm(Time at, std::uint32_t node, Alarm what, std::uint32_t which,
                  std::uint32_t more) {
  cluster_.alarm(at, sim::NodeNumber(node),
                 static_cast<std::uint64_t>(what) << 56 | std::uint64_t{more} << 24 | which);
}

void World::plan_alarms() {
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    const End& end = *ends_[i];
    if (end.mine->drain) alarm(end.mine->drain_at, end.mine->node, Alarm::drain, i);
  }
  for (std::uint32_t i = 0; i < plan_.channels.size(); ++i) {
    const ChannelPlan& channel = plan_.channels[i];
    if (channel.mishap == Mishap::moved_to_error || channel.mishap == Mishap::reset_and_reconnect) {
      alarm(channel.mishap_at, channel.ends[channel.mishap_end].node, Alarm::mishap, i);
    }
  }
  if (plan_.cut_off) alarm(plan_.cut_off_at, plan_.cut_off_node, Alarm::cut_off, 0);
}

void World::handle_alarm(std::uint32_t node, std::uint64_t token) {
  const auto which = static_cast<std::uint32_t>(token & 0xFF'FFFF);
  const auto more = static_cast<std::uint32_t>(token >> 24);
  switch (static_cast<Alarm>(token >> 56)) {
    case Alarm::resume:
      ends_[which]->paused = false;
      pump(*ends_[which]);
      break;
    case Alarm::to_rts:
      if (ends_[which]->qp->state() == QpState::rtr) to_rts(*ends_[which]);
      if (ends_[which]->qp->state() == QpState::error) ends_[which]->ready = true;
      pump(*ends_[which]);
      break;
    case Alarm::drain:
      start_drain(*ends_[which]);
      break;
    case Alarm::drained_over:
      end_drain(*ends_[which]);
      break;
    case Alarm::post_receive:
      post_receive(*pools_[which], more);
      break;
    case Alarm::poll:
      queues_[node][which].poll_planned = false;
      poll_unasked(node, queues_[node][which]);
      break;
    case Alarm::mishap:
      start_mishap(which);
      break;
    case Alarm::reconnect:
      connect(end_of(which, 0), end_of(which, 1));
      pump(end_of(which, 0));
      pump(end_of(which, 1));
      break;
    case Alarm::cut_off:
      cluster_.cut_off(sim::NodeNumber(node));
      break;
    case Alarm::look:
      break;
  }
}

void World::start_mishap(std::uint32_t channel) {
  if (plan_.channels[channel].mishap == Mishap::reset_and_reconnect) {
    reset_channel(channel);
    return;
  }
  End& end = end_of(channel, plan_.channels[channel].mishap_end);
  transport::QueuePairAttributes to;
  to.state = QpState::error;
  modify(end, to, QpAttribute::state);
  cluster_.attend(sim::NodeNumber(end.mine->node));
}

// Resets both ends at once. The new connection begins when nothing of the old one can still be on
// its way.
void World::reset_channel(std::uint32_t channel) {
  for (int side = 0; side < 2; ++side) {
    End& end = end_of(channel, side);
    transport::QueuePairAttributes to;
    to.state = QpState::reset;
    modify(end, to, QpAttribute::state);
    end.ready = end.drained = false;
  }
  for (int side = 0; side < 2; ++side) promises_.was_reset(end_of(channel, side));
  for (int side = 0; side < 2; ++side) {
    End& end = end_of(channel, side);
    promises_.was_forgotten(end);
    wire_.forget(number_of(end));
    for (auto& buffer : end.receives->buffers) buffer.posted = false;
    end.receives->order.clear();
  }
  const Time wait = plan_.network.link_delay + plan_.network.faults.reorder_delay;
  alarm(cluster_.now() + wait + Time::milliseconds(1), end_of(channel, 0).mine->node,
        Alarm::reconnect, channel);
}

// --- draining the send queue ---

void World::start_drain(End& end) {
  if (end.qp->state() != QpState::rts) return;
  transport::QueuePairAttributes to;
  to.state = QpState::sqd;
  to.sqd_async_notify = true;
  modify(end, to, QpAttributeMask(QpAttribute::state) | QpAttribute::sqd_async_notify);
  cluster_.attend(sim::NodeNumber(end.mine->node));
}

void World::end_drain(End& end) {
  if (!end.drained || end.qp->state() != QpState::sqd) return;
  end.drained = false;
  promise(end.qp->send_queue.size() >= end.waiting_when_drained,
          end.name() + ": a request completed while the send queue was drained");
  transport::QueuePairAttributes to;
  to.state = QpState::rts;
  modify(end, to, QpAttribute::state);
  cluster_.attend(sim::NodeNumber(end.mine->node));
}

// Moves a send queue in error (UC, UD) back to RTS when all flushed requests have been seen.
void World::recover(End& end) {
  if (end.qp->state() != QpState::sqe || end.outstanding() > 0) return;
  transport::QueuePairAttributes to;
  to.state = QpState::rts;
  modify(end, to, QpAttribute::state);
  end.first_error.reset();
}

// --- the adapters' events ---

void World::look_at(std::uint32_t node) {
  pull_events(node);
  for (std::uint32_t i = 0; i < queues_[node].size(); ++i) look_at_queue(node, i);
}

void World::pull_events(std::uint32_t node) {
  for (device::Event event; adapter(node).pull_event(event);) handle_event(node, event);
}

void World::handle_event(std::uint32_t node, const device::Event& event) {
  if (event.kind == device::Event::Kind::completion) {
    promise(plan_.nodes[node].polling == Polling::by_event,
            "an event of a queue that is not armed");
    if (sabotage_ == Sabotage::event_lost && !outcome_.sabotaged && event.cq->size() > 0) {
      outcome_.sabotaged = true;
      return;
    }
    for (Cq& queue : queues_[node]) {
      if (queue.cq == event.cq) queue.event_came = true;
    }
    return;
  }
  if (event.type == EventType::srq_limit_reached) {
    promise(nodes_[node].shared != nullptr && ++nodes_[node].shared->limit_events == 1,
            "a shared receive queue told of its limit twice");
    return;
  }
  promise(event.qp != nullptr, "an asynchronous event without a queue pair");
  End& end = *static_cast<End*>(event.qp->init.cookie);
  ++end.events[event.type];
  if (event.type == EventType::send_queue_drained) {
    promise(end.qp->state() == QpState::sqd, end.name() + ": drained in another state");
    ++end.drains;
    end.drained = true;
    end.waiting_when_drained = end.qp->send_queue.size();
    alarm(cluster_.now() + Time::microseconds(100), node, Alarm::drained_over,
          2 * end.channel_number + end.side);
  }
}

void World::look_at_queue(std::uint32_t node, std::uint32_t number) {
  Cq& queue = queues_[node][number];
  const NodePlan& plan = plan_.nodes[node];
  if (plan.polling == Polling::by_event && queue.event_came) {
    queue.event_came = false;
    adapter(node).objects().request_notification(*queue.cq, plan.solicited_only);
    poll(node, *queue.cq);
    return;
  }
  if (queue.cq->size() == 0 || queue.poll_planned) return;
  if (plan.polling == Polling::at_once) {
    poll(node, *queue.cq);
    return;
  }
  // With polling by event, this alarm is only for completions that asked for no event, or that
  // should have had one.
  const std::uint64_t most = plan.polling == Polling::by_event ? 400'000 : 60'000;
  queue.poll_planned = true;
  alarm(cluster_.now() + Time::nanoseconds(static_cast<std::int64_t>(1 + random_.below(most))),
        node, Alarm::poll, number);
}

// Polls a queue without an event. A queue that is armed may have only completions that it was not
// armed for.
void World::poll_unasked(std::uint32_t node, Cq& queue) {
  pull_events(node);
  const NodePlan& plan = plan_.nodes[node];
  const bool unannounced = plan.polling == Polling::by_event && !queue.event_came;
  promise(!unannounced || plan.solicited_only || queue.cq->size() == 0,
          "there was no event for a completion");
  promises_.unannounced = unannounced;
  poll(node, *queue.cq);
  promises_.unannounced = false;
}

void World::poll(std::uint32_t node, verbs::CompletionQueue& cq) {
  std::array<verbs::Completion, 8> completions;
  for (;;) {
    const std::uint64_t most = 1 + random_.below(completions.size());
    const std::uint32_t count = cq.poll({completions.data(), most});
    if (count == 0) break;
    for (std::uint32_t i = 0; i < count; ++i) completed(node, completions[i]);
  }
  for (auto& end : ends_) {
    if (end->mine->node != node) continue;
    if (end->send_cq == &cq) recover(*end);
    pump(*end);
    // The peer may have waited for what this end has learnt about their window.
    if (end->channel->window_cycles > 0) pump(*end->peer);
  }
}

void World::completed(std::uint32_t node, verbs::Completion completion) {
  ++outcome_.completions;
  transport::QueuePair* qp = adapter(node).find_qp(completion.qp);
  promise(qp != nullptr, "a completion of a queue pair that does not exist");
  End& end = *static_cast<End*>(qp->init.cookie);
  promise(completion.qp_cookie == &end, "a completion with another queue pair's cookie");
  if (tracing_) {
    std::printf("%12.3f us  %s: wr_id %llx status %d\n", cluster_.now().to_seconds() * 1e6,
                end.name().c_str(), static_cast<unsigned long long>(completion.wr_id),
                static_cast<int>(completion.status));
  }
  promise(!promises_.unannounced || completion.status == CompletionStatus::success,
          end.name() + ": there was no event for a failure");
  if (!sabotage_completion(end, completion)) return;
  if ((completion.wr_id & receive_bit) != 0) {
    receive_completed(end, completion);
  } else {
    wire_.failed(cluster_.now(), number_of(end), completion.status);
    promises_.send_completed(cluster_.now(), end, completion);
  }
}

void World::receive_completed(End& end, const verbs::Completion& completion) {
  ReceivePool& pool = *end.receives;
  const auto number = static_cast<std::uint32_t>(completion.wr_id);
  const auto place = std::find(pool.order.begin(), pool.order.end(), completion.wr_id);
  promise(place != pool.order.end(), end.name() + ": a receive completed that was not posted");
  promise(pool.srq != nullptr || place == pool.order.begin(),
          end.name() + ": a receive completed before an earlier one");
  pool.order.erase(place);
  auto& buffer = pool.buffers[number];
  promises_.receive_completed(end, buffer, completion);
  buffer.posted = false;
  const auto late = static_cast<std::int64_t>(
      random_.below(1 + static_cast<std::uint64_t>(end.mine->receive_delay_max.to_nanoseconds())));
  if (random_.below(2) == 0) {
    post_receive(pool, number);
  } else if (can_post_receive(pool)) {
    alarm(cluster_.now() + Time::nanoseconds(late), pool.node, Alarm::post_receive, pool.number,
          number);
  }
}

}  // namespace tulle::scenarios
