#pragma once

// The help texts have the form of GNU programs' help texts, which help2man reads.

#include <CLI/CLI.hpp>
#include <string>

namespace tulle::terminal {

class HelpFormatter : public CLI::FormatterBase {
 public:
  // `name` is the whole command, such as "tulle run".
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// Returns the placeholder of an option's value, such as "FILE" or "in|out|both", or an empty
// text if the option takes no value.
std::string value_name(const CLI::Option& option);

// True if help and completion leave an option out: an older name of another one.
inline bool is_hidden(const CLI::Option& option) { return option.get_group().empty(); }

// Breaks a text into lines of at most `width` columns; a longer word keeps a line to itself. The
// first line begins at `column`, the others at `indent`.
std::string wrapped(const std::string& text, std::size_t column, std::size_t indent,
                    std::size_t width);

}  // namespace tulle::terminal
