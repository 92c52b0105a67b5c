#pragma once

#include "base/ids.h"
#include "live/message/device_info.h"

namespace tulle::live {

// Makes the socket receive datagrams that are sent to a multicast group on the device's interfaces,
// or stop doing so. Linux gives a datagram to every socket that has joined its group, among all
// that share a port, and runs no steering program (net/ipv4/udp.c: __udp4_lib_mcast_deliver). So
// each process that joins gets a copy. join_group() returns 0 or an errno. Joining again changes
// nothing.
int join_group(int socket, const DeviceInfo& device, const Gid& group);
void leave_group(int socket, const DeviceInfo& device, const Gid& group);

}  // namespace tulle::live
