#pragma once

// Finds the files that belong to this program.

#include <filesystem>

namespace tulle::cli {

// Returns this program's own file, or an empty path if /proc is not mounted.
std::filesystem::path executable();

// All of these are found from the location of this program alone, never from the environment or the
// current folder: a user who could choose them would choose what runs in the programs under `tulle
// run`. The build folder has the layout of an installation, so there is one place to look. A folder
// that does not exist is returned as an empty path, and so is everything if /proc is not mounted.
// So is what another user can change, unless this program's own file is such a one: a file may be
// in a folder below /tmp, and the others then are in folders that anybody may have made.
std::filesystem::path library_folder();   // the drop-in libraries
std::filesystem::path scenario_folder();  // the scenarios that come with Tulle
// One of the two is this program. The other one may be absent.
std::filesystem::path live_program();       // tulle
std::filesystem::path simulator_program();  // tulle-simulator

}  // namespace tulle::cli
