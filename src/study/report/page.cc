#include "study/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "study/report/columns.h"

namespace tulle::report {
namespace {

bool is_word(std::string_view text, std::size_t at) {
  return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
}

// True if the line would begin a list or a heading: "- ", "+ ", "# ", "12. ".
bool begins_block(std::string_view line) {
  if (line.starts_with("- ") || line.starts_with("+ ") || line.starts_with("#")) return true;
  std::size_t digits = 0;
  while (digits < line.size() && std::isdigit(static_cast<unsigned char>(line[digits])) != 0) {
    ++digits;
  }
  return digits > 0 && line.substr(digits).starts_with(". ");
}

std::string escaped_line(std::string_view line) {
  constexpr std::string_view special = "\\*`<>|~";
  std::string out;
  if (begins_block(line)) {
    const std::size_t mark = line.find_first_of("-+#.");
    out = std::string(line.substr(0, mark)) + "\\" + line[mark];
    line.remove_prefix(mark + 1);
  }
  for (std::size_t i = 0; i < line.size(); ++i) {
    // GitHub treats an underscore within a word as a letter.
    const bool bare = line[i] == '_' && !(i > 0 && is_word(line, i - 1) && is_word(line, i + 1));
    if (bare || special.find(line[i]) != std::string_view::npos) out += '\\';
    out += line[i];
  }
  return out;
}

}  // namespace

std::string as_markdown(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    out += (line.starts_with("    ") ? line : escaped_line(line)) + "\n";
  }
  return out;
}

std::string gallery_page(const Results& results, bool has_picture) {
  const std::string& name = results.name;
  std::string text = fmt::format("# {}\n\n", escaped_line(results.title));
  if (has_picture) text += fmt::format("![{} by variant]({}.svg)\n\n", name, name);
  text += as_markdown(results.description);
  text += "\n" + markdown(telling_figures("variant", results.outcomes));
  text += fmt::format("\nAgain: `build/bin/tulle sim {}`. [All scenarios](README.md)\n", name);
  return text;
}

std::string gallery_index(const std::vector<GalleryEntry>& entries) {
  std::string text =
      "# Gallery\n"
      "\n"
      "What the scenarios that ship with Tulle show. `build/bin/tulle sim --gallery` writes these "
      "pages, "
      "the same bytes\nfrom the same seeds.\n"
      "\n"
      "| | |\n"
      "| --- | --- |\n";
  for (const GalleryEntry& entry : entries) {
    const std::string thumbnail =
        entry.has_picture ? fmt::format("[<img src=\"{}.svg\" width=\"280\" alt=\"{}\">]({}.md)",
                                        entry.name, entry.name, entry.name)
                          : "";
    text += fmt::format("| {} | [**{}**]({}.md): {} |\n", thumbnail, entry.name, entry.name,
                        escaped_line(entry.title));
  }
  return text;
}

}  // namespace tulle::report
