#pragma once

// Devices as libibumad shows them, and the two kinds of ports that programs open on them: a RoCE
// port of this machine, and the InfiniBand port of a host of a software fabric.

#include <infiniband/umad.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/fabric/client.h"
#include "live/process/device.h"
#include "os/unique_fd.h"

namespace tulle::shim::umad {

// A device with its only port.
struct Device {
  std::string name;
  std::uint64_t node_guid = 0;
  std::uint64_t port_guid = 0;
  std::uint64_t gid_prefix = 0;
  std::uint8_t state = 0;  // values of PortInfo
  std::uint8_t physical_state = 0;
  std::uint16_t lid = 0;
  std::uint8_t lmc = 0;
  std::uint16_t sm_lid = 0;
  std::uint8_t sm_sl = 0;
  std::uint32_t capabilities = 0;
  std::uint32_t gigabits_per_second = 0;
  const char* link_layer = "";
  std::vector<std::uint16_t> pkeys;
  std::string manager_file;  // a subnet manager holds this file open; empty: there is none
  live::DeviceInfo roce;     // of a RoCE port

  // Returns true if the port is up, whether or not a subnet manager has made it active.
  bool has_link() const;
};

// Returns the devices of this host. Returns none, and prints a line to standard error, if the host
// agent or the fabric cannot be asked.
std::vector<Device> devices();
// Does the same without a line.
Result<std::vector<Device>> find_devices();
// Returns the device of that name, or the first one for a null name. Returns null if there is none.
// The result points into `all`.
const Device* find_device(const std::vector<Device>& all, const char* name);

inline constexpr int only_port = 1;
// 0 means any port.
constexpr bool is_port(int number) { return number == 0 || number == only_port; }

// A datagram as it crosses the API: the fields in front, and what follows. One of a transaction of
// many packets has any length, and all others 256 bytes, of which a program may leave the last out.
struct Envelope {
  static constexpr std::size_t usual_bytes = 256;

  // The C type ends in an array of no bytes, which C++ does not allow within another type.
  alignas(ib_user_mad_t) std::array<std::byte, sizeof(ib_user_mad_t)> head{};
  std::vector<std::byte> mad;

  ib_user_mad_t& header() { return *reinterpret_cast<ib_user_mad_t*>(head.data()); }
  const ib_user_mad_t& header() const {
    return *reinterpret_cast<const ib_user_mad_t*>(head.data());
  }
};

struct Registration {
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint32_t oui = 0;
  std::array<std::uint64_t, 2> methods{};
  bool has_transactions = false;  // the port cuts long datagrams into segments, and joins them
};

// An open port. The program has a descriptor that is readable when a datagram has come.
class OpenPort {
 public:
  OpenPort() = default;
  OpenPort(const OpenPort&) = delete;
  OpenPort& operator=(const OpenPort&) = delete;
  virtual ~OpenPort() = default;

  // Each returns 0 or an errno.
  virtual int add(const Registration& registration, int& agent) = 0;
  virtual int remove(int agent) = 0;
  virtual bool has(int agent) const = 0;
  virtual int send(int descriptor, const Envelope& envelope) = 0;
  // ENOSPC if the datagram is longer than `room`: it stays, and mad has its size.
  virtual int receive(int descriptor, std::size_t room, Envelope& envelope) = 0;
  // Returns the size of the longest datagram that may be sent.
  virtual std::size_t longest() const { return Envelope::usual_bytes; }
};

struct OpenedPort {
  std::shared_ptr<OpenPort> port;
  int descriptor = -1;  // the caller's
};
Result<OpenedPort> open_roce_port(const Device& device);
Result<OpenedPort> open_fabric_port();

// Prints the reason to standard error, once a process.
void say_once(const Error& error);

// Sets errno and returns it negated, as the API's calls do.
int fail(int error);

}  // namespace tulle::shim::umad
