#pragma once

// The endpoints of all programs of a host, by their numbers and by their connections.

#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/random_source.h"
#include "live/connections/endpoint.h"
#include "live/slots.h"

namespace tulle::live {

class EndpointTable {
 public:
  // The numbers begin anywhere. `random` also gives each endpoint its starting PSN.
  explicit EndpointTable(RandomSource random);

  // Adds an endpoint. It stays where it is until it is erased.
  Endpoint& create(ChannelNumber channel, PortSpace space, ConnectionQpType qp_type);
  // The endpoint has no connection any more.
  void erase(EndpointId id);

  // Finds an endpoint that this host itself names.
  Endpoint* find(EndpointId id);
  // Finds an endpoint that a program names. A program names only endpoints on its own channel.
  Endpoint* find(ChannelNumber channel, EndpointId id);
  Endpoint* find(management::cm::ConnectionId connection);
  const std::unordered_map<std::uint32_t, Endpoint>& all() const { return endpoints_; }

  void set_connection(Endpoint& endpoint, management::cm::ConnectionId connection);
  void forget_connection(Endpoint& endpoint);
  // Notes the queue pair that an endpoint's connection has on this side. Number 0 is nobody's.
  void set_queue_pair(Endpoint& endpoint, QpNumber number);
  // Returns the endpoints whose connections have, or had, such queue pairs.
  std::vector<EndpointId> with_queue_pairs(QpNumbers numbers) const;

 private:
  void forget_queue_pair(const Endpoint& endpoint);

  RandomSource random_;
  std::unordered_map<std::uint32_t, Endpoint> endpoints_;
  std::unordered_map<std::uint32_t, EndpointId> by_connection_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> by_queue_pair_;  // numbers, and endpoints' IDs
  std::uint32_t next_ = 0;
};

}  // namespace tulle::live
