#pragma once

// A fabric's own subnet managers, with their subnet administration. Each connected part of the
// topology has one: at port 0 of a switch, as a managed switch has it, or at a host where there is
// no switch.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/time.h"
#include "fabric/subnet.h"
#include "management/administration/administration.h"
#include "management/subnet/manager.h"

namespace tulle::fabric {

// Returns the nodes at which managers are: in each connected part the first switch, or without
// switches the last host. Its GUID is higher than those of all other hosts, so that a program's
// manager of the same priority has precedence.
std::vector<std::uint32_t> places_of_managers(const Topology& topology);
// Returns for each node the number of the connected part to which it belongs.
std::vector<std::uint32_t> parts_of(const Topology& topology);

class SubnetManagers {
 public:
  // The subnet must outlive this object. Nobody but the managers may know the seed. `settings` are
  // the same for all, and their GUID is ignored.
  SubnetManagers(Time now, Subnet& subnet, management::subnet::ManagerSettings settings);
  SubnetManagers(const SubnetManagers&) = delete;
  SubnetManagers& operator=(const SubnetManagers&) = delete;

  std::size_t size() const { return managers_.size(); }
  std::uint32_t node(std::size_t index) const { return managers_[index]->node; }
  const management::subnet::Manager& manager(std::size_t index) const {
    return managers_[index]->manager;
  }
  const management::administration::Administration& administration(std::size_t index) const {
    return managers_[index]->administration;
  }

  // Says whether a program on a host is a subnet manager. A manager of the fabric that has the same
  // port rests as long.
  void set_program(Time now, std::uint32_t host, bool is_manager);
  // Returns true if a manager of the fabric works at that host, and no program's does.
  bool is_at(std::uint32_t host) const;
  // Does what is due, and sends what there is to send. Returns true if a datagram was sent.
  bool progress(Time now);
  // Gives a manager a datagram that has arrived at its node.
  void receive(Time now, const Subnet::Arrival& arrival);
  Time next_timeout() const;
  void rebase(Time by);

 private:
  struct Placed {
    std::uint32_t node = 0;
    std::uint8_t port = 0;
    wire::PortState state = wire::PortState::none;  // of the port, when it was last looked at
    management::subnet::Manager manager;
    management::administration::Administration administration;
  };

  static void expire_manager(Time now, Placed& placed);
  static bool take_packets(Time now, Placed& placed, Subnet& subnet);
  void place(Time now, std::uint32_t node, management::subnet::ManagerSettings settings);

  Subnet& subnet_;
  std::vector<std::unique_ptr<Placed>> managers_;
};

}  // namespace tulle::fabric
