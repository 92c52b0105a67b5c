#pragma once

// The addresses of a network interface, as a socket of NETLINK_ROUTE tells of them.

#include <cstddef>
#include <span>
#include <vector>

#include "management/ipoib/interface.h"

namespace tulle::live {

class InterfaceAddresses {
 public:
  // `index` is the interface's.
  explicit InterfaceAddresses(int index) : index_(index) {}

  // Asks the kernel for all addresses. The owner of the socket calls this once, and again if the
  // kernel has dropped messages.
  void ask(int socket);
  // Reads what the kernel has said. Returns true if addresses have changed.
  bool read(int socket);
  // Reads one message of the kernel, which may have any bytes. Returns true if addresses have
  // changed.
  bool take(std::span<const std::byte> message);
  const std::vector<ipoib::HostAddress>& addresses() const { return addresses_; }

 private:
  // More are not noted.
  static constexpr std::size_t addresses_max = 256;

  const int index_;
  std::vector<ipoib::HostAddress> addresses_;
};

}  // namespace tulle::live
