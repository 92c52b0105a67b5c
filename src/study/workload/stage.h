#pragma once

// The services of the driver that moves the adapters on which flows are played, and what hosts tell
// each other before they send.

#include <cstdint>
#include <functional>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/device/adapter.h"

namespace tulle::workload {

// The way in which a host is to send to another, as a subnet manager reports it (IBTA 15.2.5.16:
// PathRecord).
struct PathRecord {
  std::uint8_t service_level = 0;
  std::uint16_t pkey_index = 0;
};

// The services of the driver that moves the adapters.
struct Stage {
  std::function<device::Adapter&(std::uint32_t host)> adapter;
  // Called after a request was posted at a host.
  std::function<void(std::uint32_t host)> attend;
  // Asks the driver to call handle_alarm() at that time.
  std::function<void(Time at, std::uint32_t host, std::uint32_t token)> alarm;
  // Returns the address of a host's port; path_bits selects one of its 2^LMC LIDs.
  std::function<PortAddress(std::uint32_t host, std::uint8_t path_bits)> address;
  // An event at one host can affect another host only this much later.
  Time lookahead;
  // Returns the path for traffic of a QoS level. If empty, the QoS level is the service level.
  // path_bits selects one of the host's 2^LMC paths.
  std::function<PathRecord(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
                           std::uint8_t path_bits)>
      path = {};
  // Asks the driver to call meet_request() for a host, which may be another than that of the event,
  // before anything reaches it that is sent from now on, with the same token and note. If empty,
  // the player calls it at once.
  std::function<void(std::uint32_t host, std::uint32_t token, std::uint32_t note)> request = {};
  // Returns true if the driver has the host's adapter. If empty, it has all of them. Nothing is
  // asked of the adapters of other hosts, which another process has.
  std::function<bool(std::uint32_t host)> has = {};
  bool has_host(std::uint32_t host) const { return !has || has(host); }
};

// A host's peers must know this before they send to it. Programs tell each other by other ways than
// the network, such as a socket.
struct Introduction {
  std::uint32_t host = 0;
  RemoteKey key;    // of its memory
  QpNumber by_srd;  // its queue pair with SRD
};

}  // namespace tulle::workload
