#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tulle {

// Returns a text for a one-line message, with a question mark in place of each character that would
// break the line, control a terminal or change the direction of what follows: the control
// characters of ASCII and Unicode, the separators of lines and paragraphs (U+2028, U+2029), and the
// embeddings, overrides and isolates of bidirectional text (U+202A to U+202E, U+2066 to U+2069).
// The input is UTF-8, or bytes that are not.
inline std::string one_line(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_c0 = at(i) < 0x20 || at(i) == 0x7F;
    const bool is_c1 = at(i) == 0xC2 && at(i + 1) >= 0x80 && at(i + 1) <= 0x9F;
    const bool is_separator_or_turn =
        at(i) == 0xE2 && ((at(i + 1) == 0x80 && at(i + 2) >= 0xA8 && at(i + 2) <= 0xAE) ||
                          (at(i + 1) == 0x81 && at(i + 2) >= 0xA6 && at(i + 2) <= 0xA9));
    line += is_c0 || is_c1 || is_separator_or_turn ? '?' : text[i];
    i += is_c1 ? 1 : is_separator_or_turn ? 2 : 0;
  }
  return line;
}

// Returns the beginning of a text for such a message, in quotes.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t bytes_max = 60;
  return one_line("\"" + std::string(text.substr(0, bytes_max)) + "\"");
}

}  // namespace tulle
