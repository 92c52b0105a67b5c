#pragma once

// The most telling figures of results side by side, in a table with one row per variant.

#include <string>
#include <vector>

#include "scenario/run.h"

namespace tulle::scenario {

struct Cell {
  std::string text;
  bool best = false;  // best of the rows whose flows all finished, if these rows differ
};
struct Table {
  std::vector<std::string> heads;
  std::vector<std::vector<Cell>> rows;
};

// Returns the table. Columns in which no variant has anything, such as drops where nothing was
// dropped, are left out. `what` is the heading over the variants' names. If the traffic has named
// kinds, their rows stand below their variant.
Table telling_figures(const std::string& what, const std::vector<Outcome>& outcomes);

// Formats the table in columns for a terminal. If `mark` is true, the best figures are bold.
std::string plain_text(const Table& table, bool mark);
std::string markdown(const Table& table);

}  // namespace tulle::scenario
