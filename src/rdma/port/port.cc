#include "rdma/port/port.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "rdma/wire/packet.h"

namespace tulle::port {
namespace {

std::uint8_t bit(std::uint32_t lane) { return static_cast<std::uint8_t>(1u << lane); }

}  // namespace

Port::Port(const Settings& settings, FramePool* frames, bool has_head_lifetime)
    : settings_(&settings), frames_(frames) {
  if (settings.flow_control == FlowControl::credits) {
    credits_ = std::make_unique<Credits>();
    credits_->receivers.fill(CreditReceiver(settings.lane_buffer_bytes / credit_block_bytes));
  }
  if (!has_head_lifetime && !settings.congestion.enabled) return;
  TULLE_CHECK(settings.flow_control == FlowControl::credits);
  watch_ = std::make_unique<Watch>();
}

// --- frames that wait in the port's queues ---

// Strict classes come first, in order from the highest. The others take turns in rounds, in which
// each class may send its quantum and what it has left from the round before.
std::uint8_t Port::class_to_send(std::uint8_t open) {
  for (std::uint32_t c = classes; c-- > 0;) {
    if ((open & bit(c)) != 0 && settings_->quantum_bytes[c] == 0) {
      return static_cast<std::uint8_t>(c);
    }
  }
  for (;;) {
    const std::uint32_t c = turn_;
    if ((open & bit(c)) != 0) {
      Lane& lane = lanes_[c];
      if (!turn_begun_) lane.deficit += settings_->quantum_bytes[c];
      turn_begun_ = true;
      const std::uint32_t bytes = (*frames_)[lane.first].link_bytes();
      if (lane.deficit >= bytes) {
        lane.deficit -= bytes;
        return static_cast<std::uint8_t>(c);
      }
    }
    turn_ = static_cast<std::uint8_t>((c + 1) % classes);
    turn_begun_ = false;
  }
}

FrameRef Port::take_head(std::uint32_t number) {
  Lane& lane = lanes_[number];
  const FrameRef ref = lane.first;
  const Frame& frame = (*frames_)[ref];
  lane.first = frame.next;
  lane.queue_bytes -= frame.buffer_bytes;
  if (frame.next == no_frame) waiting_ = static_cast<std::uint8_t>(waiting_ & ~bit(number));
  return ref;
}

FrameRef Port::empty_queue(std::uint32_t number) {
  Lane& lane = lanes_[number];
  lane.queue_bytes = 0;
  lane.deficit = 0;
  waiting_ = static_cast<std::uint8_t>(waiting_ & ~bit(number));
  return std::exchange(lane.first, no_frame);
}

// --- packets that wait elsewhere ---

std::uint32_t Port::open_lanes(std::uint32_t bytes) const {
  std::uint32_t open = settings_->arbitration.lanes();
  for (std::uint32_t lane = 0; lane < classes; ++lane) {
    if (!credits_->senders[lane].may_send(bytes)) open &= ~(1u << lane);
  }
  return open;
}

// --- memory for frames that came in ---

bool Port::stop(std::uint8_t class_bits) {
  stopping_ |= class_bits;
  return talk(class_bits);
}

bool Port::resume(std::uint8_t class_bits) {
  stopping_ = static_cast<std::uint8_t>(stopping_ & ~class_bits);
  return talk(class_bits);
}

void Port::fall_silent() {
  stopping_ = 0;
  untold_ = 0;
}

bool Port::free_room(std::uint32_t lane, std::uint32_t bytes) {
  CreditReceiver& receiver = credits_->receivers[lane];
  receiver.released(bytes);
  const std::uint32_t blocks = settings_->lane_buffer_bytes / credit_block_bytes;
  return receiver.is_worth_telling(blocks) && talk(bit(lane));
}

Control Port::announce_credits(std::uint8_t lane) {
  return Control::of(CreditUpdate{lane, credits_->receivers[lane].tell()});
}

// --- control messages ---

// Returns true if there was nothing to tell before and is now.
bool Port::talk(std::uint8_t class_bits) {
  const bool was_silent = untold_ == 0;
  untold_ |= class_bits;
  return was_silent && untold_ != 0;
}

Control Port::pull_control() {
  if (untold_ == 0) return {};
  if (credits_ != nullptr) {
    const auto lane = static_cast<std::uint8_t>(std::countr_zero(untold_));
    untold_ = static_cast<std::uint8_t>(untold_ & (untold_ - 1));
    return announce_credits(lane);
  }
  const Pause pause{static_cast<std::uint8_t>(untold_ & stopping_),
                    static_cast<std::uint8_t>(untold_ & ~stopping_)};
  untold_ = 0;
  return Control::of(pause);
}

bool Port::handle_control(Time now, const Control& control, Time pause) {
  if (control.kind == Control::Kind::credit) {
    if (credits_ != nullptr) credits_->senders[control.credit.lane].update(control.credit.limit);
    return false;
  }
  const std::uint8_t fresh = pause_.handle(now, control.pause, pause);
  update_pause(now);
  return fresh != 0;
}

Time Port::expire_pauses(Time now) {
  pause_.expire(now);
  update_pause(now);
  return pause_.next_end();
}

void Port::update_pause(Time now) {
  stopped_ = pause_.stopped();
  if (!is_down_) dropping_ = static_cast<std::uint8_t>(dropping_ & stopped_);
  counters_.pauses = pause_.pauses();
  counters_.paused_ps = pause_.paused(now).ps;
}

// --- watchdogs ---

std::uint8_t Port::trip_watchdog(Time now) {
  const auto stuck =
      static_cast<std::uint8_t>(pause_.stopped_for(now, settings_->watchdog) & ~dropping_);
  dropping_ |= stuck;
  counters_.watchdog_trips += static_cast<std::uint64_t>(std::popcount(stuck));
  return stuck;
}

Port::Expired Port::expire_head(Time now, std::uint32_t lane, Time lifetime) {
  Head& head = watch_->heads[lane];
  if (head.stalled_until > Time::zero() && head.stalled_until <= now) {
    head = {now};
    if (!is_down_) dropping_ = static_cast<std::uint8_t>(dropping_ & ~bit(lane));
  }
  if (lanes_[lane].first == no_frame || head.since + lifetime > now) return Expired::nothing;
  head.since = now;
  if (++head.discarded_in_row != settings_->stall_count) return Expired::head;
  head.stalled_until = now + lifetime * 8;
  dropping_ |= bit(lane);
  return Expired::queue;
}

void PortControl::end_stalls(Port& port, Time now) {
  for (std::uint32_t lane = 0; lane < classes; ++lane) {
    Port::Head& head = port.watch_->heads[lane];
    if (head.stalled_until == Time::zero()) continue;
    head = {now};
    if (!port.is_down_) port.dropping_ = static_cast<std::uint8_t>(port.dropping_ & ~bit(lane));
  }
}

Time Port::next_expiry(std::uint32_t lane, Time lifetime) const {
  const Head& head = watch_->heads[lane];
  Time next = Time::never();
  if (lanes_[lane].first != no_frame) next = head.since + lifetime;
  if (head.stalled_until > Time::zero()) next = std::min(next, head.stalled_until);
  return next;
}

void Port::rebase(Time by) {
  pause_.rebase(by);
  if (watch_ == nullptr) return;
  for (Head& head : watch_->heads) {
    tulle::rebase(by, head.since);
    if (head.stalled_until == Time::zero()) continue;
    // Zero would say that the lane was never stalled.
    head.stalled_until = std::max(head.stalled_until.rebased(by), Time::picoseconds(1));
  }
}

// --- the link ---

void Port::take_down(Time now) {
  is_down_ = true;
  dropping_ = 0xFF;
  untold_ = 0;
  pause_.reset(now);
  update_pause(now);
}

void Port::bring_up() {
  is_down_ = false;
  dropping_ = 0;
  untold_ = stopping_;
  if (credits_ == nullptr) return;
  credits_->senders.fill({});
  for (CreditReceiver& receiver : credits_->receivers) receiver.restart();
  untold_ = 0xFF;
}

// --- congestion ---

void Port::mark(Frame& frame, Random& random) {
  const EcnSettings& ecn = settings_->ecn;
  const std::uint32_t bytes = lanes_[frame.service_class].queue_bytes;
  if ((frame.traffic_class & ecn_mask) == 0 || bytes <= ecn.least_bytes) return;
  const double span = static_cast<double>(ecn.most_bytes - ecn.least_bytes);
  const bool marks =
      bytes > ecn.most_bytes ||
      random.chance(ecn.probability * static_cast<double>(bytes - ecn.least_bytes) / span);
  if (!marks || (frame.traffic_class & ecn_mask) == ecn_congestion_experienced) return;
  frame.traffic_class |= ecn_congestion_experienced;
  ++counters_.marked;
}

// Updates the lane's state when a frame leaves the head of its queue.
void Port::watch_leaving(Time now, Frame& frame, Random& random) {
  if (settings_->congestion.enabled) mark_congestion(frame, random);
  watch_->heads[frame.service_class] = {now};
}

// Marks a frame for InfiniBand's congestion control if its lane is congested.
void Port::mark_congestion(Frame& frame, Random& random) {
  LaneCongestion& congestion = watch_->congestion[frame.service_class];
  const bool marks = congestion.marks(
      settings_->congestion, settings_->lane_buffer_bytes, watch_->is_in_victim_mask,
      lanes_[frame.service_class].queue_bytes, frame.buffer_bytes, random);
  congestion.sent(frame.buffer_bytes);
  if (marks && wire::mark_fecn(frame.header)) ++counters_.marked;
}

void Port::watch_credits(std::uint8_t lacking) {
  for (std::uint32_t left = lacking; left != 0; left &= left - 1) {
    watch_->congestion[static_cast<std::uint32_t>(std::countr_zero(left))].lacks_credits();
  }
}

}  // namespace tulle::port
