#pragma once

// What the command lines of both programs have in common.

#include <fmt/format.h>

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

// Checks that an option's value is a number from `least` to `most`. CLI11's own check says so in
// other words in each of its versions.
template <typename Number>
CLI::Validator from_to(Number least, Number most) {
  const auto check = [least, most](std::string& word) {
    Number value{};
    const bool fits = CLI::detail::lexical_cast(word, value) && value >= least && value <= most;
    return fits ? std::string() : fmt::format("{} is no number from {} to {}", word, least, most);
  };
  return CLI::Validator(check, "");
}

// Adds a command of the simulator, with the description that cli/command_list.h has.
CLI::App* add_simulator_command(CLI::App& app, std::string_view name);

// Runs the command that the words name, and returns `status`, which it has set. If a word is wrong,
// prints one line instead, and returns the exit status for it.
int run_command(CLI::App& app, const CommandLine& line, const int& status);

// With `--secure "$KEYS"`, a variable that is not set must not mean that datagrams are plain.
inline CLI::Validator with_a_name() {
  const auto check = [](std::string& file) {
    return file.empty() ? std::string("the file has no name") : std::string();
  };
  return CLI::Validator(check, "");
}

}  // namespace tulle::cli
