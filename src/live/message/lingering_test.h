#pragma once

// A descriptor whose close takes long, for tests.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <vector>

#include "os/unique_fd.h"

namespace tulle::live {

// A TCP connection whose peer takes nothing, and whose close therefore waits.
struct Lingering {
  UniqueFd own;  // none if the connection cannot be made
  UniqueFd peer;
};

inline Lingering linger_for(int seconds) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* name = reinterpret_cast<sockaddr*>(&at);
  Lingering made;
  made.own.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), name, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), name, &size) != 0 || connect(made.own.get(), name, size) != 0) {
    return {};
  }
  made.peer.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::vector<std::byte> much(1 << 16);
  while (send(made.own.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const linger wait{1, seconds};
  if (setsockopt(made.own.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)) != 0) return {};
  return made;
}

}  // namespace tulle::live
