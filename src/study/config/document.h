#pragma once

// TOML as it was parsed, and values as TOML has them.

#include <toml++/toml.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace tulle::config {

// The error is one line, "FILE:LINE: fault".
Result<toml::table> parse_toml(std::string_view text, const std::string& file);
// Returns a value as TOML has it.
std::string toml_of(const toml::node& node);

}  // namespace tulle::config
