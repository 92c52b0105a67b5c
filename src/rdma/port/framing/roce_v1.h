#pragma once

// RoCE v1's framing of a transport packet (IBTA annex A16): Ethernet with its own EtherType, a tag
// if the packet has a priority, GRH, BTH … payload, pad, ICRC. The frame check sequence is left to
// the network interface. The destination's MAC address is read from its GID: that of a link-local
// GID is in its interface ID (RFC 4291 appendix A), and that of a multicast GID is as RFC 2464
// section 7 and RFC 1112 section 6.4 say. Other GIDs would need address resolution, and have the
// MAC address zero.

#include "base/ids.h"
#include "rdma/port/framing/framing.h"
#include "rdma/wire/ethernet.h"

namespace tulle::port {

wire::MacAddress mac_of(const Gid& gid);

// The path is an EthernetPath, and the bytes of a frame are the Ethernet frame without its check
// sequence.
extern const Framing roce_v1;

}  // namespace tulle::port
