#include "fabric/switch.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace tulle::fabric {
namespace {

constexpr std::size_t flowlets = 4'096;

// MurmurHash3's finaliser (Appleby): every bit of the input affects every bit of the output.
std::uint32_t mixed(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85EB'CA6B;
  h ^= h >> 13;
  h *= 0xC2B2'AE35;
  h ^= h >> 16;
  return h;
}

// Scales the hash to [0, bound).
std::uint32_t scaled(std::uint32_t hash, std::size_t bound) {
  return static_cast<std::uint32_t>(std::uint64_t{hash} * bound >> 32);
}

// Returns how full a queue is in coarse grades: below 16 KiB, below 32, below 64 … Exact lengths
// would lock in. With packets of one length at full load, the port that has just become free is the
// shortest whenever the same sender's next packet arrives, and that sender would keep its path.
int grade(std::uint64_t queue_bytes) { return static_cast<int>(std::bit_width(queue_bytes >> 14)); }

std::uint8_t bit(std::uint32_t service_class) {
  return static_cast<std::uint8_t>(1u << service_class);
}

}  // namespace

Switch::Switch(const SwitchSettings& settings, std::uint32_t node, std::uint16_t ports,
               std::uint64_t seed, FramePool& frames)
    : settings_(&settings),
      frames_(&frames),
      random_(seed ^ 0x5717'C400'0000'0000 ^ node),
      salt_(static_cast<std::uint32_t>(random_.next())),
      ports_(ports) {
  if (settings.flow_control == FlowControl::credits) {
    const LaneCredits fresh{{}, CreditReceiver(settings.lane_buffer_bytes / credit_block_bytes)};
    credits_.assign(std::size_t{ports} * classes, fresh);
  }
  if (settings.head_lifetime > Time::zero() || settings.leaf_head_lifetime > Time::zero()) {
    TULLE_CHECK(settings.flow_control == FlowControl::credits);
    heads_.resize(std::size_t{ports} * classes);
  }
  if (settings.congestion.enabled) {
    TULLE_CHECK(settings.flow_control == FlowControl::credits);
    congestion_.resize(std::size_t{ports} * classes);
    in_victim_mask_.assign(ports, false);
  }
  watches_lanes_ = !heads_.empty() || !congestion_.empty();
  if (settings.path_choice == PathChoice::flowlet) flowlets_.resize(flowlets);
}

// --- a frame comes in ---

std::uint16_t Switch::receive(Time now, std::uint16_t in_port, FrameRef ref,
                              std::span<const std::uint16_t> candidates) {
  return receive(now, in_port, ref, choose(now, (*frames_)[ref], candidates));
}

std::uint16_t Switch::receive(Time now, std::uint16_t in_port, FrameRef ref,
                              std::uint16_t out_port) {
  Frame& frame = (*frames_)[ref];
  frame.in_port = in_port;
  frame.in_class = frame.service_class & (classes - 1);
  if (partitions_ != nullptr && !lets_through(out_port, frame)) return no_port;
  if (lanes_ != nullptr && !change_lane(out_port, frame)) return no_port;
  if ((ports_[out_port].dropping & bit(frame.service_class)) != 0) [[unlikely]] {
    drop_for(now, out_port, frame);
    return no_port;
  }
  if (!admit(in_port, out_port, frame)) {
    ++ports_[out_port].counters.dropped;
    return no_port;
  }
  held_max_ = std::max(held_max_, bytes_held());
  Port& port = ports_[out_port];
  Class& queue = port.of_class[frame.service_class];
  frame.next = no_frame;
  if (queue.first == no_frame) {
    queue.first = ref;
    port.waiting |= bit(frame.service_class);
    if (watches_lanes_ && !heads_.empty()) [[unlikely]]
      heads_[out_port * classes + frame.service_class].since = now;
  } else {
    (*frames_)[queue.last].next = ref;
  }
  queue.last = ref;
  queue.out_bytes += frame.buffer_bytes;
  port.counters.queue_bytes_max = std::max(port.counters.queue_bytes_max, queue.out_bytes);
  return out_port;
}

std::uint16_t Switch::choose(Time now, const Frame& frame,
                             std::span<const std::uint16_t> candidates) {
  const std::size_t count = candidates.size();
  if (count == 1) return candidates[0];
  const std::uint32_t flow_hash = frame.flow_hash();
  const std::uint32_t hash = mixed(flow_hash ^ salt_);
  switch (settings_->path_choice) {
    case PathChoice::flow:
      return choose_by_flow(frame, candidates);
    // The path is drawn at random, since round robin would lock in as well: four senders at full
    // rate that take four paths in turn would have one path each.
    case PathChoice::packet:
      return candidates[random_.below(count)];
    case PathChoice::adaptive:
      return least_loaded(candidates, static_cast<std::uint32_t>(random_.below(count)));
    case PathChoice::flowlet: {
      Flowlet& flowlet = flowlets_[hash % flowlets];
      const bool goes_on = flowlet.port != no_port && flowlet.flow_hash == flow_hash &&
                           now < flowlet.last + settings_->flowlet_gap;
      if (!goes_on) {
        flowlet.flow_hash = flow_hash;
        flowlet.port = least_loaded(candidates, scaled(hash, count));
      }
      flowlet.last = now;
      return flowlet.port;
    }
  }
  return candidates[0];
}

std::uint16_t Switch::choose_by_flow(const Frame& frame,
                                     std::span<const std::uint16_t> candidates) const {
  const std::size_t count = candidates.size();
  return count == 1 ? candidates[0] : candidates[scaled(mixed(frame.flow_hash() ^ salt_), count)];
}

// Returns the port with the lowest grade. Of equal ones, it is the first at or after `first`.
std::uint16_t Switch::least_loaded(std::span<const std::uint16_t> candidates,
                                   std::uint32_t first) const {
  std::uint16_t best = candidates[first];
  int best_grade = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::uint16_t port = candidates[(first + i) % candidates.size()];
    const int of_port = grade(queue_bytes(port));
    if (of_port >= best_grade) continue;
    best = port;
    best_grade = of_port;
  }
  return best;
}

