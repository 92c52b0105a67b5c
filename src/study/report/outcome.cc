#include "study/report/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tulle::report {
namespace {

// Returns the value that a share `q` of the values does not exceed, by the nearest rank.
double quantile(const std::vector<double>& sorted, double q) {
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), quantile(values, 0.5), quantile(values, 0.99), values.back()};
}

const Value* find(const Sheet& sheet, const Sheet::Row& row, std::string_view key) {
  const auto found = std::ranges::find(sheet.figures, key, &Figure::key);
  return found == sheet.figures.end() ? nullptr : &row.values[found - sheet.figures.begin()];
}

const Measured* find(const Outcome& outcome, std::string_view name) {
  for (const Figures* figures : {&outcome.figures, &outcome.simulator}) {
    if (const Measured* found = find(*figures, name)) return found;
  }
  constexpr std::string_view traffic = "traffic.";
  if (!name.starts_with(traffic)) return nullptr;
  name.remove_prefix(traffic.size());
  for (const Kind& kind : outcome.kinds) {
    if (!name.starts_with(kind.name + ".")) continue;
    if (const Measured* found = find(kind.figures, name.substr(kind.name.size() + 1))) return found;
  }
  return nullptr;
}

Tally tally(const Outcome& outcome, std::optional<std::size_t> kind) {
  const std::optional<Tally>& stored = kind ? outcome.kinds[*kind].tally : outcome.tally;
  if (stored) return *stored;
  Tally tally;
  for (std::size_t i = 0; i < outcome.flows.size(); ++i) {
    if (kind && outcome.kind_of[i] != *kind) continue;
    const Flow& flow = outcome.flows[i];
    ++tally.flows;
    tally.finished += flow.is_done() ? 1 : 0;
    tally.failed += flow.failed ? 1 : 0;
    tally.arrived += flow.has_arrived() ? 1 : 0;
  }
  return tally;
}

std::string unfinished(const Outcome& outcome) {
  const Tally all = tally(outcome);
  const std::uint64_t left = all.flows - all.finished - all.failed;
  std::string text;
  if (all.failed > 0) text = fmt::format("{} of {} flows failed", all.failed, all.flows);
  if (left > 0 && all.failed > 0) text += fmt::format(", {} are not done", left);
  if (left > 0 && all.failed == 0)
    text = fmt::format("{} of {} flows are not done", left, all.flows);
  return text;
}

}  // namespace tulle::report
