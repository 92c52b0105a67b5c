#pragma once

// `tulle complete`, which is not in the help: what may come next on a command line, for shells.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tulle::cli {

// `words` are those behind "tulle", as bash splits them (an "=" is a word of its own); the last one
// is being typed, and may be empty. Each line of the result is a word that may stand there, or an
// order to the shell: ":files", ":files toml", ":folders", ":nospace" (the word may go on), or
// ":program 3" (word 3, counted from "tulle", begins another program's command line).
std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words);

int complete(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace tulle::cli