// Returns false if the frame is of a partition that its ports do not allow, and drops it.
bool Switch::lets_through(std::uint16_t out_port, const Frame& frame) {
  const Pkey pkey = wire::peek_pkey(frame.header);
  const bool lets_in = (*partitions_)[frame.in_port].lets_in(pkey);
  if (lets_in && (*partitions_)[out_port].lets_out(pkey)) return true;
  if (lets_in) {
    ++ports_[out_port].counters.pkey_dropped_out;
  } else {
    ++ports_[frame.in_port].counters.pkey_dropped_in;
  }
  take_in_lost(frame.in_port, frame);
  return false;
}

// Returns false if there is no lane for the frame, and drops it.
bool Switch::change_lane(std::uint16_t out_port, Frame& frame) {
  const std::uint8_t lane =
      lanes_->lane(frame.in_port, out_port, frame.service_level, frame.in_class);
  if (lane == vl15) {
    take_in_lost(frame.in_port, frame);
    ++ports_[out_port].counters.unmapped;
    return false;
  }
  frame.service_class = lane & (classes - 1);
  return true;
}

// Drops a frame for a port that accepts nothing.
void Switch::drop_for(Time now, std::uint16_t out_port, const Frame& frame) {
  Port& port = ports_[out_port];
  if (port.down) {
    lose(now, port, frame);
  } else {
    ++(credits_.empty() ? port.counters.watchdog_dropped : port.counters.discarded);
  }
  give_back_credits(frame);
}

void Switch::drop_unrouted(Time now, std::uint16_t in_port, Frame& frame) {
  frame.in_port = in_port;
  frame.in_class = frame.service_class & (classes - 1);
  lose(now, ports_[in_port], frame);
  ++ports_[in_port].counters.unrouted;
  give_back_credits(frame);
}

void Switch::lose(Time now, Port& port, const Frame& frame) {
  ++port.counters.lost;
  port.counters.lost_bytes += frame.buffer_bytes;
  last_loss_ = now;
}

// Returns the credits of a frame that came in and was lost at once.
void Switch::give_back_credits(const Frame& frame) {
  if (credits_.empty()) return;
  CreditReceiver& receiver = credits_[frame.in_port * classes + frame.in_class].receiver;
  receiver.received(frame.buffer_bytes);
  receiver.released(frame.buffer_bytes);
  tell_credits(frame.in_port, frame.in_class);
}

