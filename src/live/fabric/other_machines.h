#pragma once

// The other machines of a software fabric: a UDP socket for the datagrams that go between the
// processes (fabric/machines/tunnels.h).

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "fabric/machines/placement.h"
#include "fabric/machines/tunnels.h"
#include "live/fabric/messages.h"
#include "live/security/seal.h"
#include "os/unique_fd.h"

namespace tulle::live {

// An address that names no port means this one. No other service has it (IANA).
inline constexpr std::uint16_t machines_port = 24'791;

// The socket of this machine, and the addresses of all.
class MachineSocket {
 public:
  // Opens the socket at the address of one of the machines: of the one that is named, or else of
  // the first whose address is this machine's and which no other process has. With a key file,
  // datagrams are sealed, and others are not taken: without one, any user of a machine that is down
  // can take its place. The error is one line for a person.
  static Result<MachineSocket> open(const std::vector<fabric::Machine>& machines,
                                    const std::string& named, const std::string& key_file);

  std::uint32_t own() const { return own_; }
  int descriptor() const { return fd_.get(); }
  const std::vector<sockaddr_storage>& addresses() const { return addresses_; }
  Seal* seal() const { return seal_.get(); }  // null: datagrams are not sealed

 private:
  MachineSocket() = default;

  UniqueFd fd_;
  std::uint32_t own_ = 0;
  std::vector<sockaddr_storage> addresses_;
  std::unique_ptr<Seal> seal_;
};

class OtherMachines {
 public:
  // `machine_of` is the number of the machine that has each node. The subnet and its traffic must
  // outlive this object.
  OtherMachines(Time now, MachineSocket socket, const std::vector<fabric::Machine>& machines,
                const std::vector<std::uint32_t>& machine_of, fabric::Subnet& subnet,
                fabric::SubnetTraffic& traffic);
  ~OtherMachines();

  // The descriptor is to be watched for input, and for room while it wants some (EPOLLET).
  int descriptor() const { return socket_.descriptor(); }
  bool wants_room() const { return !may_send_; }
  void wake() { may_read_ = may_send_ = true; }
  // Reads what has come. Returns true if there is more.
  bool read(Time now);
  // Returns true, once, if something has come that the subnet must look at.
  bool take_news() { return tunnels_.take_news(); }
  // Tells the others what has changed in the subnet here.
  void follow() { tunnels_.follow(); }
  // Does what is due.
  void run(Time now);
  // Sends what there is to send. Returns true if packets with data had to wait, and need not any
  // more.
  bool send();
  Time next_event() const { return tunnels_.next_event(); }
  void rebase(Time by) {
    tunnels_.rebase(by);
    if (Seal* const seal = socket_.seal()) seal->rebase(by);
  }

  // Returns the name of the machine that has a node.
  const std::string& name_of(std::uint32_t node) const;
  std::vector<FabricMachine> status() const;

 private:
  struct Buffers;

  wire::IpUdp headers(std::uint32_t from, std::uint32_t to) const;
  std::span<const std::byte> datagram_to_send(const fabric::Tunnels::Outgoing& outgoing,
                                              std::span<std::byte> room);

  MachineSocket socket_;
  const std::vector<fabric::Machine> machines_;
  fabric::Tunnels tunnels_;
  std::unique_ptr<Buffers> buffers_;
  bool may_read_ = true;
  bool may_send_ = true;
};

}  // namespace tulle::live
