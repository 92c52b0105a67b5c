#pragma once

// Results as pages for a gallery: Markdown as GitHub shows it. The same results are the same bytes.

#include <string>
#include <vector>

#include "scenario/run.h"
#include "scenario/scenario.h"

namespace tulle::scenario {

// A scenario's title, text and table, with the picture NAME.svg where there is one.
std::string gallery_page(const Scenario& scenario, const std::vector<Outcome>& outcomes,
                         bool has_picture);

struct GalleryEntry {
  std::string name;
  std::string title;
  bool has_picture = false;
};
std::string gallery_index(const std::vector<GalleryEntry>& entries);

// Text of people's as Markdown that shows it as it is: paragraphs, and what is indented by four as
// lines of its own.
std::string as_markdown(const std::string& text);

}  // namespace tulle::scenario
