#pragma once

// The IP network of a software fabric's hosts. Each host is a set of namespaces: it has its own
// hostname, an Ethernet interface with its own address, and a file of all hosts' names. A bridge
// joins the hosts. They reach one another by IP, and nothing else.
//
// A separate process, the keeper, makes the namespaces, so that the fabric's process never waits
// for it. Without privileges, all of them are in one user namespace, in which the fabric's user is
// the same user. The namespaces have no names: they go when the fabric and the programs in them
// have ended, however these end.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "live/message/socket.h"
#include "os/unique_fd.h"

namespace tulle::live {

// Returns the IPv4 address of a host, as text: 10.0.0.1 is that of h0. All are in 10.0.0.0/16,
// which has room for more hosts than a subnet has LIDs.
std::string host_address(std::uint32_t host);
std::array<std::uint8_t, 4> host_address_bytes(std::uint32_t host);
// Returns the host that has the address in one of the two networks, or nothing.
std::optional<std::uint32_t> host_at_address(std::span<const std::uint8_t, 4> address);

// Returns the IPv4 address of a host's first interface of IP over InfiniBand, in the same way:
// 10.1.0.1 is that of h0, in 10.1.0.0/16.
std::string infiniband_address(std::uint32_t host);
std::array<std::uint8_t, 4> infiniband_address_bytes(std::uint32_t host);

struct KeeperRequest;  // live/fabric/network_keeper.h

class HostNetworks {
 public:
  // Starts the keeper, and waits until it has made the bridge. The file of names goes to `folder`.
  // `is_elsewhere` says it of each host: the bridge does not lead to another machine's hosts, whose
  // names are those of their addresses of IP over InfiniBand. The error says what this machine
  // lacks, or does not allow.
  static Result<HostNetworks> start(const std::string& folder,
                                    const std::vector<bool>& is_elsewhere);
  HostNetworks(HostNetworks&&) = default;
  HostNetworks& operator=(HostNetworks&&) = delete;
  ~HostNetworks();

  // Returns the descriptors of a host's namespaces, in the order in which a program enters them;
  // none if they have not been made.
  std::span<const UniqueFd> find(std::uint32_t host) const;
  // Returns whether the host has its namespaces, and all interfaces that were asked for: without
  // them it has no route to the addresses behind them.
  bool is_made(std::uint32_t host) const;
  // Asks the keeper to make a host's namespaces. The answer comes to take_answers().
  Result<void> ask(std::uint32_t host);
  // Asks for all hosts that have not been made, so that they can be reached before a program enters
  // them. Those of a large fabric wait for one.
  void ask_for_all();

  // Says why there can be no interfaces of IP over InfiniBand; empty if there can be.
  const std::string& no_interfaces() const { return no_interfaces_; }
  // Asks for an interface of a host, whose namespaces have been made, with these addresses.
  Result<void> ask_for_interface(std::uint32_t host, const std::string& name, std::size_t mtu,
                                 std::span<const std::string> addresses);
  // Changes the longest packet of an interface.
  void set_mtu(std::uint32_t host, const std::string& name, std::size_t mtu);

  // The descriptor is readable when an answer has come, and closed once the keeper has ended.
  int descriptor() const { return keeper_.get(); }
  struct Answer {
    std::uint32_t host = 0;
    std::string interface {};  // empty: the answer is about the namespaces, which find() has
    std::string reason{};      // why there is none; empty: it was made
    int index = 0;             // of the interface
    UniqueFd packets{};        // to and from the interface
    UniqueFd addresses{};      // a socket of NETLINK_ROUTE, which tells of changes
  };
  // Calls `answered` with each host and interface that was asked for and is settled now.
  using Answered = std::function<void(Answer answer)>;
  void take_answers(const Answered& answered);

 private:
  HostNetworks(UniqueFd keeper, pid_t process, std::string file,  // without a bridge
               const std::vector<bool>& is_elsewhere)
      : keeper_(std::move(keeper)),
        process_(process),
        file_(std::move(file)),
        is_elsewhere_(is_elsewhere) {}

  Result<void> send(const KeeperRequest& request);
  Result<void> ask(const KeeperRequest& request);
  Answer read_answer(ReceivedMessage& message);

  UniqueFd keeper_;
  std::vector<UniqueFd> bridge_;  // the bridge's namespace
  pid_t process_;
  std::string file_;                // of names
  std::vector<bool> is_elsewhere_;  // by host
  std::map<std::uint32_t, std::vector<UniqueFd>> made_;
  std::set<std::pair<std::uint32_t, std::string>> asked_;  // hosts and interfaces
  std::string no_interfaces_;
};

}  // namespace tulle::live
