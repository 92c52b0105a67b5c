#pragma once

// Results as pages for a gallery, in Markdown as GitHub shows it. The same results give the same
// bytes.

#include <string>
#include <vector>

#include "study/report/outcome.h"

namespace tulle::report {

// Returns a page with a scenario's title, text and table, and the picture NAME.svg if there is one.
std::string gallery_page(const Results& results, bool has_picture);

struct GalleryEntry {
  std::string name;
  std::string title;
  bool has_picture = false;
};
std::string gallery_index(const std::vector<GalleryEntry>& entries);

}  // namespace tulle::report
