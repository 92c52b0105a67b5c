#include "study/scenarios.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>

#include "base/near_names.h"
#include "base/quoted.h"
#include "study/config/files.h"

namespace tulle::study {

namespace fs = std::filesystem;
using scenario::Scenario;

std::vector<std::string> shipped_scenarios() {
  return config::toml_names(config::shipped_folder());
}

Result<std::string> shipped_scenarios_text() {
  std::string text;
  for (const std::string& name : shipped_scenarios()) {
    auto scenario = read_scenario(name, {});
    if (!scenario) return scenario.error();
    text += fmt::format("{:<28} {}\n", scenario->name(), scenario->title());
  }
  return text;
}

Result<std::string> find_scenario(const std::string& name) {
  // A folder of that name, such as the last run's results, does not hide a scenario.
  std::error_code error;
  if (fs::exists(name, error) && !fs::is_directory(name, error)) return name;
  for (const char* suffix : {".toml", ""}) {
    const fs::path known = fs::path(config::shipped_folder()) / (name + suffix);
    if (fs::is_regular_file(known, error)) return known.string();
  }
  if (name.ends_with(".toml") || name.find('/') != std::string::npos) {
    if (fs::is_directory(name, error)) return name;  // reading it says what it is
    auto found = config::find_file("", name);
    if (!found) return as_misuse(found.error());
    return found;
  }
  const std::string more = fmt::format("`tulle sim --list` shows the {} that come with Tulle",
                                       shipped_scenarios().size());
  return as_misuse({fmt::format("no scenario {}{}", tulle::quoted(name),
                                did_you_mean(name, shipped_scenarios(), more))});
}

Result<Scenario> read_scenario(const std::string& name, const std::vector<std::string>& set,
                               const scenario::Overrides& overrides) {
  auto path = find_scenario(name);
  if (!path) return path.error();
  auto scenario = Scenario::read(*path, set, overrides);
  if (!scenario) return as_misuse(scenario.error());
  return scenario;
}

std::vector<std::size_t> wanted_variants(const Scenario& scenario, const std::string& variant) {
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < scenario.variants().size(); ++i) {
    if (variant.empty() || scenario.variants()[i].name == variant) {
      wanted.push_back(i);
    }
  }
  return wanted;
}

std::string no_such_variant(const Scenario& scenario, const std::string& variant) {
  std::vector<std::string> names;
  for (const scenario::Variant& each : scenario.variants()) {
    if (!each.name.empty()) names.push_back(each.name);
  }
  if (names.empty())
    return fmt::format("scenario {} has no variants: leave --variant out", scenario.name());
  const std::string all = fmt::format("the variants are {}", fmt::join(names, ", "));
  return fmt::format("scenario {} has no variant {}{}", scenario.name(), tulle::quoted(variant),
                     did_you_mean(variant, names, all));
}

}  // namespace tulle::study
