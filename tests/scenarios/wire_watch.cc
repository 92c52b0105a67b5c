#include "tests/scenarios/wire_watch.h"

#include <algorithm>

#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/requester.h"
#include "rdma/wire/opcode.h"
#include "tests/scenarios/broken.h"

namespace tulle::scenarios {

using verbs::CompletionStatus;
using wire::Kind;

namespace {

constexpr std::uint8_t refused_for_ever = 7;  // IBTA 9.7.5.2.8
constexpr std::uint8_t no_credits = 31;       // IBTA 9.7.7.2.3
constexpr int latest_timeout = 4;             // IBTA 9.7.6.1.3, in ACK timers

bool is_answered(Kind kind) {
  return kind == Kind::read_request || kind == Kind::atomic || kind == Kind::atomic_write;
}

}  // namespace

void WireWatch::connect(std::size_t number, const Settings& settings) {
  if (flows_.size() <= number) flows_.resize(number + 1);
  flows_[number] = {};
  flows_[number].settings = settings;
  flows_[number].watched = true;
}

void WireWatch::forget(std::size_t number) {
  if (number < flows_.size()) flows_[number] = {};
}

bool WireWatch::watches(std::size_t number) const {
  return number < flows_.size() && flows_[number].watched;
}

WireWatch::Flow* WireWatch::find(std::size_t number) {
  return watches(number) ? &flows_[number] : nullptr;
}

WireWatch::Place WireWatch::place_of(const Flow& flow, const wire::Packet& packet) {
  return packet.psn.distance_from(flow.settings.first);
}

// Returns the number of PSNs that a request packet takes: a READ's are those of its answer.
std::uint32_t WireWatch::psns_of(const Flow& flow, const wire::Packet& packet) {
  if (wire::info(packet.opcode).kind != Kind::read_request) return 1;
  const std::uint32_t mtu = flow.settings.mtu_bytes;
  return std::max((packet.dma_length + mtu - 1) / mtu, 1u);
}

// --- time ---

void WireWatch::port_used(std::uint32_t node, Time from, Time until) {
  if (ports_.size() <= node) ports_.resize(node + 1);
  Port& port = ports_[node];
  if (port.free_at < from) check_idle_time(node, port.free_at, from);
  port.free_at = until;
}

// While a port is idle, none of its node's requesters has anything to send again.
void WireWatch::check_idle_time(std::uint32_t node, Time from, Time until) const {
  for (std::size_t number = 0; number < flows_.size(); ++number) {
    const Flow& flow = flows_[number];
    const bool waits = flow.watched && flow.settings.node == node &&
                       flow.unacknowledged < flow.sent_end && sends_(number);
    if (!waits) continue;
    if (flow.is_refused) {
      promise(std::max(from, flow.refused_until) >= until,
              flow.settings.name + ": sent nothing when its RNR wait was over");
      continue;
    }
    const Time timeout = transport::ack_timeout(flow.settings.timeout);
    if (timeout.is_never()) continue;
    promise(std::max(from, flow.silent_since + timeout * latest_timeout) >= until,
            flow.settings.name + ": the ACK timer ran for more than four times its time");
  }
}

// --- the requester's packets ---

void WireWatch::request_left(Time now, std::size_t number, const wire::Packet& packet) {
  Flow* const flow = find(number);
  if (flow == nullptr) return;
  const Place place = place_of(*flow, packet);
  const Kind kind = wire::info(packet.opcode).kind;
  const std::uint32_t psns = psns_of(*flow, packet);
  promise(flow->refused_until.is_never() || now >= flow->refused_until,
          flow->settings.name + ": sent during an RNR wait");
  promise(place <= flow->sent_end, flow->settings.name + ": left out a PSN");
  if (place < flow->next) sent_again(now, *flow);
  const bool is_new = place == flow->sent_end;
  if (is_new) begin_message(*flow, packet, place);
  const Place known = flow->answers.empty() ? place : std::max(place, flow->answers.back().end);
  if (is_answered(kind) && known < place + psns) flow->answers.push_back({known, place + psns});
  flow->next = place + psns;
  flow->sent_end = std::max(flow->sent_end, flow->next);
  if (flow->timer_began.is_never()) flow->timer_began = now;
  flow->refused_until = Time::never();
  flow->is_refused = false;
  flow->silent_since = now;
  if (is_new) flow->had_credits = has_credits(*flow);
}

// The requester has gone back to an earlier packet: because an answer told it to, or because its
// timer ran out.
void WireWatch::sent_again(Time now, Flow& flow) {
  const Settings& settings = flow.settings;
  if (flow.is_refused) {
    promise(settings.rnr_retry == refused_for_ever || flow.refusals <= settings.rnr_retry,
            settings.name + ": sent again after more RNR NAKs than its retries");
    flow.timer_began = flow.refused_until;
    return;
  }
  if (!flow.asked_at.is_never()) {
    ++flow.repairs;
    flow.timer_began = flow.asked_at;
    flow.asked_at = Time::never();
    return;
  }
  const Time timeout = transport::ack_timeout(settings.timeout);
  promise(!timeout.is_never() && now >= flow.timer_began + timeout,
          settings.name + ": sent again before its ACK timer ran out");
  ++flow.timeouts;
  promise(flow.timeouts <= settings.retry_count,
          settings.name + ": sent again after more time-outs than its retries");
  flow.timer_began = now;
  flow.has_gone_back = false;
}

void WireWatch::begin_message(Flow& flow, const wire::Packet& packet, Place place) {
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  // A WRITE takes a receive if its last packet has immediate data.
  const bool takes_receive =
      info.kind == Kind::send || (info.kind == Kind::write && info.immediate);
  if (!takes_receive) return;
  if (info.starts_message()) {
    // The message may have waited for room in the window since the last packet.
    promise(flow.had_credits || flow.unacknowledged >= place,
            flow.settings.name + ": began a message beyond its credits");
  }
  if (info.starts_message() || info.kind == Kind::write) ++flow.messages_started;
  if (info.ends_message()) flow.message_ends.push_back(place);
}

// --- the responder's packets ---

// Everything up to `last` was acknowledged. Returns false if the answer to a READ or an atomic is
// missing, which acknowledges nothing from there on (IBTA 9.7.5.1.3).
bool WireWatch::acknowledge(Time now, Flow& flow, Place last) {
  const bool whole = flow.answers.empty() || flow.answers.front().begin > last;
  progress_to(now, flow, whole ? last + 1 : std::min(flow.answers.front().begin, last + 1));
  return whole;
}

void WireWatch::progress_to(Time now, Flow& flow, Place place) {
  if (place <= flow.unacknowledged) return;
  flow.unacknowledged = place;
  while (!flow.answers.empty() && flow.answers.front().end <= place) flow.answers.pop_front();
  if (!flow.answers.empty())
    flow.answers.front().begin = std::max(flow.answers.front().begin, place);
  for (; !flow.message_ends.empty() && flow.message_ends.front() < place;
       flow.message_ends.pop_front()) {
    ++flow.messages_acknowledged;
  }
  flow.timeouts = flow.repairs = flow.refusals = 0;
  flow.has_gone_back = false;
  flow.next = std::max(flow.next, place);
  flow.timer_began = flow.next > place ? now : Time::never();
}

void WireWatch::ask_again(Time now, Flow& flow) {
  const bool is_waiting = flow.is_refused && now < flow.refused_until;
  if (flow.has_gone_back || is_waiting) return;
  flow.has_gone_back = true;
  flow.asked_at = now;
}

void WireWatch::refuse(Time now, Flow& flow, const wire::Packet& packet) {
  if (flow.is_refused && now < flow.refused_until) return;
  ++flow.refusals;
  flow.is_refused = true;
  flow.refused_until = now + transport::rnr_timer(packet.syndrome.value);
}

bool WireWatch::has_credits(const Flow& flow) {
  return !flow.is_told_credits || flow.messages_started < flow.message_limit;
}

void WireWatch::update_credits(Flow& flow, const wire::Packet& packet) {
  if (packet.syndrome.kind != wire::AckKind::ack) return;
  flow.is_told_credits = packet.syndrome.value != no_credits;
  flow.message_limit =
      flow.messages_acknowledged + transport::rc::credits_of_code(packet.syndrome.value);
  flow.had_credits = flow.had_credits || has_credits(flow);
}

void WireWatch::answer_arrived(Time now, std::size_t number, const wire::Packet& packet) {
  Flow* const flow = find(number);
  if (flow == nullptr || !sends_(number)) return;
  const Place place = place_of(*flow, packet);
  if (place >= flow->sent_end || place < flow->unacknowledged - 1) return;
  flow->silent_since = now;
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  if (info.kind != Kind::acknowledge) {
    if (place < flow->unacknowledged) return;
    if (!acknowledge(now, *flow, place - 1)) return ask_again(now, *flow);
    if (place != flow->unacknowledged) return;
    progress_to(now, *flow, place + 1);
    if (info.aeth) update_credits(*flow, packet);
    return;
  }
  if (packet.syndrome.kind == wire::AckKind::ack) {
    if (!acknowledge(now, *flow, place)) ask_again(now, *flow);
    return update_credits(*flow, packet);
  }
  if (place < flow->unacknowledged) return;
  if (!acknowledge(now, *flow, place - 1)) return ask_again(now, *flow);
  if (packet.syndrome.kind == wire::AckKind::rnr_nak) return refuse(now, *flow, packet);
  if (packet.syndrome.kind == wire::AckKind::nak) ask_again(now, *flow);
}

void WireWatch::failed(Time now, std::size_t number, CompletionStatus status) {
  const Flow* const flow = find(number);
  if (flow == nullptr) return;
  const Settings& settings = flow->settings;
  if (status == CompletionStatus::rnr_retry_exceeded_error) {
    promise(settings.rnr_retry != refused_for_ever && flow->refusals == settings.rnr_retry + 1u,
            settings.name + ": gave up after " + std::to_string(flow->refusals) + " RNR NAKs");
  }
  if (status == CompletionStatus::retry_exceeded_error) {
    // An answer may come between a time-out and the packets that are sent again for it.
    promise(flow->timeouts + flow->repairs >= settings.retry_count,
            settings.name + ": gave up after " + std::to_string(flow->timeouts) + " retries");
    promise(now >= flow->timer_began + transport::ack_timeout(settings.timeout),
            settings.name + ": gave up before its ACK timer ran out");
  }
}

// --- the responder ---

void WireWatch::request_arrived(std::size_t number, const wire::Packet& packet,
                                std::uint32_t receives) {
  Flow* const flow = find(number);
  if (flow == nullptr) return;
  const Place place = place_of(*flow, packet);
  if (place < 0) return;
  auto& arrived = flow->arrived;
  const auto begin = static_cast<std::size_t>(place);
  const std::size_t end = begin + psns_of(*flow, packet);
  if (arrived.size() < end) arrived.resize(end);
  for (std::size_t i = begin; i < end; ++i) arrived[i] = arrived[i].value_or(receives);
  const auto is_there = [&arrived](Place at) {
    return static_cast<std::size_t>(at) < arrived.size() &&
           arrived[static_cast<std::size_t>(at)].has_value();
  };
  while (is_there(flow->arrived_end)) ++flow->arrived_end;
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  const bool takes_receive = (info.kind == Kind::send && info.starts_message()) ||
                             (info.kind == Kind::write && info.immediate);
  if (takes_receive) flow->arrived_messages.insert(place);
}

void WireWatch::answer_left(std::size_t number, const wire::Packet& packet,
                            std::uint32_t receives) {
  Flow* const flow = find(number);
  const bool has_credits =
      wire::info(packet.opcode).aeth && packet.syndrome.kind == wire::AckKind::ack;
  if (flow == nullptr || !has_credits) return;
  const std::string& name = flow->settings.name;
  const Place place = place_of(*flow, packet);
  promise(place < flow->arrived_end, name + ": its peer acknowledged what had not arrived");
  if (flow->settings.takes_shared_receives) {
    promise(packet.syndrome.value == no_credits, name + ": its peer told of shared receives");
    return;
  }
  promise(packet.syndrome.value != no_credits, name + ": its peer told of no credits");
  const auto told = std::int64_t{transport::rc::credits_of_code(packet.syndrome.value)};
  // Messages up to this packet have taken their receives. Others that have arrived may have.
  const auto taken = flow->messages_acknowledged +
                     std::count_if(flow->message_ends.begin(), flow->message_ends.end(),
                                   [place](Place end) { return end <= place; });
  promise(told <= std::int64_t{receives} - taken,
          name + ": its peer told of more receives than it had");
  // The responder may have written its answer when the request arrived.
  const std::uint32_t before = place < 0 ? 0 : *flow->arrived[static_cast<std::size_t>(place)];
  const std::int64_t least =
      std::int64_t{before} - static_cast<std::int64_t>(flow->arrived_messages.size());
  const std::uint8_t least_code =
      transport::rc::credit_code(static_cast<std::uint32_t>(std::max<std::int64_t>(least, 0)));
  promise(told >= std::int64_t{transport::rc::credits_of_code(least_code)},
          name + ": its peer told of " + std::to_string(told) + " receives and had " +
              std::to_string(least));
}

}  // namespace tulle::scenarios
