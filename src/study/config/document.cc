#include "study/config/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <sstream>

#include "base/quoted.h"

namespace tulle::config {
namespace {

// More parts of a key, and more values within one another, than any file needs. Tables are visited
// and destroyed by recursion, which must fit into the stack.
constexpr std::size_t depth_max = 32;

// Returns where the string that begins at `begin` ends, behind its last quotation mark. A string of
// one line that has no end ends with its line.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char mark = text[begin];
  const std::string three(3, mark);
  const bool is_long = text.substr(begin, 3) == three;
  std::size_t i = begin + (is_long ? 3 : 1);
  for (; i < text.size(); ++i) {
    if (mark == '"' && text[i] == '\\') {
      ++i;
    } else if (is_long && text.substr(i, 3) == three) {
      // One or two quotation marks may come before the last three.
      const std::string_view last = text.substr(i, 5);
      return i + std::min(last.find_first_not_of(mark), last.size());
    } else if (!is_long && text[i] == mark) {
      return i + 1;
    } else if (!is_long && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

// Returns the number of the first line whose keys have too many parts or whose values are nested
// too deep, or 0. The text may be no TOML.
std::size_t line_too_deep(std::string_view text) {
  std::size_t line = 1, parts = 1, open = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const std::size_t end = end_of_string(text, i);
      line += static_cast<std::size_t>(std::count(text.begin() + i, text.begin() + end, '\n'));
      i = end;
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    if (c == '.') ++parts;
    if (c != '.' && std::string_view("[]{},=\n").find(c) != std::string_view::npos) parts = 1;
    if (parts > depth_max || open > depth_max) return line;
    if (c == '\n') ++line;
    ++i;
  }
  return 0;
}

}  // namespace

std::string toml_of(const toml::node& node) {
  // The formatter writes 0.1 with 17 digits.
  if (const auto number = node.value_exact<double>()) {
    const std::string digits = fmt::format("{}", *number);
    return digits.find_first_not_of("-0123456789") == std::string::npos ? digits + ".0" : digits;
  }
  std::ostringstream text;
  text << toml::toml_formatter(node);
  return std::move(text).str();
}

Result<toml::table> parse_toml(std::string_view text, const std::string& file) {
  if (const std::size_t line = line_too_deep(text); line > 0) {
    return Error{
        one_line(fmt::format("{}:{}: keys or values are nested more than {} "
                             "deep",
                             file, line, depth_max))};
  }
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& error) {
    return Error{
        one_line(fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()))};
  }
}

}  // namespace tulle::config
