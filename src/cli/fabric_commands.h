#pragma once

// The command line of software fabrics.

#include <CLI/CLI.hpp>

namespace tulle::cli {

// Adds `tulle fabric` with its commands, each of which sets the exit status.
void add_fabric(CLI::App& app, int& status);

}  // namespace tulle::cli
