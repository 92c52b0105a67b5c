#pragma once

// gnuplot as a program beside this one.

#include <string>

#include "base/result.h"

namespace tulle::cli {

// Debian's package of it.
inline constexpr char gnuplot_package[] = "gnuplot-nox";

bool has_gnuplot();
// What it writes to standard output for this script. The error is one line.
Result<std::string> run_gnuplot(const std::string& script);

}  // namespace tulle::cli
