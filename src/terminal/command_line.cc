#include "terminal/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "base/near_names.h"
#include "base/quoted.h"
#include "terminal/help.h"

namespace tulle::terminal {
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

// Returns the error for what is wrong with the command line, of which these are the words.
Error error_of(const CLI::App& app, const CLI::ParseError& error,
               const std::vector<std::string>& words) {
  const std::string& program = app.get_name();
  const std::string first = words.empty() ? "" : words.front();
  if (!first.empty() && first[0] != '-' && !is_command(app, first)) {
    std::vector<std::string> commands;
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
      if (!each->get_group().empty()) commands.push_back(each->get_name());
    }
    return as_misuse({fmt::format(
        "no command {}{}", tulle::quoted(first),
        did_you_mean(first, commands, fmt::format("`{} --help` lists the commands", program)))});
  }
  const auto used = app.get_subcommands();
  const std::string path = used.empty() ? program : program + " " + used.front()->get_name();
  // A word that is no option may leave a required one out, or be taken for an argument.
  const bool is_of_words = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                           dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const std::string unknown = is_of_words ? unknown_option(*command, words) : "";
  if (!unknown.empty()) {
    return as_misuse(
        {fmt::format("no option {}{}", tulle::quoted(unknown),
                     did_you_mean(unknown, option_names(*command),
                                  fmt::format("`{} --help` lists the options", path)))});
  }
  std::string what = error.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return as_misuse({fmt::format("{} (see `{} --help`)", what, path)});
}

// Returns a word as a shell takes it.
std::string shell_word(const std::string& word) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./:=,+%@").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Returns an option as a person writes it. CLI11 has no name for a hidden one.
std::string name_of(const CLI::Option& option) {
  if (option.get_positional()) return value_name(option);
  return option.get_lnames().empty() ? option.get_name() : "--" + option.get_lnames().front();
}

void refuse_if_given(const CLI::Option& option, std::string_view with) {
  if (option.count() == 0) return;
  throw CLI::ParseError(
      fmt::format("{} has no effect {}: leave one of them out", name_of(option), with),
      CLI::ExitCodes::ExcludesError);
}

// Has all options and arguments of an app and its commands refuse empty values.
void refuse_empty_values(CLI::App& app) {
  const auto check = [](const std::string& value) {
    return value.empty() ? std::string("the value is empty: name one, or leave the option out")
                         : std::string();
  };
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0) option->check(check);
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    refuse_empty_values(*command);
  }
}

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::ptrdiff_t arguments_of(const CLI::App& command) {
  const auto options = command.get_options();
  return std::ranges::count_if(options,
                               [](const CLI::Option* option) { return option->get_positional(); });
}

// Returns the words with "--name=" as two, of which the second is empty: CLI11 takes the word that
// follows for the value. The words of a program that a command starts stay as they are.
std::vector<std::string> with_empty_values(const CLI::App& app,
                                           const std::vector<std::string>& words) {
  std::vector<std::string> all;
  const CLI::App* command = &app;
  bool is_ours = true;
  bool is_value = false;  // of the option before it
  std::ptrdiff_t arguments = 0;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool may_be_option = is_ours && !is_value && word.starts_with('-');
    const CLI::Option* option = may_be_option ? command->get_option_no_throw(name) : nullptr;
    const bool takes_value = option != nullptr && option->get_items_expected_max() > 0;
    if (is_ours && !is_value && !word.starts_with('-')) {
      const CLI::App* inner = command_named(*command, word);
      if (inner != nullptr) command = inner;
      if (inner == nullptr) ++arguments;
      is_ours = !command->get_prefix_command() || arguments <= arguments_of(*command);
    }
    const bool is_empty = takes_value && word.ends_with('=') && equals + 1 == word.size();
    is_value = takes_value && equals == std::string::npos;
    all.push_back(is_empty ? name : word);
    if (is_empty) all.emplace_back();
  }
  return all;
}

}  // namespace

CommandLine::CommandLine(std::vector<std::string> all) : words(std::move(all)) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes != words.end()) after_dashes.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());
}

void prepare(CLI::App& app, const std::string& version) {
  app.set_version_flag("--version", app.get_name() + " " + version);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
}

Result<int> run_command(CLI::App& app, const CommandLine& line, const int& status) {
  std::vector<std::string> reversed = with_empty_values(app, line.words);
  std::ranges::reverse(reversed);  // as CLI11 wants them
  refuse_empty_values(app);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return error_of(app, error, line.words);
  }
  return status;
}

std::string repeated(const CLI::App& command, std::span<const std::string_view> without) {
  std::string text = command.get_parent()->get_name() + " " + command.get_name();
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || std::ranges::find(without, name) != without.end()) continue;
    const bool is_flag = option->get_items_expected_max() == 0;
    for (const std::string& value : option->results()) {
      if (!option->get_positional()) text += " " + name;
      if (!is_flag) text += " " + shell_word(value);
    }
  }
  return text;
}

void refuse_given(const CLI::App& command, std::span<const std::string> names,
                  std::string_view with) {
  for (const std::string& name : names) refuse_if_given(*command.get_option(name), with);
}

void refuse_others(const CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option(name);
  if (option->count() == 0) return;
  for (const CLI::Option* other : command.get_options()) {
    if (other != option) refuse_if_given(*other, "with " + name);
  }
}

void add_older_name(CLI::App& command, const std::string& name, const std::string& newer,
                    std::string& value) {
  command.add_option(name, value)->group("")->excludes(command.get_option(newer));
}

}  // namespace tulle::terminal
