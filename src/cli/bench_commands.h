#pragma once

// The command lines of the commands that run ranks live.

#include <CLI/CLI.hpp>

namespace tulle::cli {

// Both add a command, which sets the exit status.
void add_bench(CLI::App& app, int& status);
void add_calibrate(CLI::App& app, int& status);

}  // namespace tulle::cli
