#pragma once

// Whose folders this process may use. A path that the environment names, or that is where other
// users may write, can lead anywhere at the next moment.

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "os/users.h"

namespace tulle {

// Returns the path of a folder without links in it, if nobody but trusted users can change which
// folder that is. It and each folder above must belong to one of them, and nobody else may write
// there, the user's own group excepted, unless the folder is sticky, like /tmp. (Who makes a
// file in a sticky folder has to look at what is there.) The owner of "/" is trusted too. In a user
// namespace in which root has no number, what belongs to such users is trusted in folders such as
// /usr alone (path_trust.h). Otherwise the error says which folder belongs to whom (EPERM).
Result<std::string> trusted_folder(const std::string& path);

// Returns the same of a folder in which this process looks for something that belongs to itself,
// and whose owner it looks at. Such a folder may have an owner without a number, as may /tmp.
Result<std::string> trusted_parent(const std::string& path);

// Returns the path of a file without links in it, if its folder is such a one and nobody but
// trusted users can change it.
Result<std::string> trusted_file(const std::string& path);

// Returns the path of a file or folder that was found by the place of `own`, a file of which this
// process consists, without links in it. If nobody but trusted users and its owner can change which
// file `own` is, the same must hold of the other one. Otherwise that one is no worse.
Result<std::string> trusted_like(const std::string& path, const std::string& own);

// Returns the programs of that name in the folders of a list such as PATH, in their order. Folders
// that are not absolute do not count.
std::vector<std::string> programs_in(std::string_view folders, const std::string& name);

// Returns the file that a program's name leads to by PATH (and by /usr/sbin:/usr/bin:/sbin:/bin
// without one). For root, only a trusted file counts: su keeps PATH. The error says why the last
// file that was found does not.
Result<std::string> find_program(const std::string& name);

// Makes a folder at that path, in a trusted one, or accepts one that belongs to this user and that
// nobody else may write to. Returns its path without links.
Result<std::string> private_folder(const std::string& path);

}  // namespace tulle
