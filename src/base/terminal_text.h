#pragma once

// Texts that Tulle prints contain names and titles of files that others wrote.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/quoted.h"

namespace tulle {

// Tulle's own marks: what is between them is bold.
inline constexpr std::string_view bold_begin = "\033[1m";
inline constexpr std::string_view bold_end = "\033[0m";

// Returns a text of lines that prints without controlling a terminal, as one_line() does for one.
// Tulle's own marks remain.
inline std::string terminal_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = std::max<std::size_t>(character_bytes(text), 1);
    const bool is_mark = text.starts_with(bold_begin) || text.starts_with(bold_end);
    const std::string_view next = text.substr(0, is_mark ? bold_begin.size() : bytes);
    if (is_mark || next == "\n") {
      out += next;
    } else {
      out += one_line(next);
    }
    text.remove_prefix(next.size());
  }
  return out;
}

// Does the same for JSON, where each such character becomes an escape sequence: programs read the
// same names from it.
inline std::string terminal_json(std::string_view json) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const std::size_t bytes = std::max<std::size_t>(character_bytes(json), 1);
    const std::string_view next = json.substr(0, bytes);
    if (next == "\n" || one_line(next) == next) {
      out += next;
    } else {
      // Such characters have one, two or three bytes.
      unsigned code = static_cast<unsigned char>(next[0]);
      if (bytes > 1) code &= bytes == 2 ? 0x1F : 0x0F;
      for (const char c : next.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
      out += "\\u";
      for (const int shift : {12, 8, 4, 0}) out += digits[code >> shift & 0xF];
    }
    json.remove_prefix(bytes);
  }
  return out;
}

}  // namespace tulle
