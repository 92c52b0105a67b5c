#pragma once

// Gives tests and fuzzers a private network namespace with its loopback up, so that they neither
// disturb nor notice others of this machine.

#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "os/unique_fd.h"

namespace tulle::live {

inline void write_file(const char* path, const std::string& text) {
  const UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
  if (write(fd.get(), text.data(), text.size()) < 0) std::perror(path);
}

inline void bring_loopback_up() {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  ioctl(fd.get(), SIOCGIFFLAGS, &request);
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) std::perror("lo");
}

// Must be called before the process has threads. Returns false if namespaces are forbidden: the
// process then stays on the machine's loopback.
inline bool enter_private_network() {
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  bool is_private = unshare(CLONE_NEWNET) == 0;
  if (!is_private && unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
    is_private = true;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
    write_file("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  }
  if (is_private) bring_loopback_up();
  return is_private;
}

}  // namespace tulle::live
