#pragma once

// Where the files are that belong to this program.

#include <filesystem>

namespace tulle::cli {

// This program's own file. Empty if /proc is not mounted.
std::filesystem::path executable();

// Both folders are found from the program's own place alone, never from the environment or the
// current folder: who chose them could choose what runs in the programs under `tulle run`. The
// build folder has the layout of an installation, so that there is one place to look. Each is empty
// if it does not exist.
std::filesystem::path library_folder();   // the drop-in libraries
std::filesystem::path scenario_folder();  // the scenarios that come with Tulle

}  // namespace tulle::cli
