#pragma once

// The command lines of the commands that simulate.

#include <CLI/CLI.hpp>

namespace tulle::cli {

// Each adds a command, which sets the exit status.
void add_sim(CLI::App& app, int& status);
void add_sweep(CLI::App& app, int& status);
void add_tune(CLI::App& app, int& status);
void add_compare(CLI::App& app, int& status);

}  // namespace tulle::cli
