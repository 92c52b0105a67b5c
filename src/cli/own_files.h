#pragma once

// The places of this user's files that belong to fabrics and to programs under `tulle run`.

#include <string>

#include "base/result.h"

namespace tulle::cli {

// shim::own_folder() and shim::tree_base(). The first time that a folder is not used which the
// environment names, a line on standard error says why.
Result<std::string> own_folder();
Result<std::string> own_folder_for(const std::string& name);

}  // namespace tulle::cli
