#pragma once

// The fabric's own clients of its hosts' services: a connection manager for each host on which a
// program or a peer has needed one, and what asks subnet administration for the host.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/time.h"
#include "fabric/subnet.h"
#include "live/connections/connection_service.h"
#include "live/fabric/host_administration.h"
#include "live/fabric/host_connections.h"
#include "live/fabric/host_services.h"
#include "os/event_loop.h"

namespace tulle::live {

class HostClients {
 public:
  using Now = HostAdministration::Now;
  // These clients have the numbers from here on, and programs smaller ones.
  static constexpr std::uint32_t numbers_begin = 1u << 30;

  // What it is given must outlive it.
  HostClients(Now now, const fabric::Subnet& subnet, HostServices& services)
      : now_(std::move(now)), subnet_(subnet), services_(services) {}

  // Make what the host does not have yet.
  HostAdministration& administration_of(std::uint32_t host);
  HostConnections& connections_of(std::uint32_t host);
  // Returns the service of a host whose connection manager was made before.
  ConnectionService& service_of(std::uint32_t host) { return connections_.at(host)->service(); }
  std::uint32_t listener_count(std::uint32_t host) const;

  // Takes what came for one of these clients. Returns false if it is for a program.
  bool take(const HostServices::Delivery& delivery);
  // Does what is due. Returns true if a connection manager has sent datagrams. `loop` reports with
  // the tag 0 when a program reads again that did not.
  bool progress(EventLoop& loop);
  // Returns when progress() must be called although nothing has come.
  Time next_event() const { return due_; }
  // The connection managers have their own clocks.
  void rebase(Time by) { tulle::rebase(by, due_); }

 private:
  const Now now_;
  const fabric::Subnet& subnet_;
  HostServices& services_;
  std::map<std::uint32_t, std::unique_ptr<HostAdministration>> administrations_;  // by host
  std::map<std::uint32_t, std::unique_ptr<HostConnections>> connections_;         // by host
  // By host: the channels whose programs do not read.
  std::map<std::uint32_t, std::vector<ConnectionService::ChannelNumber>> blocked_;
  Time due_ = Time::never();
};

}  // namespace tulle::live
