#pragma once

// The connection manager of a software fabric's host, for librdmacm. Its network is InfiniBand:
// management datagrams go to LIDs, and subnet administration knows the routes and the multicast
// groups.
//
// Programs name hosts by the addresses of the hosts' IP network, as on a cluster with IPoIB they
// name them by the addresses of IPoIB. A host's GID is in the table of addresses, so that nobody
// needs to be asked for it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "fabric/subnet.h"
#include "live/connections/connection_service.h"
#include "live/connections/network.h"
#include "live/fabric/host_administration.h"
#include "live/fabric/host_services.h"
#include "rdma/wire/sa.h"

namespace tulle::live {

class HostConnections : private ConnectionNetwork {
 public:
  using Now = HostAdministration::Now;

  // `client` is this object's number at the services, which no program has. All that it is given
  // must outlive it.
  HostConnections(std::uint32_t host, std::uint32_t client, Now now, const fabric::Subnet& subnet,
                  HostServices& services, HostAdministration& administration);
  ~HostConnections() override;

  ConnectionService& service() { return service_; }
  // Takes a management datagram that came to this client, or that got no answer.
  void take(const HostServices::Delivery& delivery);
  // Does all that is due. Returns true if it has sent datagrams.
  bool progress();
  // Returns how long nothing is due; never if no timer runs.
  Time time_left() const;

 private:
  Result<DeviceInfo> describe(const DeviceChoice& choice) override;
  int check_is_local(const SocketAddress& address) override;
  int find_source(SocketAddress& source, const SocketAddress& destination) override;
  std::optional<Gid> gid_of(const SocketAddress& address) const override;
  std::optional<SocketAddress> other_address(const SocketAddress& address) const override;
  std::optional<ConnectionRoute> find_route(Asker asker, const DeviceInfo& device,
                                            const LocalAddress& local, const Gid& remote) override;
  std::optional<ConnectionGroup> join(Asker asker, PortSpace space, const SocketAddress& group,
                                      std::uint32_t qkey) override;
  void leave(PortSpace space, const SocketAddress& group) override;
  void send(const management::cm::Outgoing& datagram) override;
  bool receive(Time now, const Handle& handle) override;

  Gid gid_at(std::uint32_t host) const { return port_gid(subnet_, host); }
  std::uint16_t lid_at(std::uint32_t host) const;
  std::optional<std::uint32_t> host_with(std::uint16_t lid) const;
  std::optional<std::uint32_t> host_with(const Gid& gid) const;

  const std::uint32_t host_;
  const std::uint32_t client_;
  const Now now_;
  const fabric::Subnet& subnet_;
  HostServices& services_;
  HostAdministration& administration_;
  std::uint32_t agent_ = 0;
  std::vector<management::Packet> arrived_;
  bool has_sent_ = false;
  ConnectionService service_;
};

}  // namespace tulle::live
