#pragma once

// Results as tables for people, with one row per variant, and below it one row per kind of its
// traffic.

#include <string>
#include <vector>

#include "study/report/outcome.h"

namespace tulle::report {

// Returns the table that `tulle sim` prints.
std::string summary_table(const std::vector<Outcome>& outcomes);

struct Cell {
  std::string text;
  bool best = false;  // best of the rows whose flows all finished, if these rows differ
};
struct Table {
  std::vector<std::string> heads;
  std::vector<std::vector<Cell>> rows;
};

// Returns the most telling figures side by side: those that have a column there, less those in
// which no variant has anything, such as drops where nothing was dropped. `what` is the heading
// over the variants' names.
Table telling_figures(const std::string& what, const std::vector<Outcome>& outcomes);

// Returns a figure as these tables show it.
std::string figure_text(const Measured& measured);

// Formats the table in columns for a terminal, as one_line() the names in it. If `mark` is true,
// the best figures are bold.
std::string plain_text(Table table, bool mark);
std::string markdown(const Table& table);

}  // namespace tulle::report
