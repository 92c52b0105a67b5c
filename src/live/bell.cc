#include "live/bell.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tulle::live {

Result<Bell> create_bell() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error{fmt::format("cannot make a socket: {}", std::strerror(errno)), errno};
  }
  return Bell{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool is_button(int descriptor) {
  const auto has = [descriptor](int option, int wanted) {
    int value = 0;
    socklen_t bytes = sizeof value;
    return getsockopt(descriptor, SOL_SOCKET, option, &value, &bytes) == 0 && value == wanted;
  };
  return has(SO_DOMAIN, AF_UNIX) && has(SO_TYPE, SOCK_DGRAM);
}

}  // namespace tulle::live
