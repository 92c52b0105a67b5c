#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "live/unique_fd.h"

namespace tulle::live {

// Returns a socket of the kernel, made by the system call itself. Libraries that programs preload
// replace the C library's IP sockets with their own, such as rsockets, which stand on this very
// device.
inline UniqueFd kernel_socket(int domain, int type) {
  return UniqueFd(static_cast<int>(syscall(SYS_socket, domain, type | SOCK_CLOEXEC, 0)));
}

}  // namespace tulle::live
