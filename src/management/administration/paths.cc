#include "management/administration/paths.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tulle::management::administration {
namespace {

using Has = PathComponents;

class PathSearch {
 public:
  PathSearch(const View& view, std::uint64_t mask, const wire::PathRecord& question,
             const TakePath& take)
      : view_(view), mask_(mask), question_(question), take_(take) {}

  PathOutcome run(PathCursor& cursor, std::size_t& budget) {
    const bool is_bad = has(Has::raw_traffic) && (question_.raw_flow_and_hops >> 31) != 0;
    if (is_bad) return PathOutcome::bad_question;
    std::optional<std::uint32_t> from, to;
    if (has(Has::source_gid)) {
      from = view_.find_gid(question_.source_gid);
      if (!from) return PathOutcome::unknown_gid;
    }
    if (has(Has::destination_gid)) {
      to = view_.find_gid(question_.destination_gid);
      if (!to) return PathOutcome::unknown_gid;
    }
    if (has(Has::source_lid) && !narrow(from, question_.source_lid)) return PathOutcome::ok;
    if (has(Has::destination_lid) && !narrow(to, question_.destination_lid)) {
      return PathOutcome::ok;
    }
    const std::uint32_t nodes = view_.size();
    const std::uint32_t first_to = to.value_or(0);
    if (!std::exchange(cursor.has_begun, true)) {
      cursor.from = from.value_or(0);
      cursor.to = first_to;
    }
    for (; cursor.from < (from ? *from + 1 : nodes); ++cursor.from, cursor.to = first_to) {
      for (; cursor.to < (to ? *to + 1 : nodes); ++cursor.to) {
        if (budget == 0) return PathOutcome::unfinished;
        budget -= std::min<std::size_t>(budget, 1u << view_.node(cursor.to).lmc);
        if (!add_paths(cursor.from, cursor.to)) return PathOutcome::enough;
      }
    }
    return PathOutcome::ok;
  }

 private:
  bool has(std::uint64_t component) const { return (mask_ & component) != 0; }

  // A LID must be one of the node that a GID has named, if it has named one.
  bool narrow(std::optional<std::uint32_t>& node, std::uint16_t lid) const {
    const auto found = view_.find_lid(lid);
    if (!found || (node && *node != *found)) return false;
    node = found;
    return true;
  }

  // Path n goes from the n-th LID of the source to the n-th of the destination.
  bool add_paths(std::uint32_t from, std::uint32_t to) {
    const subnet::GraphNode& source = view_.node(from);
    const subnet::GraphNode& target = view_.node(to);
    if (source.lid == 0 || target.lid == 0) return true;
    const unsigned wanted = has(Has::paths) ? question_.reversible_and_paths & 0x7Fu : 0x7Fu;
    unsigned found = 0;
    for (std::uint32_t path = 0; path < 1u << target.lmc && found < wanted; ++path) {
      const auto to_lid = static_cast<std::uint16_t>(target.lid + path);
      const auto from_lid =
          static_cast<std::uint16_t>(source.lid + (path & ((1u << source.lmc) - 1)));
      if (has(Has::destination_lid) && to_lid != question_.destination_lid) continue;
      const std::uint16_t own =
          has(Has::source_lid) ? std::uint16_t{question_.source_lid} : from_lid;
      const auto record = record_of(from, own, to, to_lid);
      if (!record) continue;
      ++found;
      if (!take_(*record)) return false;
    }
    return true;
  }

