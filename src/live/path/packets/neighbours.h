#pragma once

// MAC addresses of neighbours, from the kernel's table (ARP and neighbour discovery).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "os/unique_fd.h"
#include "rdma/wire/ethernet.h"

namespace tulle::live {

struct Neighbour {
  std::uint32_t interface_index = 0;
  Gid gid;
  wire::MacAddress mac{};
};

// Returns the MAC address of a neighbour on an interface's link. A neighbour that the kernel does
// not know is sent an empty datagram from the address `source`, so that the kernel asks for it.
// Waits a second at most, as Linux's RDMA core does (drivers/infiniband/core/addr.c). The errors
// are EHOSTUNREACH if nobody answers, which is so behind a router too, and those of the kernel.
Result<wire::MacAddress> resolve_neighbour(std::uint32_t interface_index, const Gid& source,
                                           const Gid& neighbour);

// The same in two steps, for a caller that cannot wait.
class Neighbours {
 public:
  static Result<Neighbours> open();

  // Returns what the kernel knows.
  std::optional<wire::MacAddress> look_up(std::uint32_t interface_index,
                                          const Gid& neighbour) const;
  // Makes the kernel ask. Returns 0 or an errno.
  static int ask(std::uint32_t interface_index, const Gid& source, const Gid& neighbour);

 private:
  Neighbours() = default;
  UniqueFd netlink_;
};

// Tells of neighbours as the kernel learns of them.
class NeighbourWatch {
 public:
  NeighbourWatch();
  // Returns a descriptor that is readable when there is news, or -1 if the host tells none.
  int fd() const { return fd_.get(); }
  // Returns those that the kernel has learned of. Some may be missing if there were very many.
  std::vector<Neighbour> take();

 private:
  UniqueFd fd_;
};

// Appends the neighbours that messages of rtnetlink(7) tell of, and that have MAC addresses.
void read_neighbours(std::span<const std::byte> messages, std::vector<Neighbour>& found);

}  // namespace tulle::live
