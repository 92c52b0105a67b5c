#include "study/report/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "study/report/quantity.h"

namespace tulle::report {
namespace {

constexpr std::size_t table_rows = 10;
constexpr double least_share = 0.01;  // of the run

std::string microseconds_text(double us) {
  return time_text(Time{static_cast<std::int64_t>(us * 1e6)});
}

double end_us_of(const Outcome& outcome) {
  const Measured* end = find(outcome.figures, "end_us");
  return end == nullptr ? 0 : exact(end->value);
}

bool is_worse(const LinkLoad& a, const LinkLoad& b) {
  return std::tuple(a.waited_us, a.utilisation) > std::tuple(b.waited_us, b.utilisation);
}

}  // namespace

std::vector<LinkLoad> link_loads(const Outcome& outcome) {
  const double end_us = end_us_of(outcome);
  std::vector<LinkLoad> loads;
  loads.reserve(outcome.links.rows.size());
  for (std::size_t i = 0; i < outcome.links.rows.size(); ++i) {
    const auto number = [&](std::string_view key) {
      const Value* value = find(outcome.links, outcome.links.rows[i], key);
      return value == nullptr ? 0 : exact(*value);
    };
    LinkLoad load{i,
                  number("utilisation"),
                  0,
                  number("queue_max_bytes"),
                  number("paused_us"),
                  number("dropped")};
    load.waited_us = load.paused_us;
    // The link's rate follows from its bytes and its share of the time.
    if (load.utilisation > 0) {
      load.waited_us += load.queue_max_bytes / number("bytes") * load.utilisation * end_us;
    }
    loads.push_back(load);
  }
  return loads;
}

std::vector<std::size_t> worst_links(const std::vector<LinkLoad>& loads, std::size_t most) {
  std::vector<std::size_t> rows(loads.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto end = rows.begin() + static_cast<std::ptrdiff_t>(std::min(most, rows.size()));
  std::partial_sort(rows.begin(), end, rows.end(), [&](std::size_t a, std::size_t b) {
    if (is_worse(loads[a], loads[b])) return true;
    return !is_worse(loads[b], loads[a]) && a < b;
  });
  rows.erase(end, rows.end());
  return rows;
}

Table worst_links_table(const std::string& what, const std::vector<Outcome>& outcomes) {
  struct Found {
    const Outcome* outcome;
    LinkLoad load;
  };
  std::vector<Found> found;
  for (const Outcome& outcome : outcomes) {
    const std::vector<LinkLoad> loads = link_loads(outcome);
    for (const std::size_t row : worst_links(loads, table_rows)) {
      const bool counts = loads[row].waited_us > least_share * end_us_of(outcome);
      if (counts) found.push_back({&outcome, loads[row]});
    }
  }
  std::ranges::stable_sort(found, is_worse, &Found::load);
  if (found.size() > table_rows) found.resize(table_rows);
  Table table{{what, "from", "to", "held up", "longest queue", "paused", "dropped", "sending"}, {}};
  for (const auto& [outcome, load] : found) {
    const auto& names = outcome->links.rows[load.row].names;
    table.rows.push_back({{outcome->variant},
                          {names.front()},
                          {names.back()},
                          {microseconds_text(load.waited_us)},
                          {bytes_text(load.queue_max_bytes)},
                          {microseconds_text(load.paused_us)},
                          {fmt::format("{:.0f}", load.dropped)},
                          {fmt::format("{:.1f} %", load.utilisation * 100)}});
  }
  return table;
}

}  // namespace tulle::report
