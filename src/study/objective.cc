#include "study/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <system_error>
#include <vector>

#include "base/near_names.h"
#include "base/quoted.h"
#include "study/experiment/figures.h"

namespace tulle::study {
namespace {

// Returns the row of the table of figures for a name such as "pauses" or "traffic.NAME.fct_us.max";
// null if there is none.
const experiment::Row* row_of(std::string_view name) {
  constexpr std::string_view traffic = "traffic.";
  if (name.starts_with(traffic)) {
    const std::size_t dot = name.find('.', traffic.size());
    if (dot == std::string_view::npos) return nullptr;
    name.remove_prefix(dot + 1);
  }
  const std::span<const experiment::Row> rows = experiment::rows();
  const auto found = std::ranges::find_if(
      rows, [&](const experiment::Row& row) { return row.figure.key == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

bool is_figure(std::string_view name) { return row_of(name) != nullptr; }

std::optional<double> value_in(const report::Outcome& outcome, const std::string& name) {
  if (const report::Measured* measured = report::find(outcome, name)) {
    return report::exact(measured->value);
  }
  const experiment::Row* row = row_of(name);
  if (row != nullptr && row->when == experiment::When::not_zero) return 0;
  return {};
}

Error no_such_figure(std::string_view option, std::string_view name) {
  std::vector<std::string_view> names;
  for (const experiment::Row& row : experiment::rows()) names.push_back(row.figure.key);
  return Error{
      fmt::format("{}: no figure {}{}", option, tulle::quoted(name),
                  did_you_mean(name, names, "the names are those in a run's summary.json"))};
}

Result<Limit> parse_limit(const std::string& text) {
  const auto wrong = [&] {
    return Error{
        fmt::format("--limit {}: write FIGURE<=NUMBER or FIGURE>=NUMBER, such as pauses<=0",
                    tulle::quoted(text))};
  };
  const std::size_t sign = text.find_first_of("<>");
  if (sign == 0 || sign == std::string::npos || text[sign + 1] != '=') return wrong();
  Limit limit{text.substr(0, sign), text[sign] == '<', 0};
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + sign + 2, end, limit.bound);
  if (parsed.ec != std::errc() || parsed.ptr != end) return wrong();
  if (!is_figure(limit.figure)) {
    return no_such_figure("--limit", limit.figure);
  }
  return limit;
}

}  // namespace tulle::study