void Switch::take_in_lost(std::uint16_t in_port, const Frame& frame) {
  CreditReceiver& receiver = credits_[in_port * classes + frame.service_class].receiver;
  receiver.received(frame.buffer_bytes);
  receiver.released(frame.buffer_bytes);
  tell_credits(in_port, frame.service_class);
}

// --- memory ---

bool Switch::admit(std::uint16_t in_port, std::uint16_t out_port, const Frame& frame) {
  Port& in = ports_[in_port];
  const std::uint32_t c = frame.in_class;
  if (settings_->flow_control == FlowControl::credits) {
    CreditReceiver& receiver = credits_[in_port * classes + c].receiver;
    TULLE_CHECK(receiver.free_blocks() >= blocks_of(frame.buffer_bytes));
    receiver.received(frame.buffer_bytes);
    shared_bytes_ += frame.buffer_bytes;
  } else if (settings_->flow_control == FlowControl::pfc &&
             (settings_->lossless_classes & bit(c)) != 0) {
    if (!admit_lossless(in_port, frame)) {
      ++lossless_drops_;
      return false;
    }
  } else if (!admit_lossy(out_port, frame)) {
    return false;
  }
  in.of_class[c].in_bytes += frame.buffer_bytes;
  in.counters.ingress_bytes_max = std::max(in.counters.ingress_bytes_max, in.of_class[c].in_bytes);
  return true;
}

bool Switch::admit_lossless(std::uint16_t in_port, const Frame& frame) {
  Port& in = ports_[in_port];
  Class& of_class = in.of_class[frame.in_class];
  const bool fits = of_class.in_headroom == 0 &&
                    of_class.in_bytes + frame.buffer_bytes <= stop_threshold() &&
                    shared_bytes_ + frame.buffer_bytes <= settings_->buffer_bytes;
  if (fits) {
    shared_bytes_ += frame.buffer_bytes;
    return true;
  }
  if (of_class.in_headroom + frame.buffer_bytes > settings_->headroom_bytes) return false;
  of_class.in_headroom += frame.buffer_bytes;
  headroom_bytes_ += frame.buffer_bytes;
  if ((in.stopping & bit(frame.in_class)) == 0) {
    in.stopping |= bit(frame.in_class);
    talk(in_port, bit(frame.in_class));
  }
  return true;
}

bool Switch::admit_lossy(std::uint16_t out_port, const Frame& frame) {
  const std::uint64_t most =
      settings_->lossy_queue_bytes != 0 ? settings_->lossy_queue_bytes : share();
  const std::uint64_t with_it =
      std::uint64_t{ports_[out_port].of_class[frame.service_class].out_bytes} + frame.buffer_bytes;
  if (with_it > most || shared_bytes_ + frame.buffer_bytes > settings_->buffer_bytes) return false;
  shared_bytes_ += frame.buffer_bytes;
  return true;
}

std::uint64_t Switch::share() const {
  const std::uint64_t left =
      settings_->buffer_bytes - std::min(settings_->buffer_bytes, shared_bytes_);
  return static_cast<std::uint64_t>(settings_->alpha * static_cast<double>(left));
}

std::uint64_t Switch::stop_threshold() const {
  return settings_->xoff_bytes != 0 ? settings_->xoff_bytes : share();
}

void Switch::release(const Frame& frame) {
  Port& in = ports_[frame.in_port];
  in.of_class[frame.in_class].in_bytes -= frame.buffer_bytes;
  if (settings_->flow_control == FlowControl::credits) {
    release_credits(frame);
  } else {
    release_shared(in, frame);
  }
}

void Switch::release_shared(Port& in, const Frame& frame) {
  const std::uint8_t class_bit = bit(frame.in_class);
  Class& of_class = in.of_class[frame.in_class];
  const std::uint32_t from_headroom =
      std::min<std::uint32_t>(of_class.in_headroom, frame.buffer_bytes);
  of_class.in_headroom -= from_headroom;
  headroom_bytes_ -= from_headroom;
  shared_bytes_ -= frame.buffer_bytes - from_headroom;
  if ((in.stopping & class_bit) == 0 || of_class.in_headroom != 0) return;
  const bool may_go_on =
      of_class.in_bytes == 0 || of_class.in_bytes + settings_->xon_gap_bytes <= stop_threshold();
  if (!may_go_on) return;
  in.stopping = static_cast<std::uint8_t>(in.stopping & ~class_bit);
  talk(frame.in_port, class_bit);
}

