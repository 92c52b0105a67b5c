#pragma once

// The place of the files that belong to this user's fabrics and programs.

#include <string>

#include "base/result.h"

namespace tulle {

// A folder that belongs to this user alone, and that nobody else can put another in the place of.
struct OwnFolder {
  std::string path;
  std::string warning;  // if not empty: which folder was not used, and why
};

// Returns the folder of all that belongs to this user, which is made if it does not exist. It is
// below XDG_RUNTIME_DIR where that is set, writable, and in the hands of this user or root. (Where
// su has kept the variable, it names another user's folder.) Without it, root's is in /run, and
// those of others are in /tmp.
Result<OwnFolder> own_folder();
// Returns a folder in the one above, made if it does not exist, for what goes by `name`: characters
// other than ASCII's letters and digits become "_".
Result<OwnFolder> own_folder_for(const std::string& name);

}  // namespace tulle
