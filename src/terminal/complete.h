#pragma once

// The command `complete` of a program tells shells what may come next on the program's command
// line. The help does not show it.

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace tulle::terminal {

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
// empty. `words` are those after the program's name, as bash splits them: an "=" is a separate
// word. A line that begins with a colon is an order to the shell instead: ":files", ":files toml",
// ":folders", ":nospace" (the word may continue), or ":program 3" (word 3, counted from that name,
// begins another program's command line).
std::vector<std::string> completions(const CLI::App& app, const std::vector<std::string>& words,
                                     const ValueLists& lists);

// Adds the command, which prints these words, one a line. `words` must outlive the app.
void add_complete(CLI::App& app, int& status, const std::vector<std::string>& words,
                  const ValueLists& lists = {});

}  // namespace tulle::terminal