void Switch::release_credits(const Frame& frame) {
  shared_bytes_ -= frame.buffer_bytes;
  credits_[frame.in_port * classes + frame.in_class].receiver.released(frame.buffer_bytes);
  tell_credits(frame.in_port, frame.in_class);
}

// Tells the neighbour its new limit if it has moved far enough.
void Switch::tell_credits(std::uint16_t in_port, std::uint32_t lane) {
  const std::uint32_t blocks = settings_->lane_buffer_bytes / credit_block_bytes;
  const CreditReceiver& receiver = credits_[in_port * classes + lane].receiver;
  if (receiver.is_worth_telling(blocks)) talk(in_port, bit(lane));
}

// --- control messages ---

void Switch::talk(std::uint16_t port_number, std::uint8_t class_bit) {
  Port& port = ports_[port_number];
  port.untold |= class_bit;
  if (port.control_due) return;
  port.control_due = true;
  talkers_.push_back(port_number);
}

Control Switch::pull_control(std::uint16_t port_number) {
  Port& port = ports_[port_number];
  Control control;
  if (port.untold == 0) {
    port.control_due = false;
    return control;
  }
  if (settings_->flow_control == FlowControl::credits) {
    const auto lane = static_cast<std::uint8_t>(std::countr_zero(port.untold));
    control.kind = Control::Kind::credit;
    control.credit = {lane, credits_[port_number * classes + lane].receiver.tell()};
    port.untold = static_cast<std::uint8_t>(port.untold & ~bit(lane));
  } else {
    control.kind = Control::Kind::pause;
    control.pause.stop = static_cast<std::uint8_t>(port.untold & port.stopping);
    control.pause.go = static_cast<std::uint8_t>(port.untold & ~port.stopping);
    port.untold = 0;
  }
  port.control_due = port.untold != 0;
  return control;
}

bool Switch::handle_control(Time now, std::uint16_t port_number, const Control& control,
                            Time pause) {
  Port& port = ports_[port_number];
  if (control.kind == Control::Kind::credit) {
    credits_[port_number * classes + control.credit.lane].sender.update(control.credit.limit);
    return false;
  }
  const std::uint8_t fresh = port.pause.handle(now, control.pause, pause);
  update_pause(now, port);
  return fresh != 0;
}

Time Switch::expire_pauses(Time now, std::uint16_t port_number) {
  Port& port = ports_[port_number];
  port.pause.expire(now);
  update_pause(now, port);
  return port.pause.next_end();
}

void Switch::update_pause(Time now, Port& port) {
  port.stopped = port.pause.stopped();
  if (!port.down) port.dropping = static_cast<std::uint8_t>(port.dropping & port.stopped);
  port.counters.pauses = port.pause.pauses();
  port.counters.paused_ps = port.pause.paused(now).ps;
}

bool Switch::renew_stops(std::uint16_t port_number) {
  const std::uint8_t stopping = ports_[port_number].stopping;
  if (stopping != 0) talk(port_number, stopping);
  return stopping != 0;
}

bool Switch::watch(Time now, std::uint16_t port_number) {
  Port& port = ports_[port_number];
  const auto stuck =
      static_cast<std::uint8_t>(port.pause.stopped_for(now, settings_->watchdog) & ~port.dropping);
  for (std::uint32_t c = 0; c < classes; ++c) {
    if ((stuck & bit(c)) == 0) continue;
    port.dropping |= bit(c);
    ++port.counters.watchdog_trips;
    port.counters.watchdog_dropped += drop_waiting(port, c);
  }
  return (port.stopped & ~port.dropping) != 0;
}

std::uint64_t Switch::drop_waiting(Port& port, std::uint32_t service_class) {
  std::uint64_t frames = 0;
  for (FrameRef ref = empty_queue(port, service_class); ref != no_frame;) {
    const FrameRef next = (*frames_)[ref].next;
    frames_->give(ref);
    ++frames;
    ref = next;
  }
  return frames;
}

