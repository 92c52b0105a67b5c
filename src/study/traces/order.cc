#include "study/traces/order.h"

#include <fmt/format.h>

#include <string>

namespace tulle::traces {

void Order::collect_waits() {
  const auto& all = trace_.dependencies_;
  first_wait_.assign(trace_.size() + 1, 0);
  for (const auto& each : all) ++first_wait_[each.node + 1];
  for (std::size_t i = 0; i < trace_.size(); ++i) first_wait_[i + 1] += first_wait_[i];
  waits_.resize(all.size());
  std::vector<std::size_t> next = first_wait_;
  for (std::uint32_t i = 0; i < all.size(); ++i) waits_[next[all[i].node]++] = i;
}

// Calls visit() with each node that a node waits for.
template <typename Visit>
void Order::visit_before(Index node, Visit visit) const {
  for (const std::uint32_t wait : waits_of(node)) visit(trace_.dependencies_[wait].before);
  if (trace_[node].kind == Node::Kind::receive) visit(matching_.send_of(node));
}

// Takes units without predecessors away, one after the other (Kahn 1962).
Result<void> Order::sort() {
  collect_waits();
  const std::size_t count = matching_.units();
  std::vector<std::uint32_t> awaited(count);        // by unit
  std::vector<std::size_t> first_after(count + 1);  // by unit: index in `after`
  for (Index node = 0; node < trace_.size(); ++node) {
    visit_before(node, [&](Index before) {
      ++awaited[matching_.unit_of(node)];
      ++first_after[matching_.unit_of(before) + 1];
    });
  }
  for (std::size_t i = 0; i < count; ++i) first_after[i + 1] += first_after[i];
  std::vector<std::uint32_t> after(first_after.back());
  std::vector<std::size_t> next = first_after;
  for (Index node = 0; node < trace_.size(); ++node) {
    visit_before(node, [&](Index before) {
      after[next[matching_.unit_of(before)]++] = matching_.unit_of(node);
    });
  }
  order_.reserve(count);
  for (std::uint32_t unit = 0; unit < count; ++unit) {
    if (awaited[unit] == 0) order_.push_back(unit);
  }
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const std::uint32_t unit = order_[i];
    for (std::size_t j = first_after[unit]; j < first_after[unit + 1]; ++j) {
      if (--awaited[after[j]] == 0) order_.push_back(after[j]);
    }
  }
  if (order_.size() < count) return cycle(awaited);
  return {};
}

// Every unit that is left waits for another one that is left, so that a walk from one to what it
// waits for comes round. `awaited` is 0 for units that are not left.
Error Order::cycle(const std::vector<std::uint32_t>& awaited) const {
  std::uint32_t unit = 0;
  while (awaited[unit] == 0) ++unit;
  struct Step {
    Index node, before;
  };
  std::vector<Step> walk;
  std::vector<std::uint32_t> visited_at(matching_.units());  // by unit: position in walk and 1
  while (visited_at[unit] == 0) {
    visited_at[unit] = static_cast<std::uint32_t>(walk.size() + 1);
    bool is_found = false;
    for (const Index node : matching_.members(unit)) {
      visit_before(node, [&](Index before) {
        if (is_found || awaited[matching_.unit_of(before)] == 0) return;
        is_found = true;
        walk.push_back({node, before});
      });
    }
    unit = matching_.unit_of(walk.back().before);
  }
  constexpr std::size_t named_max = 6;
  const std::size_t begin = visited_at[unit] - 1;
  std::string text;
  for (std::size_t i = begin; i < walk.size() && i < begin + named_max; ++i) {
    text += fmt::format("{}{}", text.empty() ? "" : ", which waits for ",
                        trace_.place_of(walk[i].before));
  }
  if (walk.size() > begin + named_max) text += ", and so on";
  return trace_.error(
      walk[begin].node,
      fmt::format("waits for itself: it waits for {}; remove one of {} dependencies", text,
                  walk.size() - begin));
}

}  // namespace tulle::traces
