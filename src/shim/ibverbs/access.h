#pragma once

#include <infiniband/verbs.h>

#include <array>

#include "rdma/verbs/types.h"

namespace tulle::shim {

struct AccessPair {
  unsigned c_api;
  verbs::Access access;
};
inline constexpr std::array<AccessPair, 7> access_table = {{
    {IBV_ACCESS_LOCAL_WRITE, verbs::Access::local_write},
    {IBV_ACCESS_REMOTE_WRITE, verbs::Access::remote_write},
    {IBV_ACCESS_REMOTE_READ, verbs::Access::remote_read},
    {IBV_ACCESS_REMOTE_ATOMIC, verbs::Access::remote_atomic},
    {IBV_ACCESS_MW_BIND, verbs::Access::bind_window},
    {IBV_ACCESS_ZERO_BASED, verbs::Access::zero_based},
    {IBV_ACCESS_ON_DEMAND, verbs::Access::on_demand},
}};

// These hints change nothing here: where the pages come from, and leave to reorder. The API lets a
// device ignore the whole optional range.
inline constexpr unsigned ignored_access =
    unsigned{IBV_ACCESS_HUGETLB} | unsigned{IBV_ACCESS_OPTIONAL_RANGE};

// A queue pair's rights to FLUSH (IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT), which older releases of
// rdma-core do not declare. No peer can ask for a FLUSH here. Drivers of adapters without FLUSH
// accept these rights for a queue pair all the same, and programs grant them without asking.
inline constexpr unsigned flush_access = 1u << 8 | 1u << 9;

// Returns false if a flag is not known.
constexpr bool to_access(unsigned flags, verbs::AccessFlags& out) {
  unsigned left = flags & ~ignored_access;
  out = {};
  for (const AccessPair& pair : access_table) {
    if ((left & pair.c_api) == 0) continue;
    out |= pair.access;
    left &= ~pair.c_api;
  }
  return left == 0;
}

constexpr unsigned from_access(verbs::AccessFlags flags) {
  unsigned out = 0;
  for (const AccessPair& pair : access_table) {
    if (flags.has(pair.access)) out |= pair.c_api;
  }
  return out;
}

}  // namespace tulle::shim
