#pragma once

// Judges a path by who can change what it leads to. trusted_folder.h walks along the path.

#include <sys/types.h>

#include <optional>
#include <string>

#include "os/users.h"

namespace tulle {

// A folder or file on a path.
struct PathEntry {
  std::string path;  // from "/", without links
  uid_t owner = 0;
  bool others_may_write = false;
  bool is_sticky = false;  // who may write there can neither rename nor remove what is another's
};

// Trusts root, this process's user, the owner of "/", and another user. In a user namespace in
// which root has no number, "/" has the overflow number, and so do the files of all other users.
// An owner with this number may be root:
// - on the way to what a trusted user owns, but not below that;
// - of files in a folder that no other user fills, such as /usr.
class PathTrust {
 public:
  PathTrust(uid_t own, const UserNumbers& numbers, uid_t also = 0)
      : own_(own), numbers_(numbers), also_(also) {}

  // Takes the next entry, "/" first. Returns why another user can change what is there, or
  // nothing.
  std::string next(const PathEntry& entry);

  // Returns why the last entry itself may be another user's, or nothing.
  std::string fault_of_last() const;

 private:
  bool trusts(uid_t user) const;
  std::string belongs() const;

  uid_t own_;
  UserNumbers numbers_;
  uid_t also_;
  std::optional<uid_t> owner_of_all_;
  PathEntry last_;
  bool is_below_trusted_ = false;
  bool is_open_to_others_ = false;
};

}  // namespace tulle
