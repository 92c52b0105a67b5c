#include "fabric/switch.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "fabric/non_minimal.h"

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

// Returns the stream of random numbers of the switch at a node. Its first number is the salt.
Random stream_of(std::uint64_t seed, std::uint32_t node) {
  return Random(seed ^ 0x5717'C400'0000'0000 ^ node);
}

}  // namespace

std::uint32_t path_salt(std::uint64_t seed, std::uint32_t node) {
  return static_cast<std::uint32_t>(stream_of(seed, node).next());
}

std::uint16_t equal_cost_port(std::uint32_t flow_hash, std::uint32_t salt,
                              std::span<const std::uint16_t> candidates) {
  return candidates[scaled(mixed(flow_hash ^ salt), candidates.size())];
}

Switch::Switch(const SwitchSettings& settings, std::uint32_t node, std::uint16_t ports,
               std::uint64_t seed, port::FramePool& frames)
    : settings_(&settings),
      frames_(&frames),
      node_(node),
      random_(stream_of(seed, node)),
      is_leaf_port_(ports) {
  salt_ = static_cast<std::uint32_t>(random_.next());
  ports_.reserve(ports);
  for (std::uint16_t port = 0; port < ports; ++port) {
    ports_.emplace_back(settings, &frames, settings.has_head_lifetimes());
  }
  if (settings.path_choice == PathChoice::flowlet) flowlets_.resize(flowlets);
}

void Switch::set_monitor(std::uint16_t port, const EndpointMonitor& monitor) {
  monitors_.resize(ports_.size());
  monitors_[port] = std::make_unique<EndpointMonitor>(monitor);
  has_monitors_ = true;
}

// --- memory ---

inline std::uint64_t Switch::share() const {
  // Signed numbers, since a processor converts these in one instruction.
  const auto left = static_cast<std::int64_t>(settings_->buffer_bytes -
                                              std::min(settings_->buffer_bytes, shared_bytes_));
  return static_cast<std::uint64_t>(
      static_cast<std::int64_t>(settings_->alpha * static_cast<double>(left)));
}

inline std::uint64_t Switch::stop_threshold() const {
  return settings_->xoff_bytes != 0 ? settings_->xoff_bytes : share();
}

inline bool Switch::admit_lossless(port::Port& in, const port::Frame& frame) {
  const std::uint32_t c = frame.in_class;
  port::Port::Held& held = in.held(c);
  const bool fits = held.headroom_bytes == 0 &&
                    held.bytes + frame.buffer_bytes <= stop_threshold() &&
                    shared_bytes_ + frame.buffer_bytes <= settings_->buffer_bytes;
  if (fits) {
    shared_bytes_ += frame.buffer_bytes;
    return true;
  }
  if (held.headroom_bytes + frame.buffer_bytes > settings_->headroom_bytes) return false;
  held.headroom_bytes += frame.buffer_bytes;
  headroom_bytes_ += frame.buffer_bytes;
  if ((in.stopping() >> c & 1) == 0)
    talks(frame.in_port, in.stop(static_cast<std::uint8_t>(1u << c)));
  return true;
}

inline bool Switch::admit(std::uint16_t out_port, const port::Frame& frame) {
  port::Port& in = ports_[frame.in_port];
  const std::uint32_t c = frame.in_class;
  if (has_credits()) {
    TULLE_CHECK(in.credits().receivers[c].free_blocks() >= port::blocks_of(frame.buffer_bytes));
    in.take_room(c, frame.buffer_bytes);
    shared_bytes_ += frame.buffer_bytes;
  } else if (settings_->flow_control == port::FlowControl::pfc &&
             (settings_->lossless_classes >> c & 1) != 0) {
    if (!admit_lossless(in, frame)) {
      ++lossless_drops_;
      return false;
    }
  } else if (!admit_lossy(out_port, frame)) {
    return false;
  }
  const std::uint32_t held = in.held(c).bytes += frame.buffer_bytes;
  in.counters().ingress_bytes_max = std::max(in.counters().ingress_bytes_max, held);
  return true;
}

bool Switch::admit_lossy(std::uint16_t out_port, const port::Frame& frame) {
  const std::uint64_t most =
      settings_->lossy_queue_bytes != 0 ? settings_->lossy_queue_bytes : share();
  const std::uint64_t with_it =
      std::uint64_t{ports_[out_port].queue_bytes(frame.service_class)} + frame.buffer_bytes;
  if (with_it > most || shared_bytes_ + frame.buffer_bytes > settings_->buffer_bytes) return false;
  shared_bytes_ += frame.buffer_bytes;
  return true;
}