Time Switch::discard_heads(Time now, std::uint16_t port_number, Time lifetime) {
  Port& port = ports_[port_number];
  Time next = Time::never();
  for (std::uint32_t lane = 0; lane < classes; ++lane) {
    const Class& queue = port.of_class[lane];
    Head& head = heads_[port_number * classes + lane];
    if (head.stalled_until > Time::zero() && head.stalled_until <= now) {
      head = {now};
      if (!port.down) port.dropping = static_cast<std::uint8_t>(port.dropping & ~bit(lane));
    }
    if (queue.first != no_frame && head.since + lifetime <= now) {
      discard_head(now, port, lane, head, lifetime);
    }
    if (queue.first != no_frame) next = std::min(next, head.since + lifetime);
    if (head.stalled_until > Time::zero()) next = std::min(next, head.stalled_until);
  }
  return next;
}

void Switch::discard_head(Time now, Port& port, std::uint32_t lane, Head& head, Time lifetime) {
  head.since = now;
  if (++head.discarded_in_row == settings_->stall_count) {
    head.stalled_until = now + lifetime * 8;
    port.dropping |= bit(lane);
    port.counters.discarded += drop_waiting(port, lane);
    return;
  }
  Class& queue = port.of_class[lane];
  const FrameRef ref = queue.first;
  const Frame& frame = (*frames_)[ref];
  queue.first = frame.next;
  queue.out_bytes -= frame.buffer_bytes;
  if (frame.next == no_frame) port.waiting = static_cast<std::uint8_t>(port.waiting & ~bit(lane));
  release(frame);
  frames_->give(ref);
  ++port.counters.discarded;
}

// Empties a queue and releases its memory. Returns the frames as a list.
FrameRef Switch::empty_queue(Port& port, std::uint32_t service_class) {
  Class& queue = port.of_class[service_class];
  for (FrameRef ref = queue.first; ref != no_frame; ref = (*frames_)[ref].next) {
    release((*frames_)[ref]);
  }
  const FrameRef first = std::exchange(queue.first, no_frame);
  queue.out_bytes = 0;
  queue.deficit = 0;
  port.waiting = static_cast<std::uint8_t>(port.waiting & ~bit(service_class));
  return first;
}

// --- a link's end ---

FrameRef Switch::take_down(Time now, std::uint16_t port_number) {
  Port& port = ports_[port_number];
  port.down = true;
  port.dropping = 0xFF;
  port.pause.reset(now);
  update_pause(now, port);
  FrameRef lost = no_frame;
  for (std::uint32_t c = classes; c-- > 0;) {
    if (port.of_class[c].first == no_frame) continue;
    const FrameRef last = port.of_class[c].last;
    const FrameRef first = empty_queue(port, c);
    (*frames_)[last].next = lost;
    lost = first;
  }
  for (FrameRef ref = lost; ref != no_frame; ref = (*frames_)[ref].next) {
    lose(now, port, (*frames_)[ref]);
  }
  return lost;
}

void Switch::bring_up(std::uint16_t port_number) {
  Port& port = ports_[port_number];
  port.down = false;
  port.dropping = 0;
  port.untold = port.stopping;
  if (!credits_.empty()) {
    for (std::uint32_t lane = 0; lane < classes; ++lane) {
      LaneCredits& of_lane = credits_[port_number * classes + lane];
      of_lane.sender = {};
      of_lane.receiver.restart();
    }
    port.untold = 0xFF;
  }
  port.control_due = port.untold != 0;
}

// --- a frame leaves ---

std::uint8_t Switch::sendable(const Port& port) const {
  if (settings_->flow_control != FlowControl::credits) {
    return static_cast<std::uint8_t>(port.waiting & ~port.stopped);
  }
  const auto index = static_cast<std::size_t>(&port - ports_.data());
  std::uint8_t open = 0;
  const std::uint32_t may_send = port.waiting & settings_->arbitration.lanes();
  for (std::uint32_t left = may_send; left != 0; left &= left - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
    const std::uint32_t bytes = (*frames_)[port.of_class[lane].first].buffer_bytes;
    if (credits_[index * classes + lane].sender.may_send(bytes)) open |= bit(lane);
  }
  return open;
}

