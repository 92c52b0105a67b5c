#pragma once

// The links that had most to bear.

#include <cstddef>
#include <vector>

#include "study/report/columns.h"
#include "study/report/outcome.h"

namespace tulle::report {

// A load is what a direction of a link had to bear. `row` is its row in Outcome::links.
struct LinkLoad {
  std::size_t row = 0;
  double utilisation = 0;  // share of the time that it sent, 0 to 1
  double waited_us = 0;    // it was paused, or took to send the longest queue before it
  double queue_max_bytes = 0;
  double paused_us = 0;
  double dropped = 0;  // frames
};

// Returns the loads of all links, in the order of Outcome::links.
std::vector<LinkLoad> link_loads(const Outcome& outcome);
// Returns at most so many rows of Outcome::links: those that held frames up for longest, the first
// one most. Among links that held nothing up, the busiest are the worst.
std::vector<std::size_t> worst_links(const std::vector<LinkLoad>& loads, std::size_t most);

// Returns a table with the ten worst links of all outcomes together. Links that held frames up for
// less than a hundredth of the run are left out.
Table worst_links_table(const std::string& what, const std::vector<Outcome>& outcomes);

}  // namespace tulle::report
