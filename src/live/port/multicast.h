#pragma once

#include "base/ids.h"
#include "live/device.h"

namespace tulle::live {

// The socket receives what is sent to a multicast group on the device's interfaces, or does so no
// longer. Linux gives a datagram to every socket that has joined its group, of all that share a
// port, and asks no program for whom it is (net/ipv4/udp.c: __udp4_lib_mcast_deliver): so each
// process that joins gets its copy. 0, or the errno. Joining again changes nothing.
int join_group(int socket, const DeviceInfo& device, const Gid& group);
void leave_group(int socket, const DeviceInfo& device, const Gid& group);

}  // namespace tulle::live
