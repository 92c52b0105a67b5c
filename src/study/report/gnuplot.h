#pragma once

// Runs gnuplot as a separate program.

#include <string>

#include "base/result.h"

namespace tulle::report {

// Debian's package of gnuplot.
inline constexpr char gnuplot_package[] = "gnuplot-nox";

bool has_gnuplot();
// Returns what gnuplot writes to standard output for this script. The error is one line.
Result<std::string> run_gnuplot(const std::string& script);

}  // namespace tulle::report
