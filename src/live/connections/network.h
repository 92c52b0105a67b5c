#pragma once

// The network of a host, as the host's connection manager needs it: which addresses there are, by
// which routes peers are reached, and management datagrams in and out. The host agent's network is
// IP (live/agent/ip_network.h), and that of a software fabric's host is InfiniBand
// (live/fabric/host_connections.h).

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "live/message/connection.h"
#include "live/message/device_info.h"
#include "management/cm/types.h"
#include "rdma/wire/sa.h"

namespace tulle::live {

// The route to a peer. On RoCE, the GIDs are all that it needs besides.
struct ConnectionRoute {
  std::uint8_t path_mtu = 0;         // IBTA's code: 1 is 256 bytes, 5 is 4096
  std::uint8_t packet_lifetime = 0;  // 4.096 us * 2^packet_lifetime
  std::uint16_t remote_lid = 0;      // 0: there are no LIDs
  std::uint8_t service_level = 0;

  static ConnectionRoute of(const wire::PathRecord& record);
};
// A multicast group that the host has joined.
struct ConnectionGroup {
  Gid gid;
  std::uint16_t lid = 0;  // 0: there are no LIDs
  std::uint8_t service_level = 0;
};

// An address of the device to which an endpoint is bound.
struct LocalAddress {
  Gid gid;
  std::uint8_t gid_index = 0;
  std::uint32_t interface_index = 0;
  bool is_roce_v1 = false;
};

class ConnectionNetwork {
 public:
  using Handle =
      std::function<void(const management::cm::Route& route, std::span<const std::byte> payload)>;
  // The endpoint that asked for a route or a group. The answer may come at once, or later to
  // ConnectionService::take_route() or take_group(), which every question gets once.
  using Asker = EndpointId;

  ConnectionNetwork() = default;
  ConnectionNetwork(const ConnectionNetwork&) = delete;
  ConnectionNetwork& operator=(const ConnectionNetwork&) = delete;
  virtual ~ConnectionNetwork() = default;

  // Returns the device that a program asks for.
  virtual Result<DeviceInfo> describe(const DeviceChoice& choice) = 0;
  // Returns 0 if this host has the address, else EADDRNOTAVAIL or another errno.
  virtual int check_is_local(const SocketAddress& address) = 0;
  // Fills in the source if it is a wildcard or absent, with the address that reaches `destination`,
  // and port 0. Returns 0 or an errno: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL (no such source).
  virtual int find_source(SocketAddress& source, const SocketAddress& destination) = 0;
  // Returns the GID of the port that has the address, or nothing if no host has it.
  virtual std::optional<Gid> gid_of(const SocketAddress& address) const = 0;

  // Returns another address of the same port. A request to one of them that nobody listens to is
  // for who listens to the other.
  virtual std::optional<SocketAddress> other_address(const SocketAddress&) const { return {}; }

  virtual std::optional<ConnectionRoute> find_route(Asker asker, const DeviceInfo& device,
                                                    const LocalAddress& local,
                                                    const Gid& remote) = 0;
  virtual std::optional<ConnectionGroup> join(Asker asker, PortSpace space,
                                              const SocketAddress& group, std::uint32_t qkey) = 0;
  // Ends what join() began, also if it was answered by an error.
  virtual void leave(PortSpace space, const SocketAddress& group) = 0;

  // Sends a datagram to a peer's QP1. A datagram that cannot be sent is lost, as on any network.
  virtual void send(const management::cm::Outgoing& datagram) = 0;
  // Hands over the datagrams that have come to QP1. Never blocks. Returns false if more may wait.
  virtual bool receive(Time now, const Handle& handle) = 0;
  // Tells that the clock's zero has moved (live/clock.h).
  virtual void rebase(Time) {}
};

// Returns the device's GID that is `wanted`, which is that of `address`, or nothing if it is not
// the device's. A loopback address that the device lacks means the device's first GID, of the same
// family if possible. Of an address that both versions of RoCE use, it is RoCE v2's, unless v1 is
// asked for.
std::optional<LocalAddress> local_address(const DeviceInfo& device, const SocketAddress& address,
                                          const Gid& wanted, bool of_roce_v1 = false);
bool is_loopback(const SocketAddress& address);

}  // namespace tulle::live
