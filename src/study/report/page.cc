#include "study/report/page.h"

#include <fmt/format.h>

#include "study/report/columns.h"
#include "study/report/markdown.h"

namespace tulle::report {

std::string gallery_page(const Results& results, bool has_picture) {
  const std::string& name = results.name;
  std::string text = fmt::format("# {}\n\n", markdown_text(results.title));
  if (has_picture)
    text +=
        fmt::format("![{} by variant]({}.svg)\n\n", markdown_text(name), markdown_address(name));
  text += as_markdown(results.description);
  text += "\n" + markdown(telling_figures("variant", results.outcomes));
  text += fmt::format("\nAgain: {}. [All scenarios](README.md)\n",
                      markdown_code("build/bin/tulle sim " + name));
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
    const std::string address = markdown_address(entry.name);
    const std::string thumbnail =
        entry.has_picture ? fmt::format("[<img src=\"{}.svg\" width=\"280\" alt=\"{}\">]({}.md)",
                                        address, markdown_attribute(entry.name), address)
                          : "";
    text += fmt::format("| {} | [**{}**]({}.md): {} |\n", thumbnail, markdown_text(entry.name),
                        address, markdown_text(entry.title));
  }
  return text;
}

}  // namespace tulle::report
