#pragma once

// The command line of software fabrics.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tulle::cli {

// Adds `tulle fabric` with its commands, each of which sets the exit status.
void add_fabric(CLI::App& app, int& status, const std::vector<std::string>& after_dashes);

}  // namespace tulle::cli
