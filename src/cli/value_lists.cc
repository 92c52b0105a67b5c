#include "cli/value_lists.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "cli/layout.h"
#include "study/config/files.h"
#include "study/scenario/fabrics.h"
#include "study/scenario/workloads.h"
#include "study/scenarios.h"
#include "study/workload/collectives.h"
#include "study/workload/experts.h"

namespace tulle::cli {
namespace {

using Words = std::vector<std::string>;

Words fabrics() {
  Words names = {"all"};
  auto fabrics = scenario::read_fabrics((scenario_folder() / "fabrics").string());
  if (!fabrics) return names;
  for (const scenario::Fabric& fabric : *fabrics) names.push_back(fabric.name);
  return names;
}

Words servers() {
  Words names;
  const std::string folder = (scenario_folder() / "profiles/servers").string();
  for (const auto& [name, title] : scenario::titles_in(folder)) names.push_back(name);
  return names;
}

Words knobs() { return config::toml_names((scenario_folder() / "tuning").string()); }
Words price_lists() { return config::toml_names((scenario_folder() / "prices").string()); }

Words rail_topologies() {
  return {scenario::rail_topologies.begin(), scenario::rail_topologies.end()};
}
Words algorithms() { return {workload::algorithm_names.begin(), workload::algorithm_names.end()}; }

Words collectives() {
  Words names;
  for (const workload::NamedCollective& each : workload::named_collectives()) {
    names.emplace_back(each.name);
  }
  return names;
}

Words workloads() {
  Words names;
  for (const scenario::Workload& workload : scenario::workloads())
    names.emplace_back(workload.name);
  for (const std::string& each : collectives()) names.push_back(each);
  for (const std::string_view operation : workload::expert_operation_names) {
    names.push_back(fmt::format("moe:{}", operation));
  }
  return names;
}

}  // namespace

const terminal::ValueLists& value_lists() {
  static const terminal::ValueLists all = {
      {"KIND|CSV", {rail_topologies, false, ":files csv"}},
      {"SCENARIO", {study::shipped_scenarios, false, ":files toml"}},
      {"NAME|FILE", {workloads, false, ":files"}},
      {"KNOBS|FILE", {knobs, false, ":files toml"}},
      {"PRICES|FILE", {price_lists, false, ":files toml"}},
      {"NAME:SIZE", {collectives}},
      {"SERVER|FILE", {servers, false, ":files"}},
      {"ALGORITHM", {algorithms}},
      {"NAMES", {fabrics, true}},
  };
  return all;
}

}  // namespace tulle::cli
