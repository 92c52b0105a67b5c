#include "study/choice.h"

#include <fmt/format.h>

#include <utility>

#include "study/scenarios.h"

namespace tulle::study {
namespace {

using scenario::Scenario;
using scenario::Spelling;

// Returns the scenario that two tables and the name of a fabric describe.
Result<Scenario> from_tables(const Choice& choice, const Spelling& spell) {
  if (choice.topology.empty() || choice.flows.empty()) {
    return Error{
        fmt::format("no scenario is named: choose one from `tulle sim --list`, or give both {} and "
                    "{}",
                    spell("topology"), spell("flows"))};
  }
  scenario::TableOptions tables;
  tables.topology = choice.topology;
  tables.flows = choice.flows;
  tables.is_infiniband = choice.fabric == "infiniband";
  tables.has_dcqcn_of_hpcc = choice.congestion_control == "dcqcn-hpcc";
  tables.set = choice.set;
  tables.overrides = choice.overrides;
  if (tables.is_infiniband && tables.has_dcqcn_of_hpcc) {
    return Error{fmt::format("{} dcqcn-hpcc works only on RoCE: choose {} roce",
                             spell("congestion_control"), spell("fabric"))};
  }
  return scenario::tables_scenario(tables, spell);
}

// A capture has the packets of one variant.
Result<void> check_capture(const Choice& choice, const Scenario& scenario, const Spelling& spell) {
  if (choice.capture.empty()) return {};
  if (choice.variant.empty() && scenario.variants().size() > 1) {
    return as_misuse({fmt::format(
        "{} writes one file, but scenario {} has {} variants: choose one with {}", spell("capture"),
        scenario.name(), scenario.variants().size(), spell("variant"))});
  }
  if (choice.level == flow_level) {
    return as_misuse({fmt::format("{} writes packets, and the flow level has none: take {} packet",
                                  spell("capture"), spell("level"))});
  }
  return {};
}

}  // namespace

Result<Chosen> choose(const Choice& choice, bool has_ranks, const Spelling& spell) {
  if (choice.scenarios.size() > 1) {
    return as_misuse({fmt::format(
        "several scenarios are named: name one, or add {} to run them all", spell("gallery"))});
  }
  const std::string name = choice.scenarios.empty() ? "" : choice.scenarios.front();
  auto scenario =
      name.empty() ? from_tables(choice, spell) : read_scenario(name, choice.set, choice.overrides);
  if (!scenario) return as_misuse(scenario.error());
  if (auto checked = check_capture(choice, *scenario, spell); !checked) return checked.error();
  if (auto checked = check_level(choice.level, choice.unvalidated, has_ranks, spell); !checked) {
    return checked.error();
  }
  std::vector<std::size_t> wanted = wanted_variants(*scenario, choice.variant);
  if (wanted.empty()) return as_misuse({no_such_variant(*scenario, choice.variant)});
  return Chosen{std::move(*scenario), std::move(wanted)};
}

Result<void> check_level(const std::string& level, bool unvalidated, bool has_ranks,
                         const Spelling& spell) {
  if (unvalidated && level != flow_level) {
    return as_misuse({fmt::format("{} is for {} flow", spell("unvalidated"), spell("level"))});
  }
  if (level == flow_level && has_ranks) {
    return as_misuse({"the flow level is simulated by one process: start it without mpirun"});
  }
  return {};
}

}  // namespace tulle::study
