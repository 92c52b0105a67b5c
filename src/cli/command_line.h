#pragma once

// What the command lines of both programs have in common.

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tulle::cli {

// The words of a command line. Those after the first "--" are another program's command line, and
// no options of ours.
struct CommandLine {
  std::vector<std::string> words;
  std::vector<std::string> after_dashes;

  explicit CommandLine(std::vector<std::string> all);
  std::string first() const { return words.empty() ? "" : words.front(); }
};

// Gives the app its help and its version. A command must follow.
void prepare(CLI::App& app);

// Adds a command of the simulator, with the description that cli/command_list.h has.
CLI::App* add_simulator_command(CLI::App& app, std::string_view name);

// Runs the command that the words name, and returns `status`, which it has set. If a word is wrong,
// prints one line instead, and returns the exit status for it.
int run_command(CLI::App& app, const CommandLine& line, const int& status);

}  // namespace tulle::cli
