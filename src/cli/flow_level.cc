#include "cli/flow_level.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/layout.h"
#include "scenario/scenario.h"

namespace tulle::cli {
Result<std::vector<experiment::ValidatedRange>> validated_ranges() {
  constexpr std::size_t bytes_max = std::size_t{1} << 20;
  const std::string path = (scenario_folder() / "flow-level.json").string();
  auto text = scenario::read_file(path, bytes_max);
  if (!text) return text.error();
  return experiment::parse_ranges(*text, path);
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
