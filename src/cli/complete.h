#pragma once

// `tulle complete` tells shells what may come next on a command line. The help does not show it.
// Each program knows its own commands.

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace tulle::cli {

// The values that a kind of option may have.
struct ValueList {
  std::vector<std::string> (*names)() = nullptr;
  bool is_list = false;         // several may be given, as in "one,other"
  const char* order = nullptr;  // an order to the shell, as below, besides the names
};
// The lists by the name that the help gives to a value, such as "SCENARIO". Files, folders and
// interfaces need none.
using ValueLists = std::map<std::string, ValueList>;

// Returns the words that may take the place of the last of `words`, which is being typed and may be
// empty. `words` are those after "tulle", as bash splits them: an "=" is a separate word. A line
// that begins with a colon is an order to the shell instead: ":files", ":files toml", ":folders",
// ":nospace" (the word may continue), or ":program 3" (word 3, counted from "tulle", begins another
// program's command line).
std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words,
                                     const ValueLists& lists);

// Prints these words, one a line, and returns the exit status.
int complete(const CLI::App& app, const std::vector<std::string>& words,
             const ValueLists& lists = {});

}  // namespace tulle::cli
