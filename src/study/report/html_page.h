#pragma once

// A page of results for a browser: tables and charts of a run in one file, which needs nothing else
// and no network. The same results give the same bytes.
//
// A scenario may be a stranger's, and so may its texts. They reach the page as JSON in which no
// markup can be, and its script shows them as text. A content security policy lets nothing run but
// that script, and nothing be loaded.

#include <string>
#include <vector>

#include "study/report/outcome.h"

namespace tulle::report {

// The results do not say these things about themselves.
struct PageText {
  std::string command;  // makes the page again
  std::string what;     // of what the results are: "fabric" or "variant"
  struct Variant {
    std::string title;
    std::string settings;  // TOML
  };
  std::vector<Variant> variants;  // as many as outcomes
};

std::string html_page(const Results& results, const PageText& text);

// The function below returns the data of the page, as its script reads them.
std::string page_json(const Results& results, const PageText& text);

}  // namespace tulle::report
