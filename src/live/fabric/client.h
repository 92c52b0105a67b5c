#pragma once

// A program's side of a software fabric: the port of the host on which it runs.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/fabric/datagrams.h"
#include "live/fabric/messages.h"
#include "live/path/packets/capture_ring.h"
#include "os/unique_fd.h"

namespace tulle::live {

// The process of a fabric and a host in it, from TULLE_FABRIC and TULLE_HOST, which `tulle run
// --host` sets.
struct FabricPlace {
  std::string socket;  // empty: the program is on no fabric
  std::string host;
};
FabricPlace fabric_place();

// Returns the host's port as it is now.
Result<HostPort> describe_host(const FabricPlace& place);
// Returns the device that a host's port looks like to programs.
DeviceInfo device_of(const std::string& name, const HostPort& port);
// Opens the host's port for data.
struct FabricDataPort {
  DataPortOpened opened;
  UniqueFd connection;  // while it is open, the port is
  UniqueFd memory;
  UniqueFd button;  // of the fabric's bell
};
// `button` is that of the program's own bell. The caller keeps it.
Result<FabricDataPort> open_data_port(const FabricPlace& place, int button);
// Makes this process one of the host's IP network, where the hosts have their own networks. It must
// have one thread. Waits while the fabric makes the network.
Result<void> enter_host_network(const FabricPlace& place);
// Opens a channel to the connection manager of the host.
struct FabricChannel {
  std::uint32_t number = 0;
  UniqueFd commands;
  UniqueFd events;
};
Result<FabricChannel> open_fabric_channel(const FabricPlace& place);
// Returns the number of a fabric's process.
Result<int> fabric_process(const std::string& socket);
// Returns all nodes of a fabric.
Result<FabricNodes> fabric_status(const std::string& socket);
Result<FabricMachines> fabric_machines(const std::string& socket);
// Begins a capture of all links. It continues while the connection is open.
struct FabricCapture {
  UniqueFd connection;
  CaptureRing ring;
};
Result<FabricCapture> capture_fabric(const std::string& socket, std::uint32_t ring_bytes,
                                     std::uint32_t snap_length, bool has_flow_control);
// Cuts or joins a cable, or ends the fabric.
Result<void> command_fabric(const std::string& socket, FabricHello command);

// A host's port that is open for management datagrams.
class FabricPortClient {
 public:
  static Result<FabricPortClient> open(const FabricPlace& place);

  // Both wait for the fabric's answer. The error is an errno: EPERM if another agent has the class
  // and one of the methods, ENOMEM if there are too many agents.
  Result<std::uint32_t> add(const RegisterAgent& registration);
  Result<void> remove(std::uint32_t agent);

  // Returns the descriptor that is readable when a datagram has come.
  int descriptor() const { return datagrams_.get(); }
  // Gives the descriptor to the caller, who closes it.
  int release_descriptor() { return datagrams_.release(); }

 private:
  // Sends a message, and returns the agent's number from the answer.
  template <typename Message>
  Result<std::uint32_t> change(Message message, const char* refusal);

  UniqueFd connection_;
  UniqueFd datagrams_;
};

// Sends a datagram, as send_datagram() does, but waits for a moment if the fabric has not read the
// last ones.
Result<void> send_datagram_patiently(int descriptor, const Datagram& datagram);

}  // namespace tulle::live
