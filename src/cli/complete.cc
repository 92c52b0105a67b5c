#include "cli/complete.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <map>

#include "base/split.h"
#include "cli/help.h"
#include "cli/layout.h"
#include "cli/simulate.h"
#include "config/files.h"
#include "scenario/fabrics.h"
#include "workload/collectives.h"
#include "workload/experts.h"

namespace tulle::cli {
namespace {

using Words = std::vector<std::string>;

Words interfaces() {
  Words names;
  struct if_nameindex* all = if_nameindex();
  for (auto* each = all; each != nullptr && each->if_index != 0; ++each) {
    names.emplace_back(each->if_name);
  }
  if (all != nullptr) if_freenameindex(all);
  return names;
}

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
  for (const scenario::NamedCollective& each : scenario::collectives()) {
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

Words words_between(std::string_view text, char separator) {
  const auto parts = split(text, separator);
  return {parts.begin(), parts.end()};
}

struct Values {
  Words (*names)() = nullptr;
  bool is_list = false;  // several may be given, as in "one,other"
  const char* order = nullptr;
};

// Looks a kind of value up by the name that the help gives it.
const Values* known_values(const std::string& name) {
  static const std::map<std::string, Values> all = {
      {"FILE", {nullptr, false, ":files"}},
      {"CSV", {nullptr, false, ":files csv"}},
      {"KIND|CSV", {rail_topologies, false, ":files csv"}},
      {"DIR", {nullptr, false, ":folders"}},
      {"IF", {interfaces, true}},
      {"SCENARIO", {shipped_scenarios, false, ":files toml"}},
      {"NAME|FILE", {workloads, false, ":files"}},
      {"KNOBS|FILE", {knobs, false, ":files toml"}},
      {"PRICES|FILE", {price_lists, false, ":files toml"}},
      {"NAME:SIZE", {collectives}},
      {"SERVER|FILE", {servers, false, ":files"}},
      {"ALGORITHM", {algorithms}},
      {"NAMES", {fabrics, true}},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

Words starting_with(const std::string& start, const Words& words) {
  Words found;
  std::copy_if(words.begin(), words.end(), std::back_inserter(found),
               [&](const std::string& word) { return word.starts_with(start); });
  return found;
}

Words value_completions(const CLI::Option& option, const std::string& typed) {
  const std::string name = value_name(option);
  const Values* values = known_values(name);
  if (values == nullptr) {
    // "roce|infiniband" names the values themselves; "NAME" does not.
    const bool are_values = name.find('|') != std::string::npos;
    return are_values ? starting_with(typed, words_between(name, '|')) : Words();
  }
  Words found;
  if (values->names != nullptr) {
    const std::size_t comma = values->is_list ? typed.rfind(',') : std::string::npos;
    const std::string before = comma == std::string::npos ? "" : typed.substr(0, comma + 1);
    found = starting_with(typed.substr(before.size()), values->names());
    for (std::string& each : found) each.insert(0, before);
    if (values->is_list && !found.empty()) found.emplace_back(":nospace");
  }
  if (values->order != nullptr) found.emplace_back(values->order);
  return found;
}

const CLI::Option* find_option(const CLI::App& command, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return nullptr;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional() && option->check_name(word)) return option;
  }
  return nullptr;
}

bool excludes(const CLI::Option& one, const CLI::Option& other) {
  const auto& excluded = one.get_excludes();
  return std::any_of(excluded.begin(), excluded.end(),
                     [&](const CLI::Option* each) { return each == &other; });
}

Words option_names(const CLI::App& command, const std::vector<const CLI::Option*>& given,
                   const std::string& typed) {
  Words names;
  for (const CLI::Option* option : command.get_options()) {
    const bool repeats = option->get_expected_max() > 1;
    const bool is_out = std::any_of(given.begin(), given.end(), [&](const CLI::Option* each) {
      return (each == option && !repeats) || excludes(*each, *option) || excludes(*option, *each);
    });
    if (is_out || option->get_positional()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return starting_with(typed, names);
}

// The command's words are those from `at` on. The last one is being typed.
Words command_completions(const CLI::App& command, const Words& words, std::size_t at) {
  std::vector<const CLI::Option*> given;
  const CLI::Option* pending = nullptr;  // an option whose value comes next
  const std::size_t last = words.size() - 1;
  for (; at < last; ++at) {
    if (pending != nullptr) {
      if (words[at] != "=") pending = nullptr;
      continue;
    }
    const bool is_dashes = words[at] == "--";
    if (command.get_prefix_command() && (is_dashes || !words[at].starts_with('-'))) {
      return {fmt::format(":program {}", at + (is_dashes ? 2 : 1))};
    }
    const CLI::Option* option = find_option(command, words[at]);
    if (option == nullptr) continue;
    given.push_back(option);
    if (!value_name(*option).empty()) pending = option;
  }
  const std::string& typed = words[last];
  if (pending != nullptr) return value_completions(*pending, typed == "=" ? "" : typed);
  if (typed.starts_with('-')) return option_names(command, given, typed);
  if (command.get_prefix_command()) return {fmt::format(":program {}", last + 1)};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) return value_completions(*option, typed);
  }
  return {};
}

}  // namespace

std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  if (words.size() == 1 && words[0].starts_with('-')) return option_names(app, {}, words[0]);
  Words names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (words.size() > 1 && command->get_name() == words[0]) {
      return command_completions(*command, words, 1);
    }
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return words.size() == 1 ? starting_with(words[0], names) : Words();
}

int complete(const CLI::App& app, const std::vector<std::string>& words) {
  for (const std::string& line : completions(app, words)) fmt::print("{}\n", line);
  return 0;
}

}  // namespace tulle::cli
