// These functions of rdma-core 53 and later find the subnet management interface (SMI, on QP0) and
// the general services interface (GSI, on QP1) that belong together. Some adapters show the two as
// devices of their own. Here one device is both, as a kernel's RoCE device is for libibumad.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <span>

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

// A preferred port of 0 says that the port is not active.
void fill(Pair& pair, const Device& device, std::uint32_t preferred) {
  pair = {};
  std::snprintf(pair.smi_name, sizeof pair.smi_name, "%s", device.name.c_str());
  std::snprintf(pair.gsi_name, sizeof pair.gsi_name, "%s", device.name.c_str());
  pair.smi_preferred_port = pair.gsi_preferred_port = preferred;
}

std::uint32_t active_port(const Device& device) {
  return device.is_active() ? std::uint32_t{only_port} : 0;
}

}  // namespace

extern "C" {

int umad_open_smi_port(const char* ca_name, int portnum) {
  return umad_open_port(ca_name, portnum);
}

int umad_get_smi_gsi_pairs(umad_ca_pair* cas, std::size_t max) try {
  if (cas == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const auto all = devices();
  const std::span<Pair> out(reinterpret_cast<Pair*>(cas), max);
  const std::size_t count = std::min(all.size(), max);
  for (std::size_t i = 0; i < count; ++i) fill(out[i], all[i], active_port(all[i]));
  return static_cast<int>(count);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

// A null name stands for the first device, and port 0 for its active port. Returns 1 if there is no
// such device or port.
int umad_get_smi_gsi_pair_by_ca_name(const char* name, std::uint8_t portnum, umad_ca_pair* pair,
                                     unsigned) try {
  if (pair == nullptr) {
    errno = EINVAL;
    return -1;
  }
  auto& out = *reinterpret_cast<Pair*>(pair);
  out = {};
  const auto all = devices();
  const Device* device = find_device(all, name);
  const std::uint32_t port = device != nullptr && portnum == 0 ? active_port(*device) : portnum;
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
