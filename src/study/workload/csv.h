#pragma once

// Reads tables of numbers as text, line by line. Describes an error in one line that names its
// place.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quoted.h"
#include "base/result.h"

namespace tulle::workload {

inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Parses all of the text as a number, or returns nothing.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

inline std::optional<double> parse_real(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  // Goes to the next line that is not empty. Returns false at the end. A comment runs from # to the
  // end of its line.
  bool next() {
    while (!text_.empty()) {
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      const std::string_view line = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++line_;
      if (split(trimmed(line.substr(0, line.find('#'))))) return true;
    }
    return false;
  }
  // Returns the fields of the current line without blanks around them. They stay valid until the
  // next call of next().
  const std::vector<std::string_view>& fields() const { return fields_; }

  Error error(const std::string& what) const {
    return {file_ + ":" + std::to_string(line_ == 0 ? 1 : line_) + ": " + what};
  }

 private:
  bool split(std::string_view line) {
    fields_.clear();
    if (line.empty()) return false;
    for (;;) {
      const std::size_t comma = line.find(',');
      fields_.push_back(trimmed(line.substr(0, comma)));
      if (comma == std::string_view::npos) return true;
      line.remove_prefix(comma + 1);
    }
  }

  std::string_view text_;
  std::string file_;
  std::size_t line_ = 0;
  std::vector<std::string_view> fields_;
};

}  // namespace tulle::workload
