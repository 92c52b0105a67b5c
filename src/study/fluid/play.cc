#include "study/fluid/play.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tulle::fluid {
namespace {

std::vector<double> rates_of(const std::vector<Link>& links) {
  std::vector<double> rates;
  rates.reserve(links.size());
  for (const Link& link : links) rates.push_back(link.rate);
  return rates;
}

}  // namespace

Play::Play(const Traffic& traffic, const Settings& settings)
    : traffic_(traffic),
      settings_(settings),
      rates_(rates_of(traffic.links), traffic.hops_max, {settings.tolerance}),
      delays_(traffic.flows.size(), -1) {}

void Play::run(const std::function<bool(std::uint64_t done)>& goes_on) {
  std::vector<std::uint32_t> order(traffic_.flows.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto starts_before = [this](std::uint32_t a, std::uint32_t b) {
    return traffic_.flows[a].start < traffic_.flows[b].start;
  };
  if (!std::ranges::is_sorted(order, starts_before)) std::ranges::stable_sort(order, starts_before);
  std::size_t next = 0;
  std::uint64_t events = 0;
  constexpr std::uint64_t events_between = 1'024;
  while (next < order.size() || !heap_.empty()) {
    const double starts = next < order.size() ? traffic_.flows[order[next]].start
                                              : std::numeric_limits<double>::infinity();
    const double now = std::min(starts, next_end());
    while (next_end() <= now && !heap_.empty()) end_first(now);
    while (next < order.size() && traffic_.flows[order[next]].start <= now) {
      begin(now, order[next++]);
    }
    settle(now);
    if (++events % events_between == 0 && !goes_on(next - heap_.size())) return;
  }
}

void Play::begin(double now, std::uint32_t index) {
  const Flow& flow = traffic_.flows[index];
  const std::span<const LinkIndex> path(&traffic_.hops[flow.first_hop], flow.hops);
  const double waits = wait(now, path);
  const FlowSlot slot = rates_.add(path);
  if (slot >= active_.size()) active_.resize(slot + 1);
  active_[slot] = {index, waits, now, flow.bytes, 0, 0, static_cast<std::uint32_t>(heap_.size())};
  heap_.push_back({std::numeric_limits<double>::infinity(), slot});
}

double Play::next_end() const {
  return heap_.empty() ? std::numeric_limits<double>::infinity() : heap_.front().at;
}

Play::Ended Play::end_first(double now) {
  const Ending first = heap_.front();
  const Active& active = active_[first.slot];
  const Flow& flow = traffic_.flows[active.flow];
  // Rounding must not make a flow that is alone faster than its links.
  const double shares = std::max(now - flow.start - flow.alone, 0.0);
  const double waits_back =
      wait(now, {traffic_.hops.data() + flow.first_hop + flow.hops, flow.hops_back});
  delays_[active.flow] = shares + active.waits + waits_back;
  const Ended ended{active.flow, waits_back};
  rates_.remove(first.slot);
  const Ending last = heap_.back();
  heap_.pop_back();
  if (heap_.empty()) return ended;
  put(0, last);
  sink(0);
  return ended;
}

void Play::settle(double now) {
  for (const FlowSlot slot : rates_.settle()) {
    catch_up(now, slot);
    Active& active = active_[slot];
    active.rate = rates_.rate(slot);
    const LinkIndex narrowest = rates_.link(slot, rates_.bottleneck(slot));
    findings_.most_bound = std::max(findings_.most_bound, rates_.bound(narrowest));
    const double before = heap_[active.place].at;
    const double at = now + active.left / active.rate;
    heap_[active.place].at = at;
    if (at < before) {
      lift(active.place);
    } else {
      sink(active.place);
    }
  }
}

// Notes how many bytes are left, and wait, before the rate changes.
void Play::catch_up(double now, FlowSlot slot) {
  Active& active = active_[slot];
  active.backlog = active.rate > 0 ? backlog(now, slot) : 0;
  active.left = std::max(active.left - active.rate * (now - active.since), 0.0);
  active.since = now;
}

double Play::backlog(double now, FlowSlot slot) const {
  const std::uint32_t bottleneck = rates_.bottleneck(slot);
  if (bottleneck == 0) return 0;  // nothing but its own link holds it back
  const Active& active = active_[slot];
  const double passed = now - active.since;
  const double left = active.left - active.rate * passed;
  double most = 0;
  if (settings_.backlog == Backlog::window) {
    const double on_the_way = active.rate * traffic_.flows[active.flow].round_trip;
    most = std::min(settings_.bytes, left) - on_the_way;
  } else {
    most = std::min(settings_.bytes * bottleneck, left);
  }
  if (most <= 0) return 0;
  const LinkIndex own = rates_.link(slot, 0);
  const double sends = rates_.capacity(own) / static_cast<double>(rates_.members(own).size());
  const double more = std::max(sends - active.rate, 0.0) * passed;
  return std::min(active.backlog + more, most);
}

// Returns the bytes that wait before a link.
double Play::queue(double now, LinkIndex link, bool& is_blocked) {
  double bytes = 0;
  if (settings_.backlog == Backlog::window) {
    for (const MaxMin::Member member : rates_.members(link)) {
      if (rates_.bottleneck(member.flow) == member.hop) bytes += backlog(now, member.flow);
    }
    return bytes;
  }
  inputs_.clear();
  for (const MaxMin::Member member : rates_.members(link)) {
    const std::uint32_t bottleneck = rates_.bottleneck(member.flow);
    if (member.hop == 0 || member.hop > bottleneck) continue;
    const double further_on = settings_.bytes * (bottleneck - member.hop);
    const double here = std::min(backlog(now, member.flow) - further_on, settings_.bytes);
    if (here <= 0) continue;
    is_blocked = is_blocked || member.hop < bottleneck;
    const LinkIndex from = rates_.link(member.flow, member.hop - 1);
    const auto found = std::ranges::find(inputs_, from, &Input::from);
    if (found == inputs_.end()) {
      inputs_.push_back({from, here});
    } else {
      found->bytes = std::min(found->bytes + here, settings_.bytes);
    }
  }
  for (const Input& input : inputs_) bytes += input.bytes;
  return bytes;
}

// Returns how long a packet waits in the queues on its path, where a flow begins or where its
// acknowledgement goes back. A queue leaves at the rate of
// its link, or, where a bottleneck further on holds it up, at that of its flows.
double Play::wait(double now, std::span<const LinkIndex> path) {
  double time = 0;
  bool is_blocked = false;
  for (const LinkIndex link : path.subspan(std::min<std::size_t>(path.size(), 1))) {
    const double rate = rates_.capacity(link);
    const double used = std::min(rates_.used(link), rate);
    time += used / rate * settings_.packet_bytes / (2 * rate);
    const double bytes = queue(now, link, is_blocked);
    ++findings_.queues;
    if (bytes <= 0) continue;
    const double most = traffic_.links[link].queue_bytes_max;
    if (bytes > most) ++findings_.too_long;
    findings_.longest = std::max(findings_.longest, bytes);
    findings_.longest_of_max = std::max(findings_.longest_of_max, bytes / most);
    time += bytes / used;
  }
  if (is_blocked) ++findings_.blocked;
  return time;
}

void Play::lift(std::uint32_t place) {
  const Ending moved = heap_[place];
  while (place > 0) {
    const std::uint32_t above = (place - 1) / 2;
    if (heap_[above].at <= moved.at) break;
    put(place, heap_[above]);
    place = above;
  }
  put(place, moved);
}

void Play::sink(std::uint32_t place) {
  const Ending moved = heap_[place];
  const auto size = static_cast<std::uint32_t>(heap_.size());
  for (;;) {
    std::uint32_t below = 2 * place + 1;
    if (below >= size) break;
    if (below + 1 < size && heap_[below + 1].at < heap_[below].at) ++below;
    if (heap_[below].at >= moved.at) break;
    put(place, heap_[below]);
    place = below;
  }
  put(place, moved);
}

}  // namespace tulle::fluid
