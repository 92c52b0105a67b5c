#pragma once

// The most telling figures of results, side by side: a table with a row a variant.

#include <string>
#include <vector>

#include "scenario/run.h"

namespace tulle::scenario {

struct Cell {
  std::string text;
  bool best = false;  // of the rows whose flows all finished, where these differ
};
struct Table {
  std::vector<std::string> heads;
  std::vector<std::vector<Cell>> rows;
};

// Columns of which no variant has anything, such as drops where nothing was dropped, are left out.
// `what` stands over the variants' names. Below a variant stands its traffic by kind, if it has
// names.
Table telling_figures(const std::string& what, const std::vector<Outcome>& outcomes);

// For a terminal, in columns; `mark` shows the best in bold.
std::string plain_text(const Table& table, bool mark);
std::string markdown(const Table& table);

}  // namespace tulle::scenario
