#include "study/ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "study/digest.h"

namespace tulle::study {

Result<void> agree(sim::Processes* ranks, const Result<void>& own) {
  return ranks == nullptr ? own : sim::agree(*ranks, own);
}

std::optional<std::size_t> other_than_first(const std::vector<std::string>& said) {
  const auto found =
      std::ranges::find_if(said, [&](const std::string& text) { return text != said.front(); });
  if (found == said.end()) return {};
  return static_cast<std::size_t>(found - said.begin());
}

Result<void> check_alike(sim::Processes* ranks, const std::string& what, const std::string& text) {
  if (ranks == nullptr) return {};
  const auto other = other_than_first(sim::ask_all(*ranks, digest_of(text)));
  if (!other) return {};
  return Error{fmt::format(
      "rank {} has another {} than rank 0: all ranks need the same files, and the same version of "
      "the C library",
      *other, what)};
}

Result<void> check_alike(sim::Processes* ranks, const scenario::Scenario& scenario,
                         std::span<const std::size_t> variants) {
  if (ranks == nullptr) return {};
  std::string settings;
  for (const std::size_t variant : variants) settings += scenario.settings(variant) + "\n";
  return check_alike(ranks, "scenario", settings);
}

}  // namespace tulle::study
