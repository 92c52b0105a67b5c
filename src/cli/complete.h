#pragma once

// `tulle complete` tells shells what may come next on a command line. The help does not show it.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tulle::cli {

// Returns the words that may take the place of the last of `words`, which is being typed and may be
// empty. `words` are those after "tulle", as bash splits them: an "=" is a separate word. A line
// that begins with a colon is an order to the shell instead: ":files", ":files toml", ":folders",
// ":nospace" (the word may go on), or ":program 3" (word 3, counted from "tulle", begins another
// program's command line).
std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words);

// Prints these words, one a line, and returns the exit status.
int complete(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace tulle::cli
