#pragma once

// A gallery has a page for each scenario, with a table and a picture of its variants.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/monitor.h"
#include "study/scenario/scenario.h"

namespace tulle::study {

// Reads the scenarios of these names. If there are none, reads all that come with Tulle and
// describe in words what they show, which the reference does not.
Result<std::vector<scenario::Scenario>> read_gallery(std::span<const std::string> names,
                                                     const std::vector<std::string>& set,
                                                     const scenario::Overrides& overrides);

struct GalleryOptions {
  std::string folder;         // which prepare_results() has prepared
  bool with_pictures = true;  // gnuplot draws them (report::has_gnuplot())
  unsigned jobs = 1;          // variants that run at the same time
};

// What a gallery tells its caller, in the caller's thread.
class GalleryMonitor {
 public:
  virtual ~GalleryMonitor() = default;
  // Returns false if no more pages are to be made.
  virtual bool goes_on() const { return true; }
  // The simulations of a page begin, number `index` of `pages`. Returns their monitor.
  virtual std::unique_ptr<Monitor> begin_page(const scenario::Scenario& scenario, std::size_t index,
                                              std::size_t pages) = 0;
  // The page was written. An error counts as one of the page.
  virtual Result<void> end_page(const scenario::Scenario&, double /*seconds*/) { return {}; }
  // A page could not be made, and an earlier one stays. The others follow.
  virtual void fail(const Error&) {}
};

// Writes NAME.md and NAME.svg of each scenario, and README.md, which lists all pages of the folder.
Result<void> write_gallery(const GalleryOptions& options,
                           std::span<const scenario::Scenario> scenarios, GalleryMonitor& monitor);

}  // namespace tulle::study
