#include "live/fabric/host_clients.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace tulle::live {
namespace {

// A client's number has its host in the lower bits.
constexpr std::uint32_t own_clients = 1u << 31;
constexpr std::uint32_t administration_clients = HostClients::numbers_begin;

}  // namespace

HostAdministration& HostClients::administration_of(std::uint32_t host) {
  auto& administration = administrations_[host];
  if (administration == nullptr) {
    administration = std::make_unique<HostAdministration>(
        host, own_clients | administration_clients | host, now_, subnet_, services_);
  }
  return *administration;
}

HostConnections& HostClients::connections_of(std::uint32_t host) {
  auto& connections = connections_[host];
  if (connections == nullptr) {
    connections = std::make_unique<HostConnections>(host, own_clients | host, now_, subnet_,
                                                    services_, administration_of(host));
  }
  return *connections;
}

std::uint32_t HostClients::listener_count(std::uint32_t host) const {
  const auto found = connections_.find(host);
  return found != connections_.end() ? found->second->service().listener_count() : 0;
}

bool HostClients::take(const HostServices::Delivery& delivery) {
  if ((delivery.client & own_clients) == 0) return false;
  const std::uint32_t host = delivery.client & ~(own_clients | administration_clients);
  if ((delivery.client & administration_clients) != 0) {
    administrations_.at(host)->take(delivery);
  } else {
    connections_.at(host)->take(delivery);
  }
  return true;
}

bool HostClients::progress(EventLoop& loop) {
  bool has_sent = false;
  due_ = Time::never();
  for (auto& [host, connections] : connections_) {
    has_sent = connections->progress() || has_sent;
    const Time left = connections->time_left();
    if (!left.is_never()) due_ = std::min(due_, now_() + left);
    ConnectionService& service = connections->service();
    for (const auto channel : std::exchange(blocked_[host], {})) service.flush(channel);
    // An event tells that the program reads again. Then all that is blocked is tried.
    for (const auto& [socket, channel] : service.take_blocked()) {
      blocked_[host].push_back(channel);
      loop.watch(socket, EPOLLOUT | EPOLLONESHOT);
    }
  }
  return has_sent;
}

}  // namespace tulle::live
