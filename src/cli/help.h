#pragma once

// The help texts, in the form that GNU's programs have: help2man makes the manual pages of them.

#include <CLI/CLI.hpp>
#include <string>

namespace tulle::cli {

class HelpFormatter : public CLI::FormatterBase {
 public:
  // `name` is the whole command, such as "tulle run".
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// What stands for an option's value: "FILE", or "in|out|both". Empty if it takes none.
std::string value_name(const CLI::Option& option);

// A text as lines of `width` columns at most, but for words that are longer. All lines but the
// first are indented; `column` is where the first begins.
std::string wrapped(const std::string& text, std::size_t column, std::size_t indent,
                    std::size_t width);

}  // namespace tulle::cli
