#pragma once

// Each network namespace, agent and set of options has a tree of half a megabyte, often in a folder
// in memory. A machine that makes namespaces for years must not collect theirs.

#include <cstddef>
#include <optional>
#include <set>
#include <string>

#include "os/unique_fd.h"

namespace tulle::shim {

// While it exists, nobody removes trees of this user's folder. Waits for who does so already, two
// seconds at most.
class TreesAtRest {
 public:
  explicit TreesAtRest(const std::string& own_folder);

 private:
  UniqueFd folder_;
};

// Returns the names of the trees in the folder that programs of this user use, as their environment
// says, or nothing if a program that may use one has overwritten its environment.
std::optional<std::set<std::string>> used_trees(const std::string& own_folder);

// Removes trees that no program uses, the oldest first, until `kept` are left, and eight at
// most. Those of the last minute stay: a program may be about to start.
void remove_old_trees(const std::string& own_folder, std::size_t kept);

}  // namespace tulle::shim
