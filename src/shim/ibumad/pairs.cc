// These functions of rdma-core 53 and later find the subnet management interface (SMI, on QP0) and
// the general services interface (GSI, on QP1) that belong together. Some adapters show the two as
// separate devices. Here one device is both, as a kernel's RoCE device is for libibumad.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <span>

#include "os/cancellation.h"
#include "shim/enomem.h"
#include "shim/ibumad/ports.h"

// Newer headers declare this struct, and also its content.
struct umad_ca_pair;

namespace tulle::shim::umad {
namespace {

// umad_ca_pair, as the ABI lays it out (umad.h of rdma-core 65).
struct Pair {
  char smi_name[UMAD_CA_NAME_LEN];
  std::uint32_t smi_preferred_port;
  char gsi_name[UMAD_CA_NAME_LEN];
  std::uint32_t gsi_preferred_port;
};
static_assert(sizeof(Pair) == 48);

// A preferred port of 0 says that no port is up.
void fill(Pair& pair, const Device& device, std::uint32_t preferred) {
  pair = {};
  std::snprintf(pair.smi_name, sizeof pair.smi_name, "%s", device.name.c_str());
  std::snprintf(pair.gsi_name, sizeof pair.gsi_name, "%s", device.name.c_str());
  pair.smi_preferred_port = pair.gsi_preferred_port = preferred;
}

// Returns the port, or 0 if its link is down. Tools that look at a subnet work before its manager
// has made ports active (umad_check_active() of rdma-core 53 and later).
std::uint32_t port_with_a_link(const Device& device) {
  return device.has_link() ? std::uint32_t{only_port} : 0;
}

}  // namespace

extern "C" {

int umad_open_smi_port(const char* ca_name, int portnum) {
  const NoCancellation no_cancellation;
  return umad_open_port(ca_name, portnum);
}

int umad_get_smi_gsi_pairs(umad_ca_pair* cas, std::size_t max) try {
  const NoCancellation no_cancellation;
  if (cas == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const auto all = devices();
  const std::span<Pair> out(reinterpret_cast<Pair*>(cas), max);
  const std::size_t count = std::min(all.size(), max);
  for (std::size_t i = 0; i < count; ++i) fill(out[i], all[i], port_with_a_link(all[i]));
  return static_cast<int>(count);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

// A null name means the first device, and port 0 its port, if that has a link. Returns 1 if there
// is no such device or port.
int umad_get_smi_gsi_pair_by_ca_name(const char* name, std::uint8_t portnum, umad_ca_pair* pair,
                                     unsigned) try {
  const NoCancellation no_cancellation;
  if (pair == nullptr) {
    errno = EINVAL;
    return -1;
  }
  auto& out = *reinterpret_cast<Pair*>(pair);
  out = {};
  const auto all = devices();
  const Device* device = find_device(all, name);
  const std::uint32_t port =
      device != nullptr && portnum == 0 ? port_with_a_link(*device) : portnum;
  if (device == nullptr || port != only_port) {
    errno = ENODEV;
    return 1;
  }
  fill(out, *device, port);
  return 0;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::umad
