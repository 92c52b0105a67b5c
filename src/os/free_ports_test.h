#pragma once

// Test support: ports of 127.0.0.1 that nobody has at the moment.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <string>
#include <vector>

#include "os/unique_fd.h"

namespace tulle {

// `kind` is SOCK_STREAM or SOCK_DGRAM. The ports differ.
inline std::vector<std::string> free_ports(int kind, std::size_t count) {
  std::vector<std::string> ports;
  std::vector<UniqueFd> held;
  while (ports.size() < count) {
    held.emplace_back(socket(AF_INET, kind | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof name;
    EXPECT_EQ(bind(held.back().get(), reinterpret_cast<sockaddr*>(&name), bytes), 0);
    EXPECT_EQ(getsockname(held.back().get(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
    ports.push_back(std::to_string(ntohs(name.sin_port)));
  }
  return ports;
}

}  // namespace tulle
