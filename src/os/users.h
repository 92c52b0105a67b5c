#pragma once

// Which users the numbers of users mean. A user namespace may give numbers to a few users
// alone. The kernel then shows all others, as owners of files (stat) and at the other end of a
// socket (SO_PEERCRED), by one number: the overflow number, 65534.

#include <sys/types.h>

#include <string>
#include <string_view>

namespace tulle {

// The numbers of a user namespace.
struct UserNumbers {
  uid_t overflow = 65'534;
  bool has_all = false;  // every user has a number

  // Returns true if the number means one user.
  bool is_known(uid_t user) const { return has_all || user != overflow; }
};

// Returns true if every user has a number by a namespace's map (/proc/PID/uid_map).
bool maps_all_users(std::string_view map);

// Returns the numbers of this process's namespace. Without /proc, not every user has one.
UserNumbers user_numbers();

// Returns true if the number means one user in this process's namespace.
bool is_known_user(uid_t user);

// Returns true if both numbers mean the same user. Of the overflow number, nobody can tell
// where users have none.
bool same_user(uid_t one, uid_t other);

// Returns true for root and for this process's effective user, who can do anyway what they make
// this process do.
bool is_trusted(uid_t user);

// Returns "user 1000" for a message, and says so if the number means several users.
std::string user_text(uid_t user, const UserNumbers& numbers);
std::string user_text(uid_t user);

}  // namespace tulle
