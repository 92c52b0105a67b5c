#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tulle {

// Returns how many bytes of a text the UTF-8 character at its beginning has (RFC 3629 section 4),
// or 0 if there is none.
inline std::size_t character_bytes(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](std::size_t i, unsigned from = 0x80, unsigned to = 0xBF) {
    return at(i) >= from && at(i) <= to;
  };
  const unsigned first = at(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool is_one = continues(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    return is_one && continues(2) ? 3 : 0;
  }
  if (first < 0xF0 || first > 0xF4) return 0;
  const bool is_one = continues(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
  return is_one && continues(2) && continues(3) ? 4 : 0;
}

// Returns a text for a one-line message, with a question mark in place of each character that would
// break the line, control a terminal or change the direction of what follows: the control
// characters of ASCII and Unicode, the separators of lines and paragraphs (U+2028, U+2029), and the
// embeddings, overrides and isolates of bidirectional text (U+202A to U+202E, U+2066 to U+2069).
// Terminals may take bytes that are no UTF-8 for control characters, so each of them becomes one,
// too.
inline std::string one_line(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  std::string line;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = character_bytes(text.substr(i));
    const bool is_c0 = at(i) < 0x20 || at(i) == 0x7F;
    const bool is_c1 = at(i) == 0xC2 && at(i + 1) <= 0x9F;
    const bool is_separator_or_turn =
        at(i) == 0xE2 && ((at(i + 1) == 0x80 && at(i + 2) >= 0xA8 && at(i + 2) <= 0xAE) ||
                          (at(i + 1) == 0x81 && at(i + 2) >= 0xA6 && at(i + 2) <= 0xA9));
    if (bytes == 0 || is_c0 || is_c1 || is_separator_or_turn) {
      line += '?';
    } else {
      line += text.substr(i, bytes);
    }
    i += bytes == 0 ? 1 : bytes;
  }
  return line;
}

// Returns the beginning of a text for such a message, in quotes.
inline std::string quoted(std::string_view text) {
  constexpr std::size_t bytes_max = 60;
  return one_line("\"" + std::string(text.substr(0, bytes_max)) + "\"");
}

}  // namespace tulle