inline void Switch::release_shared(port::Port& in, const port::Frame& frame) {
  const std::uint32_t c = frame.in_class;
  port::Port::Held& held = in.held(c);
  const std::uint32_t from_headroom =
      std::min<std::uint32_t>(held.headroom_bytes, frame.buffer_bytes);  // which is freed first
  held.headroom_bytes -= from_headroom;
  headroom_bytes_ -= from_headroom;
  shared_bytes_ -= frame.buffer_bytes - from_headroom;
  if ((in.stopping() >> c & 1) == 0 || held.headroom_bytes != 0) return;
  if (held.bytes != 0 && held.bytes + settings_->xon_gap_bytes > stop_threshold()) return;
  talks(frame.in_port, in.resume(static_cast<std::uint8_t>(1u << c)));
}

inline void Switch::release(const port::Frame& frame) {
  port::Port& in = ports_[frame.in_port];
  in.held(frame.in_class).bytes -= frame.buffer_bytes;
  if (has_credits()) {
    shared_bytes_ -= frame.buffer_bytes;
    talks(frame.in_port, in.free_room(frame.in_class, frame.buffer_bytes));
  } else {
    release_shared(in, frame);
  }
}

// --- a frame comes in ---

// Returns the port by which a frame must leave.
inline std::uint16_t Switch::way_of(Time now, std::uint16_t in_port, port::Frame& frame) {
  if (forwards_by_lid_) return routes_->port(node_, frame.destination, frame.path);
  if (settings_->path_choice == PathChoice::flow) {
    return choose_by_flow(frame, routes_->candidates(node_, frame.destination));
  }
  if (non_minimal_ != nullptr) {
    std::uint16_t chosen = no_port;
    return choose(now, frame,
                  non_minimal_->ways(*this, node_, is_leaf_port_[in_port], frame, chosen));
  }
  return choose(now, frame, routes_->candidates(node_, frame.destination));
}

std::uint16_t Switch::receive(Time now, std::uint16_t in_port, port::FrameRef ref) {
  port::Frame& frame = (*frames_)[ref];
  const std::uint16_t out_port =
      is_recovering_ ? receive_recovering(now, in_port, ref)
                     : take_in(now, in_port, ref, frame, way_of(now, in_port, frame));
  if (has_monitors_ && out_port != no_port) [[unlikely]]
    watch_endpoint(now, out_port, frame);
  return out_port;
}

// Does the work of forward() where destinations may have no route, and ports may be dead.
std::uint16_t Switch::receive_recovering(Time now, std::uint16_t in_port, port::FrameRef ref) {
  port::Frame& frame = (*frames_)[ref];
  ways_.clear();
  const auto offer = [&](std::uint16_t port) {
    if (port == Routes::no_port || std::ranges::count(avoided_, port) > 0) return;
    ways_.push_back(port);
  };
  if (forwards_by_lid_) {
    offer(routes_->port(node_, frame.destination, frame.path));
  } else {
    std::ranges::for_each(routes_->candidates(node_, frame.destination), offer);
  }
  if (!ways_.empty()) return receive(now, in_port, ref, ways_);
  drop_unrouted(now, in_port, frame);
  return no_port;
}

std::uint16_t Switch::receive(Time now, std::uint16_t in_port, port::FrameRef ref,
                              std::span<const std::uint16_t> candidates) {
  return receive(now, in_port, ref, choose(now, (*frames_)[ref], candidates));
}

std::uint16_t Switch::receive(Time now, std::uint16_t in_port, port::FrameRef ref,
                              std::uint16_t out_port) {
  return take_in(now, in_port, ref, (*frames_)[ref], out_port);
}

std::uint16_t Switch::receive(Time now, std::uint16_t in_port, port::FrameRef ref,
                              std::uint16_t out_port, std::uint8_t lane) {
  port::Frame& frame = (*frames_)[ref];
  enter(in_port, frame);
  frame.service_class = lane & (port::classes - 1);
  return put(now, ref, frame, out_port);
}

// Notes how a frame came in.
inline void Switch::enter(std::uint16_t in_port, port::Frame& frame) {
  frame.in_port = in_port;
  frame.in_class = frame.service_class & (port::classes - 1);
}

inline std::uint16_t Switch::take_in(Time now, std::uint16_t in_port, port::FrameRef ref,
                                     port::Frame& frame, std::uint16_t out_port) {
  enter(in_port, frame);
  if (partitions_ != nullptr && !lets_through(out_port, frame)) return no_port;
  if (lanes_ != nullptr && !change_lane(out_port, frame)) return no_port;
  return put(now, ref, frame, out_port);
}

