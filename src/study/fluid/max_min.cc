#include "study/fluid/max_min.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tulle::fluid {
namespace {

// Rates that differ by less are equal: sums of rates have rounding errors.
constexpr double rounding = 1e-9;

// Among so many links, looking at each is faster than a heap.
constexpr std::size_t scanned_max = 256;

constexpr auto is_wider = [](const auto& a, const auto& b) {
  return a.share != b.share ? a.share > b.share : a.link > b.link;
};

}  // namespace

MaxMin::MaxMin(const std::vector<double>& capacities, std::uint32_t hops_max, Settings settings)
    : hops_max_(hops_max), tolerance_(std::max(settings.tolerance, rounding)) {
  links_.reserve(capacities.size());
  for (const double capacity : capacities) {
    TULLE_CHECK(capacity > 0);
    links_.emplace_back(capacity, &memory_);
  }
}

FlowSlot MaxMin::add(std::span<const LinkIndex> path) {
  TULLE_CHECK(!path.empty() && path.size() <= hops_max_);
  FlowSlot slot = 0;
  if (free_.empty()) {
    slot = static_cast<FlowSlot>(flows_.size());
    flows_.emplace_back();
    stops_.resize(stops_.size() + hops_max_);
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  flows_[slot] = {};
  flows_[slot].hops = static_cast<std::uint32_t>(path.size());
  for (std::uint32_t hop = 0; hop < path.size(); ++hop) {
    auto& members = links_[path[hop]].members;
    stops_of(slot)[hop] = {path[hop], static_cast<std::uint32_t>(members.size())};
    members.push_back({slot, hop});
  }
  take(slot);
  for (const LinkIndex link : path) take_bound_by(link);
  return slot;
}

void MaxMin::remove(FlowSlot slot) {
  Flow& flow = flows_[slot];
  for (std::uint32_t hop = 0; hop < flow.hops; ++hop) {
    const Stop stop = stops_of(slot)[hop];
    Link& link = links_[stop.link];
    const Member last = link.members.back();
    link.members[stop.place] = last;
    stops_of(last.flow)[last.hop].place = stop.place;
    link.members.pop_back();
    link.used = link.members.empty() ? 0 : link.used - flow.rate;
    if (hop == flow.bottleneck && flow.rate > 0) --link.bound;
  }
  for (std::uint32_t hop = 0; hop < flow.hops; ++hop) take_bound_by(stops_of(slot)[hop].link);
  flow.hops = 0;
  removed_.push_back(slot);
}

void MaxMin::take(FlowSlot flow) {
  if (std::exchange(flows_[flow].is_taken, true)) return;
  solving_.push_back(flow);
}

void MaxMin::take_bound_by(LinkIndex index) {
  const Link& link = links_[index];
  if (link.bound == 0) return;
  for (const Member member : link.members) {
    if (flows_[member.flow].bottleneck == member.hop) take(member.flow);
  }
}

std::span<const FlowSlot> MaxMin::settle() {
  if (!removed_.empty()) {
    std::erase_if(solving_, [this](FlowSlot slot) { return flows_[slot].hops == 0; });
    free_.insert(free_.end(), removed_.begin(), removed_.end());
    removed_.clear();
  }
  ++mark_;
  touched_.clear();
  with_links_ = 0;
  do {
    fill();
  } while (grow());
  commit();
  return changed_;
}

// Notes a flow that is solved at its links.
void MaxMin::touch(FlowSlot slot) {
  const Flow& flow = flows_[slot];
  Stop* stops = stops_of(slot);
  for (std::uint32_t hop = 0; hop < flow.hops; ++hop) {
    Link& link = links_[stops[hop].link];
    if (link.mark != mark_) {
      link.mark = mark_;
      link.touched = static_cast<std::uint32_t>(touched_.size());
      touched_.push_back({stops[hop].link, 0, link.capacity - link.used});
    }
    stops[hop].touched = link.touched;
    Touched& touched = touched_[link.touched];
    touched.room += flow.rate;
    ++touched.flows;
  }
}

// Gives the flows that are solved what the others leave: raises the rates of all of them together,
// and fixes those of a link's flows when the link is full.
void MaxMin::fill() {
  while (with_links_ < solving_.size()) touch(solving_[with_links_++]);
  for (const FlowSlot slot : solving_) flows_[slot].is_fixed = false;
  solved_ += solving_.size();
  for (Touched& touched : touched_) {
    touched.open = touched.flows;
    touched.left = touched.room;
    touched.level = std::numeric_limits<double>::infinity();
    touched.most = 0;
  }
  const bool is_heap = touched_.size() > scanned_max;
  if (is_heap) make_heap();
  std::size_t to_fix = solving_.size();
  while (to_fix > 0) {
    Touched& full = is_heap ? take_from_heap() : find_by_scan();
    const double level = std::max(full.share(), 0.0);
    full.level = level;
    for (const Member member : links_[full.link].members) {
      Flow& flow = flows_[member.flow];
      if (!flow.is_taken || flow.is_fixed) continue;
      flow.is_fixed = true;
      flow.next_rate = level;
      flow.next_bottleneck = member.hop;
      --to_fix;
      const Stop* stops = stops_of(member.flow);
      for (std::uint32_t hop = 0; hop < flow.hops; ++hop) {
        Touched& touched = touched_[stops[hop].touched];
        touched.left -= level;
        touched.most = std::max(touched.most, level);
        --touched.open;
      }
    }
  }
}

MaxMin::Touched& MaxMin::find_by_scan() {
  Narrow best{std::numeric_limits<double>::infinity(), 0, 0};
  for (std::uint32_t i = 0; i < touched_.size(); ++i) {
    const Touched& touched = touched_[i];
    if (touched.open == 0) continue;
    const Narrow narrow{touched.share(), touched.link, i};
    if (is_wider(best, narrow)) best = narrow;
  }
  return touched_[best.touched];
}

void MaxMin::make_heap() {
  open_.clear();
  for (std::uint32_t i = 0; i < touched_.size(); ++i) {
    open_.push_back({touched_[i].share(), touched_[i].link, i});
  }
  std::ranges::make_heap(open_, is_wider);
}

// A link's share grows while flows on others are fixed. The share in the heap may be an older one,
// which is less.
MaxMin::Touched& MaxMin::take_from_heap() {
  for (;;) {
    std::ranges::pop_heap(open_, is_wider);
    Narrow& first = open_.back();
    Touched& touched = touched_[first.touched];
    if (touched.open > 0 && touched.share() > first.share) {
      first.share = touched.share();
      std::ranges::push_heap(open_, is_wider);
      continue;
    }
    open_.pop_back();
    if (touched.open > 0) return touched;
  }
}

// Adds the flows that would be faster, or slower, at the new rates. Returns true if there are
// any.
bool MaxMin::grow() {
  const std::size_t before = solving_.size();
  for (const Touched& touched : touched_) {
    const Link& link = links_[touched.link];
    if (touched.flows == link.members.size()) continue;
    const bool is_full = touched.left <= tolerance_ * link.capacity;
    const double too_fast = touched.level * (1 + tolerance_);
    for (const Member member : link.members) {
      const Flow& flow = flows_[member.flow];
      if (flow.is_taken) continue;
      const bool is_bound = flow.bottleneck == member.hop;
      const bool is_freed = is_bound && (!is_full || flow.rate * (1 + tolerance_) < touched.most);
      if (flow.rate > too_fast || is_freed) take(member.flow);
    }
  }
  return solving_.size() > before;
}

void MaxMin::commit() {
  changed_.clear();
  for (const FlowSlot slot : solving_) {
    Flow& flow = flows_[slot];
    flow.is_taken = false;
    if (flow.rate > 0) --links_[stops_of(slot)[flow.bottleneck].link].bound;
    if (flow.next_rate > 0) ++links_[stops_of(slot)[flow.next_bottleneck].link].bound;
    flow.bottleneck = flow.next_bottleneck;
    if (flow.rate == flow.next_rate) continue;
    const double more = flow.next_rate - std::exchange(flow.rate, flow.next_rate);
    const Stop* stops = stops_of(slot);
    for (std::uint32_t hop = 0; hop < flow.hops; ++hop) links_[stops[hop].link].used += more;
    changed_.push_back(slot);
  }
  solving_.clear();
}

}  // namespace tulle::fluid
