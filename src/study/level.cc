#include "study/level.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "study/config/files.h"

namespace tulle::study {

Result<std::vector<experiment::ValidatedRange>> validated_ranges() {
  constexpr std::size_t bytes_max = std::size_t{1} << 20;
  const std::string path = config::shipped_folder() + "/flow-level.json";
  auto text = config::read_file(path, bytes_max);
  if (!text) return text.error();
  return experiment::parse_ranges(*text, path);
}

std::string flow_level_note(std::span<const report::Outcome> outcomes) {
  std::string text;
  for (const auto& [figure, what] : {std::pair("slowdown_error", "the mean slowdown"),
                                     std::pair("time_error", "a job's time")}) {
    double error = -1;
    for (const report::Outcome& outcome : outcomes) {
      const report::Measured* found = report::find(outcome, figure);
      if (found != nullptr) error = std::max(error, report::exact(found->value));
    }
    if (error < 0) continue;
    text += fmt::format(
        "Flow level: in such runs {} was within {:.1f} % of that of packets (docs/fidelity.md).\n",
        what, error * 100);
  }
  const bool all_are_known = std::ranges::all_of(outcomes, [](const report::Outcome& outcome) {
    return report::find(outcome, "slowdown_error") != nullptr ||
           report::find(outcome, "time_error") != nullptr;
  });
  if (all_are_known) return text;
  return "Flow level, beyond the range in which it was compared with packets: its error is "
         "unknown.\n";
}

}  // namespace tulle::study
