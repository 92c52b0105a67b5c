#pragma once

// The host agent's network: RoCE v2 over IP. The kernel's routing determines the addresses, an
// address is its GID, and management datagrams travel to the peer's QP1 over UDP. Devices whose
// addresses are used by RoCE v1 reach the QP1 of their neighbours by frames of Ethernet.

#include <cstdint>
#include <memory>
#include <vector>

#include "live/agent/known_devices.h"
#include "live/agent/management_port.h"
#include "live/agent/roce_v1_network.h"
#include "live/connections/network.h"
#include "live/security/seal.h"
#include "os/unique_fd.h"

namespace tulle::live {

class IpNetwork : public ConnectionNetwork {
 public:
  // `socket` is the socket of the agent's slot, and `slot_lock` its lock. `devices`, and a seal,
  // must outlive this object.
  IpNetwork(int socket, std::uint16_t port, UniqueFd slot_lock, KnownDevices& devices,
            Seal* seal = nullptr)
      : seal_(seal),
        port_(socket, port, seal),
        slot_lock_(std::move(slot_lock)),
        devices_(devices) {}

  int socket() const { return port_.socket(); }
  CaptureTap& tap() { return port_.tap(); }

  // Opens the way by RoCE v1's frames, if a program's device needs it and this process may. Returns
  // the descriptors to watch from now on.
  std::vector<int> open_roce_v1(const DeviceChoice& choice);
  // Returns the answers to questions for routes that had to wait.
  struct RouteFound {
    Asker asker;
    int error = 0;  // an errno; 0: there is a route
    ConnectionRoute route;
  };
  std::vector<RouteFound> take_routes();
  RoceV1Network::Clock::time_point next_deadline() const;

  Result<DeviceInfo> describe(const DeviceChoice& choice) override;
  int check_is_local(const SocketAddress& address) override;
  int find_source(SocketAddress& source, const SocketAddress& destination) override;
  std::optional<Gid> gid_of(const SocketAddress& address) const override { return address.gid(); }
  std::optional<ConnectionRoute> find_route(Asker asker, const DeviceInfo& device,
                                            const LocalAddress& local, const Gid& remote) override;
  // RoCE v2's groups are IP's: the group's GID is its address (IBTA A17.9.3, Linux's cma.c). No
  // subnet manager is involved.
  std::optional<ConnectionGroup> join(Asker, PortSpace, const SocketAddress& group,
                                      std::uint32_t) override {
    return ConnectionGroup{group.gid()};
  }
  void leave(PortSpace, const SocketAddress&) override {}
  void send(const management::cm::Outgoing& datagram) override;
  bool receive(Time now, const Handle& handle) override;
  void rebase(Time by) override;

 private:
  Seal* seal_;  // null: datagrams are plain
  ManagementPort port_;
  UniqueFd slot_lock_;
  void look_at_addresses();

  KnownDevices& devices_;
  std::unique_ptr<RoceV1Network> roce_v1_;  // null: no program has needed it, or it was refused
  std::uint64_t changes_seen_ = 0;
  struct Waiting {
    Asker asker;
    ConnectionRoute route;  // the answer, if there is a way
  };
  std::vector<Waiting> waiting_;
  std::vector<RouteFound> found_;
};

}  // namespace tulle::live