// Puts a frame into a port's queue, if there is room.
inline std::uint16_t Switch::put(Time now, port::FrameRef ref, port::Frame& frame,
                                 std::uint16_t out_port) {
  port::Port& out = ports_[out_port];
  if (out.drops(frame.service_class)) [[unlikely]] {
    drop_for(now, out_port, frame);
    return no_port;
  }
  if (!admit(out_port, frame)) {
    ++out.counters().dropped;
    return no_port;
  }
  held_max_ = std::max(held_max_, bytes_held());
  out.put(now, ref, frame);
  return out_port;
}

std::uint16_t Switch::choose(Time now, const port::Frame& frame,
                             std::span<const std::uint16_t> candidates) {
  const std::size_t count = candidates.size();
  if (count == 1) return candidates[0];
  const std::uint32_t flow_hash = frame.flow_hash();
  const std::uint32_t hash = mixed(flow_hash ^ salt_);
  switch (settings_->path_choice) {
    case PathChoice::flow:
      return choose_by_flow(frame, candidates);
    // The path is drawn at random, since round robin would lock in as well: four senders at full
    // rate that alternate between four paths would have one path each.
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

inline std::uint16_t Switch::choose_by_flow(const port::Frame& frame,
                                            std::span<const std::uint16_t> candidates) const {
  const std::size_t count = candidates.size();
  return count == 1 ? candidates[0] : equal_cost_port(frame.flow_hash(), salt_, candidates);
}

// Returns the port with the lowest grade. Of equal ones, it is the first at or after `first`.
std::uint16_t Switch::least_loaded(std::span<const std::uint16_t> candidates,
                                   std::uint32_t first) const {
  std::uint16_t best = candidates[first];
  int best_grade = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::uint16_t port = candidates[(first + i) % candidates.size()];
    const int of_port = grade(ports_[port].queue_bytes());
    if (of_port >= best_grade) continue;
    best = port;
    best_grade = of_port;
  }
  return best;
}

// Returns false if the frame is of a partition that its ports do not allow, and drops it.
bool Switch::lets_through(std::uint16_t out_port, const port::Frame& frame) {
  const Pkey pkey = wire::peek_pkey(frame.header);
  const bool lets_in = (*partitions_)[frame.in_port].lets_in(pkey);
  if (lets_in && (*partitions_)[out_port].lets_out(pkey)) return true;
  if (lets_in) {
    ++ports_[out_port].counters().pkey_dropped_out;
  } else {
    ++ports_[frame.in_port].counters().pkey_dropped_in;
  }
  give_back_credits(frame.in_port, frame.in_class, frame);
  return false;
}

// Returns false if there is no lane for the frame, and drops it.
bool Switch::change_lane(std::uint16_t out_port, port::Frame& frame) {
  const std::uint8_t lane =
      lanes_->lane(frame.in_port, out_port, frame.service_level, frame.in_class);
  if (lane == port::vl15) {
    give_back_credits(frame.in_port, frame.in_class, frame);
    ++ports_[out_port].counters().unmapped;
    return false;
  }
  frame.service_class = lane & (port::classes - 1);
  return true;
}

// Drops a frame for a port that accepts nothing.
void Switch::drop_for(Time now, std::uint16_t out_port, const port::Frame& frame) {
  port::Port& out = ports_[out_port];
  if (out.is_down()) {
    lose(now, out, frame);
  } else {
    ++(has_credits() ? out.counters().discarded : out.counters().watchdog_dropped);
  }
  give_back_credits(frame.in_port, frame.in_class, frame);
}

// Drops a frame that has no route left to its destination.
void Switch::drop_unrouted(Time now, std::uint16_t in_port, port::Frame& frame) {
  enter(in_port, frame);
  lose(now, ports_[in_port], frame);
  ++ports_[in_port].counters().unrouted;
  give_back_credits(in_port, frame.in_class, frame);
}

void Switch::lose(Time now, port::Port& port, const port::Frame& frame) {
  ++port.counters().lost;
  port.counters().lost_bytes += frame.buffer_bytes;
  last_loss_ = now;
}

// Returns the credits of a frame that came in and was lost at once.
void Switch::give_back_credits(std::uint16_t in_port, std::uint32_t lane,
                               const port::Frame& frame) {
  if (!has_credits()) return;
  port::Port& in = ports_[in_port];
  in.take_room(lane, frame.buffer_bytes);
  talks(in_port, in.free_room(lane, frame.buffer_bytes));
}

// --- a frame leaves ---

port::FrameRef Switch::pull(Time now, std::uint16_t port_number) {
  const port::FrameRef ref = ports_[port_number].pull(now, random_);
  if (ref != port::no_frame) release((*frames_)[ref]);
  return ref;
}

// --- links, watchdogs and recovery ---

port::FrameRef Switch::take_down(Time now, std::uint16_t port_number) {
  port::Port& port = ports_[port_number];
  port.take_down(now);
  port::FrameRef lost = port::no_frame;
  for (std::uint32_t lane = port::classes; lane-- > 0;) {
    const port::FrameRef first = empty_queue(port, lane);
    if (first == port::no_frame) continue;
    port::FrameRef last = first;
    while ((*frames_)[last].next != port::no_frame) last = (*frames_)[last].next;
    (*frames_)[last].next = lost;
    lost = first;
  }
  for (port::FrameRef ref = lost; ref != port::no_frame; ref = (*frames_)[ref].next) {
    lose(now, port, (*frames_)[ref]);
  }
  return lost;
}

bool Switch::watch(Time now, std::uint16_t port_number) {
  port::Port& port = ports_[port_number];
  for (std::uint32_t left = port.trip_watchdog(now); left != 0; left &= left - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
    port.counters().watchdog_dropped += give(empty_queue(port, lane));
  }
  return port.is_watched();
}

Time Switch::discard_heads(Time now, std::uint16_t port) {
  const Overdue overdue = take_overdue(now, port, head_lifetime(port));
  give(overdue.frames);
  return overdue.next;
}

Switch::Overdue Switch::take_overdue(Time now, std::uint16_t port_number, Time lifetime) {
  port::Port& port = ports_[port_number];
  Overdue overdue;
  const auto take = [&](port::FrameRef first) {
    for (port::FrameRef ref = first; ref != port::no_frame;) {
      const port::FrameRef next = std::exchange((*frames_)[ref].next, overdue.frames);
      overdue.frames = ref;
      ++port.counters().discarded;
      ref = next;
    }
  };
  for (std::uint32_t lane = 0; lane < port::classes; ++lane) {
    switch (port.expire_head(now, lane, lifetime)) {
      case port::Port::Expired::nothing:
        break;
      case port::Port::Expired::head: {
        const port::FrameRef ref = port.take_head(lane);
        release((*frames_)[ref]);
        (*frames_)[ref].next = port::no_frame;
        take(ref);
        break;
      }
      case port::Port::Expired::queue:
        take(empty_queue(port, lane));
        break;
    }
    overdue.next = std::min(overdue.next, port.next_expiry(lane, lifetime));
  }
  return overdue;
}

void Switch::rebase(Time by) {
  for (port::Port& port : ports_) port.rebase(by);
  for (Flowlet& flowlet : flowlets_) tulle::rebase(by, flowlet.last);
  for (const auto& monitor : monitors_) {
    if (monitor != nullptr) monitor->rebase(by);
  }
  // Zero would say that no frame was ever lost.
  if (last_loss_ > Time::zero()) {
    last_loss_ = std::max(last_loss_.rebased(by), Time::picoseconds(1));
  }
}

// Gives the frames of a list back. Returns how many there are.
std::uint64_t Switch::give(port::FrameRef first) {
  std::uint64_t frames = 0;
  for (port::FrameRef ref = first; ref != port::no_frame;) {
    const port::FrameRef next = (*frames_)[ref].next;
    frames_->give(ref);
    ++frames;
    ref = next;
  }
  return frames;
}

// Empties a queue and releases its memory. Returns the frames as a list.
port::FrameRef Switch::empty_queue(port::Port& port, std::uint32_t lane) {
  const port::FrameRef first = port.empty_queue(lane);
  for (port::FrameRef ref = first; ref != port::no_frame; ref = (*frames_)[ref].next) {
    release((*frames_)[ref]);
  }
  return first;
}

void Switch::avoid(std::uint16_t port, bool is_avoided) {
  if (is_avoided) {
    avoided_.push_back(port);
  } else {
    std::erase(avoided_, port);
  }
}

// --- management ---

// Records that a frame waits for a port, and sends a notice if the monitor asks for one.
void Switch::watch_endpoint(Time now, std::uint16_t out_port, const port::Frame& frame) {
  EndpointMonitor* monitor = monitors_[out_port].get();
  if (monitor == nullptr || frame.payload_bytes == 0) return;
  const EndpointMonitor::Advice advice =
      monitor->arrived(now, frame.source, frame.link_bytes(), ports_[out_port].queue_bytes());
  if (advice.bits_per_second == 0) return;
  ++notices_sent_;
  const std::uint16_t way = forward_notice(
      notices_->take({frame.source, frame.destination, advice.bits_per_second, advice.hold}));
  if (way != no_port) talkers_.push_back(way);
}

std::uint16_t Switch::forward_notice(std::uint32_t place) {
  const auto ways = routes_->candidates(node_, (*notices_)[place].source);
  if (ways.empty()) {
    notices_->give(place);
    return no_port;
  }
  notices_->push(ports_[ways.front()].management, place);
  return ways.front();
}

}  // namespace tulle::fabric
