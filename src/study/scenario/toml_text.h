#pragma once

// Text as TOML has it.

#include <string>
#include <string_view>

namespace tulle::scenario {

// Returns a text as a TOML string. What is not UTF-8 becomes U+FFFD, so that a file of such a name
// is not found: callers check names with is_utf8().
std::string toml_text(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace tulle::scenario
