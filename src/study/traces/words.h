#pragma once

// Reads a text line by line, and each line as words with blanks between them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "study/workload/csv.h"

namespace tulle::traces {

inline std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view blanks = " \t\r\v\f";
  std::vector<std::string_view> words;
  for (std::size_t begin = line.find_first_not_of(blanks); begin != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(blanks, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(blanks, end);
  }
  return words;
}

class LineReader {
 public:
  explicit LineReader(std::string_view text) : text_(text) {}

  // Goes to the next line that has words and does not begin with #. Returns false at the end.
  bool next() {
    while (!text_.empty()) {
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      words_ = words_of(text_.substr(0, end));
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++line_;
      if (!words_.empty() && !words_[0].starts_with('#')) return true;
    }
    words_.clear();
    return false;
  }
  // They stay valid as long as the text.
  const std::vector<std::string_view>& words() const { return words_; }
  std::uint64_t line() const { return line_ == 0 ? 1 : line_; }

 private:
  std::string_view text_;
  std::uint64_t line_ = 0;
  std::vector<std::string_view> words_;
};

}  // namespace tulle::traces
