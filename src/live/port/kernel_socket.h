#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "live/unique_fd.h"

namespace tulle::live {

// A socket of the kernel's, by the system call itself: libraries that programs preload turn the C
// library's IP sockets into ones of their own, such as rsockets, which stand on this very device.
inline UniqueFd kernel_socket(int domain, int type) {
  return UniqueFd(static_cast<int>(syscall(SYS_socket, domain, type | SOCK_CLOEXEC, 0)));
}

}  // namespace tulle::live
