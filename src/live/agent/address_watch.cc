#include "live/agent/address_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "live/path/packets/kernel_socket.h"

namespace tulle::live {

AddressWatch::AddressWatch()
    : fd_(socket_for_news(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR)) {}

// The messages are not parsed: a caller that learns of a change looks at all interfaces and
// addresses. So nothing is lost if the kernel has more to report than the socket holds (netlink(7),
// ENOBUFS).
bool AddressWatch::take_changes() {
  if (!fd_) return true;
  bool has_changed = false;
  std::array<std::byte, 8'192> message;
  for (;;) {
    const ssize_t bytes = recv(fd_.get(), message.data(), message.size(), MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno != ENOBUFS) return has_changed;
    has_changed = true;
  }
}

}  // namespace tulle::live