FrameRef Switch::pull(Time now, std::uint16_t port_number) {
  Port& port = ports_[port_number];
  const std::uint8_t open = sendable(port);
  if (watches_lanes_) [[unlikely]]
    watch_credits(port_number, static_cast<std::uint8_t>(port.waiting & ~open));
  if (open == 0) {
    if (port.waiting != 0 && !credits_.empty()) ++port.counters.credit_stalls;
    return no_frame;
  }
  const std::uint32_t c = credits_.empty() ? class_to_send(port, open)
                                           : port.arbiter.choose(settings_->arbitration, open);
  Class& queue = port.of_class[c];
  const FrameRef ref = queue.first;
  Frame& frame = (*frames_)[ref];
  if (settings_->ecn.enabled) mark(port, frame);
  if (watches_lanes_) [[unlikely]]
    watch_leaving(now, port_number, frame);
  queue.first = frame.next;
  if (frame.next == no_frame) {
    port.waiting = static_cast<std::uint8_t>(port.waiting & ~bit(c));
    queue.deficit = 0;
  } else {
    (*frames_).prefetch(frame.next);
  }
  queue.out_bytes -= frame.buffer_bytes;
  release(frame);
  if (settings_->flow_control == FlowControl::credits) {
    credits_[port_number * classes + c].sender.sent(frame.buffer_bytes);
    port.arbiter.sent(frame.buffer_bytes);
  }
  if (watches_lanes_) [[unlikely]]
    watch_credits(port_number, static_cast<std::uint8_t>(port.waiting & ~sendable(port)));
  ++port.counters.frames;
  port.counters.bytes += frame.link_bytes();
  return ref;
}

// Strict classes come first, in order from the highest. The others take turns in rounds, in which
// each class may send its quantum and what it has left from the round before.
std::uint8_t Switch::class_to_send(Port& port, std::uint8_t open) {
  if ((open & (open - 1)) == 0) return static_cast<std::uint8_t>(std::countr_zero(open));
  for (std::uint32_t c = classes; c-- > 0;) {
    if ((open & bit(c)) != 0 && settings_->quantum_bytes[c] == 0) {
      return static_cast<std::uint8_t>(c);
    }
  }
  for (;;) {
    const std::uint32_t c = port.turn;
    if ((open & bit(c)) != 0) {
      Class& queue = port.of_class[c];
      if (!port.turn_begun) queue.deficit += settings_->quantum_bytes[c];
      port.turn_begun = true;
      const std::uint32_t bytes = (*frames_)[queue.first].link_bytes();
      if (queue.deficit >= bytes) {
        queue.deficit -= bytes;
        return static_cast<std::uint8_t>(c);
      }
    }
    port.turn = static_cast<std::uint8_t>((c + 1) % classes);
    port.turn_begun = false;
  }
}

// Updates the lane's state when a frame leaves the head of its queue.
void Switch::watch_leaving(Time now, std::uint16_t port_number, Frame& frame) {
  if (!congestion_.empty()) mark_congestion(port_number, frame);
  if (!heads_.empty()) heads_[port_number * classes + frame.service_class] = {now};
}

// Marks a frame for InfiniBand's congestion control if its lane is congested.
void Switch::mark_congestion(std::uint16_t port_number, Frame& frame) {
  Port& port = ports_[port_number];
  LaneCongestion& lane = congestion_[port_number * classes + frame.service_class];
  const std::uint32_t queue_bytes = port.of_class[frame.service_class].out_bytes;
  const bool marks =
      lane.marks(settings_->congestion, settings_->lane_buffer_bytes, in_victim_mask_[port_number],
                 queue_bytes, frame.buffer_bytes, random_);
  lane.sent(frame.buffer_bytes);
  if (marks && wire::mark_fecn(frame.header)) ++port.counters.marked;
}

void Switch::watch_credits(std::uint16_t port, std::uint8_t lacking) {
  if (congestion_.empty()) return;
  for (std::uint32_t left = lacking; left != 0; left &= left - 1) {
    congestion_[port * classes + static_cast<std::uint32_t>(std::countr_zero(left))]
        .lacks_credits();
  }
}

void Switch::mark(Port& port, Frame& frame) {
  const EcnSettings& ecn = settings_->ecn;
  const std::uint32_t bytes = port.of_class[frame.service_class].out_bytes;
  if ((frame.traffic_class & ecn_mask) == 0 || bytes <= ecn.least_bytes) return;
  const double span = static_cast<double>(ecn.most_bytes - ecn.least_bytes);
  const bool marks =
      bytes > ecn.most_bytes ||
      random_.chance(ecn.probability * static_cast<double>(bytes - ecn.least_bytes) / span);
  if (!marks || (frame.traffic_class & ecn_mask) == ecn_congestion_experienced) return;
  frame.traffic_class |= ecn_congestion_experienced;
  ++port.counters.marked;
}

}  // namespace tulle::fabric
