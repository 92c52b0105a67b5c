#include "study/traces/matching.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace tulle::traces {
namespace {

using Kind = Node::Kind;

std::uint32_t sender_of(const Node& node) {
  return node.kind == Kind::send ? node.rank : node.peer;
}
std::uint32_t receiver_of(const Node& node) {
  return node.kind == Kind::send ? node.peer : node.rank;
}

auto key_of(const Node& node) { return std::tuple(sender_of(node), receiver_of(node), node.tag); }

}  // namespace

Result<void> Matching::match() {
  partner_.resize(trace_.size());
  unit_of_.resize(trace_.size());
  if (auto right = match_messages(); !right) return right.error();
  if (auto right = match_collectives(); !right) return right.error();
  for (Index i = 0; i < trace_.size(); ++i) {
    if (trace_[i].kind != Kind::collective) add_unit(std::span(&i, 1));
  }
  return {};
}

void Matching::add_unit(std::span<const Index> members) {
  for (const Index member : members) unit_of_[member] = static_cast<std::uint32_t>(units());
  members_.insert(members_.end(), members.begin(), members.end());
  first_member_.push_back(members_.size());
}

Result<void> Matching::match_messages() {
  std::vector<Index> sends, receives;
  for (Index i = 0; i < trace_.size(); ++i) {
    if (trace_[i].kind == Kind::send) sends.push_back(i);
    if (trace_[i].kind == Kind::receive) receives.push_back(i);
  }
  const auto before = [&](Index a, Index b) {
    return std::tuple(key_of(trace_[a]), a) < std::tuple(key_of(trace_[b]), b);
  };
  std::sort(sends.begin(), sends.end(), before);
  std::sort(receives.begin(), receives.end(), before);
  Index alone = static_cast<Index>(trace_.size());  // the first node without a counterpart
  std::size_t s = 0, r = 0;
  while (s < sends.size() || r < receives.size()) {
    if (r == receives.size() ||
        (s < sends.size() && key_of(trace_[sends[s]]) < key_of(trace_[receives[r]]))) {
      alone = std::min(alone, sends[s++]);
    } else if (s == sends.size() || key_of(trace_[receives[r]]) < key_of(trace_[sends[s]])) {
      alone = std::min(alone, receives[r++]);
    } else {
      partner_[receives[r++]] = sends[s++];
    }
  }
  if (alone == trace_.size()) return {};
  const Node& node = trace_[alone];
  const bool is_send = node.kind == Kind::send;
  return trace_.error(
      alone, fmt::format("rank {} {} with tag {}, and rank {} has no {} for it; give each message "
                         "both",
                         node.rank,
                         is_send ? fmt::format("sends to rank {}", node.peer)
                                 : fmt::format("receives from rank {}", node.peer),
                         node.tag, node.peer, is_send ? "receive" : "send"));
}

// Returns an error if calls that came at the same turn are not of one operation. In an all-to-all
// each rank may send another amount; the largest counts.
Result<void> Matching::check_calls(std::span<const Index> calls) const {
  const Node& first = trace_[calls[0]];
  for (const Index call : calls) {
    const Node& node = trace_[call];
    if (node.collective != first.collective) {
      return trace_.error(
          call, fmt::format("{} meets {} of rank {} ({}); the ranks of a group call the same "
                            "collectives in the same order",
                            name_of(node.collective), name_of(first.collective), first.rank,
                            trace_.place_of(calls[0])));
    }
    if (node.bytes != first.bytes && node.collective != workload::Collective::all_to_all) {
      return trace_.error(
          call, fmt::format("{} bytes meet {} of rank {} ({}); one collective has "
                            "one size",
                            node.bytes, first.bytes, first.rank, trace_.place_of(calls[0])));
    }
  }
  return {};
}

Result<void> Matching::match_collectives() {
  std::vector<Index> calls;
  for (Index i = 0; i < trace_.size(); ++i) {
    if (trace_[i].kind == Kind::collective) calls.push_back(i);
  }
  const auto key = [&](Index i) { return std::tuple(trace_[i].group, trace_[i].rank, i); };
  std::sort(calls.begin(), calls.end(), [&](Index a, Index b) { return key(a) < key(b); });
  for (std::size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
    const std::uint32_t group = trace_[calls[begin]].group;
    while (end < calls.size() && trace_[calls[end]].group == group) ++end;
    const std::span<const Index> all(calls.data() + begin, end - begin);
    const std::vector<std::uint32_t>& ranks = trace_.group(group);
    // The calls of each rank begin here.
    std::vector<std::size_t> first(ranks.size() + 1, all.size());
    for (std::size_t i = 0, place = 0; place < ranks.size(); ++place) {
      first[place] = i;
      while (i < all.size() && trace_[all[i]].rank == ranks[place]) ++i;
    }
    const std::size_t turns = first[1];
    for (std::size_t place = 1; place < ranks.size(); ++place) {
      const std::size_t count = first[place + 1] - first[place];
      if (count == turns) continue;
      const Index odd = count > turns ? all[first[place] + turns] : all[count];
      const std::uint32_t other = count > turns ? ranks[0] : ranks[place];
      return trace_.error(odd, fmt::format("rank {} does not take part in this {}; each rank of "
                                           "the group calls it",
                                           other, name_of(trace_[odd].collective)));
    }
    std::vector<Index> unit(ranks.size());
    for (std::size_t turn = 0; turn < turns; ++turn) {
      for (std::size_t place = 0; place < ranks.size(); ++place) {
        unit[place] = all[first[place] + turn];
      }
      if (auto right = check_calls(unit); !right) return right.error();
      add_unit(unit);
    }
  }
  return {};
}

}  // namespace tulle::traces
