#pragma once

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cstring>

namespace tulle {

// Returns true for the group that this process's user has alone: it has the user's name, and no
// other members. Debian gives each user one, and a umask that lets it write.
inline bool is_own_group(gid_t group) {
  // These may be replaced by the next call. Nobody else asks while a program is being started.
  const passwd* user = getpwuid(geteuid());
  const ::group* found = getgrgid(group);
  if (user == nullptr || found == nullptr || std::strcmp(user->pw_name, found->gr_name) != 0) {
    return false;
  }
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (std::strcmp(*member, user->pw_name) != 0) return false;
  }
  return true;
}

}  // namespace tulle
