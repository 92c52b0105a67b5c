#include "terminal/complete.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>

#include "base/split.h"
#include "terminal/help.h"

namespace tulle::terminal {
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

Words words_between(std::string_view text, char separator) {
  const auto parts = split(text, separator);
  return {parts.begin(), parts.end()};
}

const ValueLists& general_lists() {
  static const ValueLists all = {
      {"FILE", {nullptr, false, ":files"}},
      {"CSV", {nullptr, false, ":files csv"}},
      {"DIR", {nullptr, false, ":folders"}},
      {"IF", {interfaces, true}},
  };
  return all;
}

// Looks a kind of value up by the name that the help gives it.
const ValueList* find_list(const ValueLists& lists, const std::string& name) {
  for (const ValueLists* each : {&lists, &general_lists()}) {
    const auto found = each->find(name);
    if (found != each->end()) return &found->second;
  }
  return nullptr;
}

Words starting_with(const std::string& start, const Words& words) {
  Words found;
  std::copy_if(words.begin(), words.end(), std::back_inserter(found),
               [&](const std::string& word) { return word.starts_with(start); });
  return found;
}

Words value_completions(const CLI::Option& option, const std::string& typed,
                        const ValueLists& lists) {
  const std::string name = value_name(option);
  const ValueList* values = find_list(lists, name);
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
    if (is_out || option->get_positional() || is_hidden(*option)) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return starting_with(typed, names);
}

// The command's words are those from `at` on. The last one is being typed.
Words command_completions(const CLI::App& command, const Words& words, std::size_t at,
                          const ValueLists& lists) {
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
  if (pending != nullptr) return value_completions(*pending, typed == "=" ? "" : typed, lists);
  if (typed.starts_with('-')) return option_names(command, given, typed);
  if (command.get_prefix_command()) return {fmt::format(":program {}", last + 1)};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) return value_completions(*option, typed, lists);
  }
  return {};
}

}  // namespace

std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words,
                                     const ValueLists& lists) {
  if (words.empty()) return {};
  if (words.size() == 1 && words[0].starts_with('-')) return option_names(app, {}, words[0]);
  Words names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (words.size() > 1 && command->get_name() == words[0]) {
      return command_completions(*command, words, 1, lists);
    }
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return words.size() == 1 ? starting_with(words[0], names) : Words();
}

void add_complete(CLI::App& app, int& status, const std::vector<std::string>& words,
                  const ValueLists& lists) {
  auto* command = app.add_subcommand("complete", "Print what may come next on a command line");
  command->group("");
  command->callback([&app, &status, &words, lists] {
    for (const std::string& line : completions(app, words, lists)) fmt::print("{}\n", line);
    status = 0;
  });
}

}  // namespace tulle::terminal
