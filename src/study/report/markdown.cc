#include "study/report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/quoted.h"

namespace tulle::report {
namespace {

bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_word(std::string_view text, std::size_t at) {
  return at < text.size() && is_alphanumeric(text[at]);
}

// Returns true if an ampersand may begin a character reference, such as &lt; or &#60;.
bool begins_reference(std::string_view text) {
  return text.size() > 1 && (is_alphanumeric(text[1]) || text[1] == '#');
}

// Returns where the mark is by which a line would begin a list, a heading or a rule, or make a
// heading of the line before it: "- ", "+ ", "# ", "12. ", "1) ", "---", "===". npos: it would not.
// Within a paragraph, "2008) " would not, and it is in texts of scenarios.
std::size_t block_mark(std::string_view line, bool is_within) {
  constexpr std::size_t none = std::string_view::npos;
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == none) return none;
  const std::string_view text = line.substr(begin);
  const auto ends_word = [&](std::size_t at) { return at == text.size() || text[at] == ' '; };
  if (text[0] == '#') return begin;
  if ((text[0] == '-' || text[0] == '+') && ends_word(1)) return begin;
  if ((text[0] == '-' || text[0] == '=') && text.find_first_not_of("-= ") == none) return begin;
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const bool is_number = digits > 0 && digits < text.size() && ends_word(digits + 1);
  if (!is_number || (text[digits] != '.' && text[digits] != ')')) return none;
  const std::size_t zeros = std::min(text.find_first_not_of('0'), digits);
  const bool is_one = text.substr(zeros, digits - zeros) == "1";
  return is_within && text[digits] == ')' && !is_one ? none : begin + digits;
}

std::string markdown_line(std::string_view line, bool is_within) {
  const std::size_t mark = block_mark(line, is_within);
  if (mark == std::string_view::npos) return markdown_text(line);
  return fmt::format("{}\\{}{}", line.substr(0, mark), line[mark],
                     markdown_text(line.substr(mark + 1)));
}

}  // namespace

std::string markdown_text(std::string_view text) {
  constexpr std::string_view special = "\\*`<>|~[]";
  const std::string line = one_line(text);
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    // GitHub treats an underscore within a word as a letter.
    const bool is_bare = line[i] == '_' && !(i > 0 && is_word(line, i - 1) && is_word(line, i + 1));
    const bool is_reference = line[i] == '&' && begins_reference(std::string_view(line).substr(i));
    if (is_bare || is_reference || special.find(line[i]) != std::string_view::npos) out += '\\';
    out += line[i];
  }
  return out;
}

// The fence is longer than the longest row of backticks in the text.
std::string markdown_code(std::string_view text) {
  std::size_t longest = 0;
  std::size_t row = 0;
  for (const char c : text) {
    row = c == '`' ? row + 1 : 0;
    longest = std::max(longest, row);
  }
  const std::string fence(longest + 1, '`');
  const char* blank = text.starts_with('`') || text.ends_with('`') ? " " : "";
  return fmt::format("{}{}{}{}{}", fence, blank, one_line(text), blank, fence);
}

// An indented line is code only where it continues no paragraph.
std::string as_markdown(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  bool is_within = false;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    for (std::size_t tab = 0; (tab = line.find('\t', tab)) != std::string::npos;) {
      line.replace(tab, 1, "    ");
    }
    const bool is_blank = line.find_first_not_of(' ') == std::string::npos;
    const bool is_code = !is_blank && !is_within && line.starts_with("    ");
    out += (is_code ? one_line(line) : markdown_line(line, is_within)) + "\n";
    is_within = !is_blank && !is_code;
  }
  return out;
}

std::string markdown_address(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool is_plain = is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string markdown_attribute(std::string_view text) {
  constexpr std::string_view special = "<>&\"|";
  std::string out;
  for (const char c : one_line(text)) {
    const bool is_plain = special.find(c) == std::string_view::npos;
    out += is_plain ? std::string(1, c) : fmt::format("&#{};", static_cast<int>(c));
  }
  return out;
}

}  // namespace tulle::report
