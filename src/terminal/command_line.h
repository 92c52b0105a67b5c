#pragma once

// Command lines with commands, such as `program command --option=value`, by CLI11. A mistake in one
// becomes an error of one line, which suggests what may have been meant.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::terminal {

// The words of a command line. Those after the first "--" are another program's command line, and
// no options of ours.
struct CommandLine {
  std::vector<std::string> words;
  std::vector<std::string> after_dashes;

  explicit CommandLine(std::vector<std::string> all);
  std::string first() const { return words.empty() ? "" : words.front(); }
};

// Gives the app its help, and "NAME VERSION" for --version. A command must follow.
void prepare(CLI::App& app, const std::string& version);

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

// Runs the command that the words name, and returns `status`, which the command has set. If a word
// is wrong, the error says so, and is a misuse. No option or argument has an empty value: with
// `--secure "$KEYS"`, a variable that is not set must not mean that the option was not given.
Result<int> run_command(CLI::App& app, const CommandLine& line, const int& status);

// Returns the command line that a command of an app was given, as a shell takes it. Options by
// these names, such as "--jobs", are left out.
std::string repeated(const CLI::App& command, std::span<const std::string_view> without);

// Keeps a name that the option `newer` had before. Only one of the two may be given, and no help
// shows the older one.
void add_older_name(CLI::App& command, const std::string& name, const std::string& newer,
                    std::string& value);

// Refuses, as a mistake in the command line, the first of these options and arguments that is
// given: it has no effect `with` something, such as "with --list". A command's callback calls this.
void refuse_given(const CLI::App& command, std::span<const std::string> names,
                  std::string_view with);
// Refuses all others if this one is given.
void refuse_others(const CLI::App& command, const std::string& name);

}  // namespace tulle::terminal
