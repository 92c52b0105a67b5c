#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "live/unique_fd.h"

namespace tulle::ranks {

// Returns a port of 127.0.0.1 at which nobody listens.
inline std::string free_port() {
  const live::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof own;
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), bytes), 0);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &bytes), 0);
  return std::to_string(ntohs(own.sin_port));
}

inline std::string free_address() { return "127.0.0.1:" + free_port(); }

}  // namespace tulle::ranks
