#pragma once

// The hosts of a software fabric, as their programs see them: management datagrams in and out, and
// the state of the port.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/subnet.h"
#include "fabric/subnet_managers.h"
#include "live/fabric/messages.h"
#include "management/datagram_service.h"

namespace tulle::live {

inline constexpr std::uint8_t host_port = 1;  // the number of a host's only port

class HostServices {
 public:
  using Delivery = management::DatagramService::Delivery;

  // The subnet and its managers must outlive this object. Null means that it has no managers.
  HostServices(fabric::Subnet& subnet, fabric::SubnetManagers* managers)
      : subnet_(subnet), managers_(managers), hosts_(subnet.topology().adapters()) {}

  HostPort describe(std::uint32_t host, const std::string& manager_file) const;
  InfinibandPort port_of(std::uint32_t host) const;
  // Returns true, once, if a manager has asked that the programs of a host register again.
  bool take_reregistration(std::uint32_t host) {
    return subnet_.take_reregistration(host, host_port);
  }
  PortCounters counters(std::uint32_t host) const;
  FabricNode node_status(std::uint32_t node) const;

  // A client is one opening of a host's port. Programs of newer releases open it twice, for QP0 and
  // for QP1.
  void enter(std::uint32_t host, std::uint32_t client, pid_t process) {
    hosts_[host].clients[client] = process;
    if (process > 0) hosts_[host].service.enter(client, static_cast<std::uint32_t>(process));
  }
  void leave(std::uint32_t host, std::uint32_t client);
  // Registers a program's agent. Datagrams of connection managers are the fabric's, as they are
  // Linux's on hardware (EPERM).
  AgentRegistered add(std::uint32_t host, std::uint32_t client, const RegisterAgent& registration);
  // Registers an agent of the fabric's own, which must not be refused. Returns its number.
  std::uint32_t add_own(std::uint32_t host, std::uint32_t client,
                        const RegisterAgent& registration);
  AgentRegistered remove(std::uint32_t host, std::uint32_t client, std::uint32_t agent);

  // Calls `begin` with a host to which the first datagram for its connection manager has come, so
  // that there is one.
  void on_connection_datagram(std::function<void(std::uint32_t host)> begin) {
    begin_connections_ = std::move(begin);
  }

  // Returns whether a program's datagram of so many bytes could be sent now. `first` has the first
  // ones, at least those of a packet.
  bool can_send(std::uint32_t host, std::uint32_t client, const Datagram& first,
                std::size_t bytes) const;
  // Sends a program's datagram. One that cannot be sent comes back with a status.
  void send(Time now, std::uint32_t host, std::uint32_t client, Datagram datagram);
  // Lets a datagram come back that cannot be sent.
  void give_back(std::uint32_t host, std::uint32_t client, const Datagram& datagram);
  // Moves all datagrams, and gives those that have come to the caller.
  using Deliver = std::function<void(Delivery delivery)>;
  void progress(Time now, const Deliver& deliver);
  Time next_timeout() const;
  void rebase(Time by) {
    for (Host& host : hosts_) host.service.rebase(by);
  }
  // Says whether a program on a host is a subnet manager.
  void set_manager(Time now, std::uint32_t host, bool is_manager);
  Datagram as_message(std::uint32_t host, Delivery delivery) const;

 private:
  struct Host {
    management::DatagramService service;
    std::map<std::uint32_t, pid_t> clients;
  };

  AgentRegistered add_any(std::uint32_t host, std::uint32_t client,
                          const RegisterAgent& registration);
  bool is_for_managers(const fabric::Subnet::Arrival& arrival) const;
  management::DatagramService::Question question_of(std::uint32_t host,
                                                    const Datagram& datagram) const;
  void give_back(std::uint32_t client, const Datagram& datagram, const management::Packet& packet);
  void receive(Time now, const fabric::Subnet::Arrival& arrival, const Deliver& deliver);

  fabric::Subnet& subnet_;
  fabric::SubnetManagers* managers_;
  std::vector<Host> hosts_;
  std::vector<Delivery> refused_;
  std::function<void(std::uint32_t host)> begin_connections_;
};

// Returns the link of this machine between two ends, each a node or a node and its port: "h0",
// "leaf1:3".
Result<std::uint32_t> find_cable(const fabric::Subnet& subnet,
                                 const std::array<std::string, 2>& ends);

}  // namespace tulle::live
