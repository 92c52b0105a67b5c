#include "cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/near_names.h"
#include "base/quoted.h"
#include "cli/command_list.h"
#include "cli/fail.h"
#include "cli/help.h"

namespace tulle::cli {
namespace {

bool is_command(const CLI::App& app, const std::string& name) {
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(all.begin(), all.end(),
                     [&](const CLI::App* command) { return command->get_name() == name; });
}

// Returns the first word that looks like an option and is none of the command's.
std::string unknown_option(const CLI::App& command, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-') continue;
    const bool is_long = word[1] == '-';
    std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (command.get_option_no_throw(name) == nullptr) return name;
  }
  return "";
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (is_hidden(*option)) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Prints what is wrong with the command line, of which these are the words.
int report(const CLI::App& app, const CLI::ParseError& error,
           const std::vector<std::string>& words) {
  const std::string first = words.empty() ? "" : words.front();
  if (!first.empty() && first[0] != '-' && !is_command(app, first)) {
    std::vector<std::string> commands;
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
      if (!each->get_group().empty()) commands.push_back(each->get_name());
    }
    return refuse(fmt::format("no command {}{}", tulle::quoted(first),
                              did_you_mean(first, commands, "`tulle --help` lists the commands")));
  }
  const auto used = app.get_subcommands();
  const std::string path = used.empty() ? "tulle" : "tulle " + used.front()->get_name();
  // A word that is no option may leave a required one out, or be taken for an argument.
  const bool is_of_words = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                           dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const std::string unknown = is_of_words ? unknown_option(*command, words) : "";
  if (!unknown.empty()) {
    return refuse(fmt::format("no option {}{}", tulle::quoted(unknown),
                              did_you_mean(unknown, option_names(*command),
                                           fmt::format("`{} --help` lists the options", path))));
  }
  std::string what = error.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return refuse(fmt::format("{} (see `{} --help`)", what, path));
}

}  // namespace

CommandLine::CommandLine(std::vector<std::string> all) : words(std::move(all)) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes != words.end()) after_dashes.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());
}

void prepare(CLI::App& app) {
  app.set_version_flag("--version", std::string("tulle ") + TULLE_VERSION);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
}

CLI::App* add_simulator_command(CLI::App& app, std::string_view name) {
  const SimulatorCommand* command = simulator_command(name);
  TULLE_CHECK(command != nullptr);
  return app.add_subcommand(std::string(command->name), std::string(command->description));
}

int run_command(CLI::App& app, const CommandLine& line, const int& status) {
  std::vector<std::string> reversed(line.words.rbegin(), line.words.rend());  // as CLI11 wants them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report(app, error, line.words);
  }
  return status;
}

}  // namespace tulle::cli
