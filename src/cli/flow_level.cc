#include "cli/flow_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/layout.h"
#include "scenario/scenario.h"

namespace tulle::cli {
namespace {

using experiment::ValidatedRange;

constexpr char window_name[] = "window";
constexpr char credits_name[] = "credits";

ValidatedRange range_of(const nlohmann::json& json) {
  ValidatedRange range;
  const auto backlog = json.at("backlog").get<std::string>();
  if (backlog != window_name && backlog != credits_name) throw std::runtime_error("backlog");
  range.backlog = backlog == window_name ? fluid::Backlog::window : fluid::Backlog::credits;
  range.at_once = json.at("at_once").get<bool>();
  range.load_max = json.at("load_max").get<double>();
  range.bottleneck_flows_max = json.at("bottleneck_flows_max").get<std::uint64_t>();
  range.error_max = json.at("error_max").get<double>();
  range.runs = json.at("runs").get<std::uint64_t>();
  range.date = json.at("date").get<std::string>();
  return range;
}

}  // namespace

Result<std::vector<ValidatedRange>> parse_ranges(const std::string& text, const std::string& file) {
  std::vector<ValidatedRange> ranges;
  try {
    for (const nlohmann::json& each : nlohmann::json::parse(text).at("ranges")) {
      ranges.push_back(range_of(each));
    }
  } catch (const std::exception& error) {
    return Error{fmt::format("{} is not what `./dev bench levels` writes: {}", file, error.what())};
  }
  return ranges;
}

Result<std::vector<ValidatedRange>> validated_ranges() {
  constexpr std::size_t bytes_max = std::size_t{1} << 20;
  const std::string path = (scenario_folder() / "flow-level.json").string();
  auto text = scenario::read_file(path, bytes_max);
  if (!text) return text.error();
  return parse_ranges(*text, path);
}

std::string flow_level_note(std::span<const report::Outcome> outcomes) {
  double error = 0;
  for (const report::Outcome& outcome : outcomes) {
    const report::Measured* found = report::find(outcome, "slowdown_error");
    if (found == nullptr) {
      return "Flow level, beyond the range in which it was measured beside packets: nobody knows "
             "its error.\n";
    }
    error = std::max(error, report::exact(found->value));
  }
  return fmt::format(
      "Flow level: in such runs the mean slowdown was within {:.1f} % of that of "
      "packets (docs/fidelity.md).\n",
      error * 100);
}

}  // namespace tulle::cli
