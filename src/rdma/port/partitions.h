#pragma once

// Decides which packets a switch lets through, by their partition key. Switches may leave this out.
// Those that do it enforce partitions at the ports of hosts (IBTA 14.2.5.6: PortInfo's
// PartitionEnforcementInbound and -Outbound).

#include <algorithm>
#include <vector>

#include "rdma/wire/pkey.h"

namespace tulle::port {

// The partitions of a switch's port. They follow the way in which OpenSM fills the table
// (osm_pkey_mgr.c): the port is a full member of each partition of the host at its other end, so
// that the hosts themselves keep limited members apart.
struct Partitions {
  std::vector<Pkey> pkeys;
  bool inbound = false;
  bool outbound = false;

  bool has(Pkey pkey) const {
    return std::ranges::any_of(pkeys, [pkey](Pkey own) { return wire::pkeys_match(own, pkey); });
  }
  bool lets_in(Pkey pkey) const { return !inbound || has(pkey); }
  bool lets_out(Pkey pkey) const { return !outbound || has(pkey); }
};

}  // namespace tulle::port
