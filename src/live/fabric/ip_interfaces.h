#pragma once

// The interfaces of IP over InfiniBand of a software fabric's hosts. Each is a network interface in
// the host's namespace (TUN), whose packets this process has, and behind it the state machine
// (management/ipoib/interface.h), which has its own place at the host's port.
//
// A host has an interface for each partition of its port: ib0 for the first, ib0.8001 for another.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "fabric/subnet.h"
#include "live/fabric/data_ports.h"
#include "live/fabric/host_administration.h"
#include "live/fabric/host_networks.h"
#include "live/fabric/interface_addresses.h"
#include "live/fabric/messages.h"
#include "management/ipoib/interface.h"
#include "os/unique_fd.h"

namespace tulle::live {

class IpInterfaces {
 public:
  struct Link;
  using AdministrationOf = std::function<HostAdministration&(std::uint32_t host)>;
  // Watches a descriptor for input, of which read() is to be told: for packets, each time that more
  // has come (EPOLLET), and for addresses, while there is some.
  enum class Source : std::uint8_t { packets, addresses };
  using Watch = std::function<void(int descriptor, Link& link, Source source)>;

  // All that it is given must outlive it.
  IpInterfaces(HostAdministration::Now now, const fabric::Subnet& subnet, DataPorts& ports,
               HostNetworks& networks, AdministrationOf administration_of, Watch watch);
  ~IpInterfaces();

  // The keeper has made a host's namespaces or an interface, or not.
  void take(Time now, HostNetworks::Answer answer);
  // Managers may have set ports.
  void follow(Time now);
  // A manager asks that the host register with it again.
  void register_anew(Time now, std::uint32_t host);
  // Returns the hosts that have interfaces.
  std::vector<std::uint32_t> hosts() const;

  void read(Time now, Link& link, Source source);
  // Sends what is to be sent. Returns true if there was something.
  bool progress(Time now);
  Time next_event() const { return busy_.empty() ? next_deadline_ : Time::zero(); }
  void rebase(Time by);

  std::vector<FabricInterface> status(std::uint32_t host) const;

 private:
  struct Host {
    std::optional<DataPorts::Own> port;
    std::vector<std::unique_ptr<Link>> links;
  };
  static constexpr std::size_t links_max = 32;  // of a host
  static constexpr int packets_in_a_turn = 64;
  static constexpr std::size_t held_max = 64;  // packets for which a port had no room

  void begin(Time now, std::uint32_t host);
  bool has_port(Time now, std::uint32_t host, Host& of);
  void read_packets(Time now, Link& link);
  void read_addresses(Time now, Link& link);
  Link* find(std::uint32_t host, const std::string& name);
  Link& add(std::uint32_t host, Host& of, Pkey partition);
  void follow(Time now, std::uint32_t host, Host& of);
  void receive(Time now, std::uint32_t host, std::span<const std::byte> packet);
  void offer(Time now, Link& link, std::span<const std::byte> packet);
  bool send_held(Time now, Link& link);
  bool progress(Time now, Link& link);
  template <typename Record>
  auto taker(Link& link, std::uint32_t question,
             void (ipoib::Interface::*take)(Time, std::uint32_t, const Record*));
  void ask(Link& link, const ipoib::Question& question);
  void settle(Link& link);
  void note(Link& link);

  const HostAdministration::Now now_;
  const fabric::Subnet& subnet_;
  DataPorts& ports_;
  HostNetworks& networks_;
  AdministrationOf administration_of_;
  Watch watch_;
  std::map<std::uint32_t, Host> hosts_;
  std::vector<Link*> busy_;   // there is something to do
  std::vector<Link*> stuck_;  // there is, once the port has room
  Time next_deadline_ = Time::never();
  std::vector<std::byte> buffer_;
};

}  // namespace tulle::live
