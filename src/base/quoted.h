#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace tulle {

// Returns a text for a one-line message, in which a question mark stands for each character that
// would break the line.
inline std::string one_line(std::string text) {
  const auto breaks = [](char c) { return (c >= 0 && c < ' ') || c == 0x7F; };
  std::replace_if(text.begin(), text.end(), breaks, '?');
  return text;
}

// Returns the beginning of a text for such a message, in quotes.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t bytes_max = 60;
  return one_line("\"" + std::string(text.substr(0, bytes_max)) + "\"");
}

}  // namespace tulle
