#pragma once

#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>

#include "os/unique_fd.h"

namespace tulle::live {

// Returns a socket of the kernel, made by the system call itself. Libraries that programs preload
// replace the C library's IP sockets with their own, such as rsockets, which are built on this very
// device.
inline UniqueFd kernel_socket(int domain, int type) {
  return UniqueFd(static_cast<int>(syscall(SYS_socket, domain, type | SOCK_CLOEXEC, 0)));
}

// Returns a socket at which the kernel tells of what these groups of rtnetlink(7) are about. It is
// none if the host tells nothing.
inline UniqueFd socket_for_news(std::uint32_t groups) {
  UniqueFd fd = kernel_socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK);
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = groups;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) return {};
  return fd;
}

// Returns a socket at which the kernel answers questions of rtnetlink(7), or none with errno. The
// answer is there before send() returns; the limit is for an answer that never comes.
inline UniqueFd socket_for_questions() {
  UniqueFd fd = kernel_socket(AF_NETLINK, SOCK_RAW);
  constexpr timeval answer_patience{1, 0};
  if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &answer_patience, sizeof answer_patience);
  return fd;
}

// Asks for a buffer of so many bytes. The kernel grants at most what the administrator allows, or
// all of it to a privileged process.
inline void set_buffer(int socket, int forced_option, int option, int bytes) {
  if (setsockopt(socket, SOL_SOCKET, forced_option, &bytes, sizeof bytes) == 0) return;
  static_cast<void>(setsockopt(socket, SOL_SOCKET, option, &bytes, sizeof bytes));
}

}  // namespace tulle::live
