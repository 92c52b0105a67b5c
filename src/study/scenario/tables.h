#pragma once

// Scenarios that commands write for tables: a topology and flows from files.

#include <string>
#include <string_view>

#include "base/result.h"

namespace tulle::scenario {

// Returns a text as a TOML string. What is not UTF-8 becomes U+FFFD, so that a file of such a name
// is not found: callers check names with is_utf8().
std::string toml_text(std::string_view text);
bool is_utf8(std::string_view text);

// A file, and the command's option that names it.
struct TableFile {
  const char* option;
  std::string path;
};

// Returns a scenario's text with these tables, to which keys of [traffic] and other tables may be
// appended. TOML is UTF-8, and so must be the paths. The error is one line that names the option.
Result<std::string> scenario_of_tables(const TableFile& topology, const TableFile& flows);

}  // namespace tulle::scenario