  std::optional<wire::PathRecord> record_of(std::uint32_t from, std::uint16_t from_lid,
                                            std::uint32_t to, std::uint16_t to_lid) const {
    const auto reach = view_.follow(from, to_lid);
    if (!reach) return std::nullopt;
    const bool is_reversible = view_.follow(to, from_lid).has_value();
    if (has(Has::reversible) && !is_reversible &&
        (question_.reversible_and_paths & wire::PathRecord::reversible) != 0) {
      return std::nullopt;
    }
    const auto reach_wanted = selected(*reach);
    wire::PathRecord record;
    record.destination_gid = view_.gid(to);
    record.source_gid = view_.gid(from);
    record.destination_lid = to_lid;
    record.source_lid = from_lid;
    record.reversible_and_paths = is_reversible ? wire::PathRecord::reversible : std::uint8_t{0};
    record.pkey = default_pkey.value;
    record.life_time = wire::selected(wire::Selector::exactly, path_life_time);
    if (!reach_wanted || !has_wanted_rest(record)) return std::nullopt;
    record.mtu = wire::selected(wire::Selector::exactly, reach_wanted->mtu);
    record.rate = wire::selected(wire::Selector::exactly, reach_wanted->rate);
    return record;
  }

  // Returns the MTU and the rate of the answer, if the path can have those that are asked for. A
  // path can always have a smaller one.
  std::optional<View::Reach> selected(const View::Reach& reach) const {
    const auto mtu = lowered(reach.mtu, question_.mtu, Has::mtu_selector, Has::mtu, rank_of_code);
    const auto rate =
        lowered(reach.rate, question_.rate, Has::rate_selector, Has::rate, rate_of_code);
    if (!mtu || !rate) return std::nullopt;
    return View::Reach{*mtu, *rate};
  }

  std::optional<std::uint8_t> lowered(std::uint8_t value, std::uint8_t wanted,
                                      std::uint64_t selector, std::uint64_t component,
                                      Rank rank) const {
    if (!has(selector) || !has(component)) return value;
    if (is_wanted(value, wanted, rank)) return value;
    const std::uint8_t code = wire::selected_value(wanted);
    const bool is_smaller = rank(code) != 0 && rank(code) < rank(value);
    if (wire::selector_of(wanted) == wire::Selector::exactly && is_smaller) return code;
    if (wire::selector_of(wanted) != wire::Selector::below) return std::nullopt;
    const std::uint8_t best = greatest_below(code, value, rank);
    return best == 0 ? std::nullopt : std::optional(best);
  }

  bool has_wanted_rest(const wire::PathRecord& record) const {
    if (has(Has::pkey) && (question_.pkey & 0x7FFF) != (record.pkey & 0x7FFF)) return false;
    if (has(Has::sl) && (question_.qos_class_and_sl & 0xF) != 0) return false;
    if (!has(Has::life_time_selector) || !has(Has::life_time)) return true;
    return is_wanted(path_life_time, question_.life_time, rank_of_code);
  }

  const View& view_;
  std::uint64_t mask_;
  const wire::PathRecord& question_;
  const TakePath& take_;
};

}  // namespace

bool is_wanted(std::uint8_t value, std::uint8_t wanted, Rank rank) {
  const unsigned limit = rank(wire::selected_value(wanted));
  switch (wire::selector_of(wanted)) {
    case wire::Selector::above:
      return rank(value) > limit;
    case wire::Selector::below:
      return rank(value) < limit;
    case wire::Selector::exactly:
      return rank(value) == limit;
    case wire::Selector::best:
      return true;
  }
  return true;
}

std::uint8_t greatest_below(std::uint8_t limit, std::uint8_t most, Rank rank) {
  std::uint8_t best = 0;
  for (std::uint8_t other = 1; other < 0x3F; ++other) {
    const bool fits = rank(other) != 0 && rank(other) < rank(limit) && rank(other) <= rank(most);
    if (fits && (best == 0 || rank(other) > rank(best))) best = other;
  }
  return best;
}

unsigned rank_of_code(std::uint8_t code) { return code; }

PathOutcome find_paths(const View& view, std::uint64_t mask, const wire::PathRecord& question,
                       PathCursor& cursor, std::size_t& budget, const TakePath& take) {
  return PathSearch(view, mask, question, take).run(cursor, budget);
}

}  // namespace tulle::management::administration
