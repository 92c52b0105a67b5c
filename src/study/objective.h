#pragma once

// What a search looks at: a figure of an outcome, and limits that others must keep to.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "study/report/outcome.h"

namespace tulle::study {

// Returns true if a figure has this name, such as "pauses" or "traffic.NAME.fct_us.max".
bool is_figure(std::string_view name);
// Returns an error that suggests similar names. `option` says where the name was given.
Error no_such_figure(std::string_view option, std::string_view name);

// Returns a figure of an outcome. One that is there only where it is not 0 is 0 where it is absent.
std::optional<double> value_in(const report::Outcome& outcome, const std::string& name);

// A figure that a setting must keep to, such as "pauses<=0".
struct Limit {
  std::string figure;
  bool at_most = true;
  double bound = 0;

  bool allows(double value) const { return at_most ? value <= bound : value >= bound; }
};

// Reads "FIGURE<=NUMBER" or "FIGURE>=NUMBER". The error is one line.
Result<Limit> parse_limit(const std::string& text);

}  // namespace tulle::study
