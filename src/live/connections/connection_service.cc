#include "live/connections/connection_service.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "live/message/socket.h"
#include "os/system_random.h"

namespace tulle::live {
namespace {

management::cm::Manager::Settings manager_settings(std::uint64_t guid) {
  management::cm::Manager::Settings settings;
  settings.ca_guid = guid;
  settings.random = RandomSource{system_random};
  return settings;
}

}  // namespace

ConnectionService::ConnectionService(ConnectionNetwork& network, std::uint64_t node_guid)
    : network_(network), random_(system_random), manager_(manager_settings(node_guid)) {
  next_endpoint_ = static_cast<std::uint32_t>(random_.next());
}

Result<UniqueFd> ConnectionService::open_channel(const Owner& owner, const DeviceChoice& device,
                                                 ChannelNumber& number) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Error{"cannot make a channel for events (too many open files?)", errno};
  }
  Channel channel;
  channel.events.reset(ends[0]);
  UniqueFd program_end(ends[1]);
  shutdown(ends[1], SHUT_WR);  // the program only receives
  while (next_channel_ == 0 || channels_.contains(next_channel_)) ++next_channel_;
  number = channel.number = next_channel_++;
  channel.owner = owner;
  channel.device = device;
  channels_[number] = std::move(channel);
  return program_end;
}

void ConnectionService::close_channel(ChannelNumber number) {
  const auto found = channels_.find(number);
  if (found == channels_.end()) return;
  // Nobody reads them any more, and each endpoint would look through all of them.
  found->second.waiting.clear();
  while (!found->second.endpoints.empty()) {
    destroy(*find(found->second.endpoints.back()), false);
  }
  // What is left was sent for endpoints that are in other channels now.
  auto& sent = found->second.requests_sent;
  while (!sent.empty()) drop_request(found->second, sent.begin()->first);
  channels_.erase(found);
  progress();
}

void ConnectionService::progress() {
  // The driver calls this once an hour or more often, so that now() never reaches its end.
  const Time at = clock_.now([this](Time by) {
    manager_.rebase(by);
    network_.rebase(by);
  });
  has_more_ = !network_.receive(
      at, [&](const management::cm::Route& route, std::span<const std::byte> payload) {
        manager_.handle(at, route, payload);
      });
  manager_.advance(at);
  handle_events();
  send_outgoing();
}

void ConnectionService::send_outgoing() {
  while (const management::cm::Outgoing* out = manager_.next_outgoing()) {
    network_.send(*out);
    manager_.pop_outgoing();
  }
}

ConnectionService::Endpoint* ConnectionService::find(EndpointId id) {
  const auto found = endpoints_.find(id.value);
  return found == endpoints_.end() ? nullptr : &found->second;
}

// A program names only endpoints on its own channel.
ConnectionService::Endpoint* ConnectionService::find(const Channel& channel, EndpointId id) {
  Endpoint* endpoint = find(id);
  return endpoint != nullptr && endpoint->channel == channel.number ? endpoint : nullptr;
}

ConnectionService::Endpoint& ConnectionService::create(Channel& channel, PortSpace space,
                                                       ConnectionQpType qp_type) {
  do {
    ++next_endpoint_;
  } while (next_endpoint_ == 0 || endpoints_.contains(next_endpoint_));
  Endpoint& endpoint = endpoints_[next_endpoint_];
  endpoint.id = EndpointId{next_endpoint_};
  endpoint.channel = channel.number;
  endpoint.space = space;
  endpoint.qp_type = qp_type;
  endpoint.psn = Psn(static_cast<std::uint32_t>(random_.next()));
  channel.endpoints.push_back(endpoint.id);
  ++held_[channel.owner.user].endpoints;
  held_by_limited_.endpoints += channel.owner.is_limited;
  return endpoint;
}

std::uint32_t ConnectionService::listener_count() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      endpoints_, [](const auto& entry) { return entry.second.listened_service != 0; }));
}

// Destroys an endpoint and ends its connection. A listener's requests that no program has seen are
// destroyed too. `may_return` means that the program lives and may listen there again.
void ConnectionService::destroy(Endpoint& endpoint, bool may_return) {
  Channel& channel = channels_.at(endpoint.channel);
  if (endpoint.connection != management::cm::ConnectionId{}) {
    manager_.release(now(), endpoint.connection);
    forget_connection(endpoint);
  }
  if (endpoint.listened_service != 0) {
    manager_.stop_listening(endpoint.listened_service);
    if (may_return) expect_return(channel, endpoint);
  }
  Held& held = held_.at(channel.owner.user);
  if (endpoint.source.port != 0 && !endpoint.is_passive) {
    ports_.release(endpoint.space, endpoint.source.port, endpoint.id);
    --held.ports;
    held_by_limited_.ports -= channel.owner.is_limited;
  }
  held_by_limited_.endpoints -= channel.owner.is_limited;
  held.groups -= endpoint.groups.size();
  if (--held.endpoints == 0) held_.erase(channel.owner.user);
  for (const SocketAddress& group : endpoint.groups) network_.leave(endpoint.space, group);
  forget_request(endpoint);
  const EndpointId id = endpoint.id;
  // A channel that closes destroys its last endpoint first, so that many take no time to find.
  auto& others = channel.endpoints;
  if (others.back() == id) {
    others.pop_back();
  } else {
    std::erase(others, id);
  }
  endpoints_.erase(id.value);
  std::vector<EndpointId> orphans;
  std::erase_if(channel.waiting, [&](const ConnectionEvent& event) {
    if (counted_with(event) != id) return false;
    const Endpoint* child = find(endpoint_of(event));
    if (child != nullptr && child->listener == id) orphans.push_back(child->id);
    return true;
  });
  for (const EndpointId orphan : orphans) {
    if (Endpoint* child = find(orphan)) destroy(*child, false);
  }
}

// The listener may return in either port space: perftest uses a connection in TCP's space to agree
// on a test in UDP's, at the same port.
void ConnectionService::expect_return(const Channel& channel, const Endpoint& endpoint) {
  expect_listener(channel, endpoint, PortSpace::tcp);
  expect_listener(channel, endpoint, PortSpace::udp);
}

void ConnectionService::expect_listener(const Channel& channel, const Endpoint& endpoint,
                                        PortSpace space) {
  const std::uint16_t port = endpoint.source.port;
  manager_.expect_listener(now(), wire::cm::ip_service_id(static_cast<std::uint16_t>(space), port),
                           channel.owner.user, address_of(endpoint));
}

// Returns where requests for the endpoint come to. On InfiniBand they may come by a LID.
Gid ConnectionService::address_of(const Endpoint& endpoint) {
  const bool has_address = endpoint.has_device && endpoint.local_lid == 0;
  return has_address ? endpoint.local.gid : Manager::any_address;
}

void ConnectionService::tell(Endpoint& endpoint, ConnectionEvent event) {
  Channel& channel = channels_.at(endpoint.channel);
  channel.waiting.push_back(std::move(event));
  send_waiting(channel);
}

void ConnectionService::send_waiting(Channel& channel) {
  while (!channel.is_held && !channel.waiting.empty()) {
    const ConnectionEvent& event = channel.waiting.front();
    if (auto sent = send_message(channel.events.get(), encode(EventMessage{event})); !sent) {
      // A socket that refuses for another reason, as that of a program which has closed its end, is
      // not full: it would count as writable at once, and never take an event.
      const int error = sent.error().error_number;
      channel.is_blocked = error == EAGAIN || error == ENOBUFS || error == ENOMEM;
      return;
    }
    ++channel.events_sent;
    const EndpointId counted_id = counted_with(event);
    Endpoint* counted = find(counted_id);
    Endpoint* made = counted_id != endpoint_of(event) ? find(endpoint_of(event)) : nullptr;
    if (counted != nullptr && made != nullptr) {
      forget_request(*made);
      made->request = {channel.number, channel.next_request++};
      channel.requests_sent[made->request->number] = {channel.events_sent, counted_id};
      ++counted->requests_sent;
    }
    if (counted != nullptr) ++counted->events_sent;
    channel.waiting.pop_front();
  }
}

void ConnectionService::note_taken(Channel& channel, std::uint32_t events_taken) {
  auto& sent = channel.requests_sent;
  while (!sent.empty() &&
         static_cast<std::int32_t>(events_taken - sent.begin()->second.position) >= 0) {
    drop_request(channel, sent.begin()->first);
  }
}

void ConnectionService::drop_request(Channel& channel, std::uint64_t number) {
  const auto request = channel.requests_sent.find(number);
  if (request == channel.requests_sent.end()) return;
  if (Endpoint* listener = find(request->second.listener)) --listener->requests_sent;
  channel.requests_sent.erase(request);
}

void ConnectionService::forget_request(Endpoint& endpoint) {
  const auto name = std::exchange(endpoint.request, std::nullopt);
  const auto channel = name ? channels_.find(name->channel) : channels_.end();
  if (channel != channels_.end()) drop_request(channel->second, name->number);
}

std::vector<std::pair<int, ConnectionService::ChannelNumber>> ConnectionService::take_blocked() {
  std::vector<std::pair<int, ChannelNumber>> blocked;
  for (auto& [number, channel] : channels_) {
    if (std::exchange(channel.is_blocked, false)) {
      blocked.emplace_back(channel.events.get(), number);
    }
  }
  return blocked;
}

void ConnectionService::flush(ChannelNumber number) {
  const auto found = channels_.find(number);
  if (found != channels_.end()) send_waiting(found->second);
}

Result<DeviceInfo> ConnectionService::describe(const Channel& channel) {
  return network_.describe(channel.device);
}

HeldBy ConnectionService::holder_of(const DeviceChoice& device, std::size_t gid_index) const {
  HeldBy holder = HeldBy::nobody;
  for (const auto& [id, endpoint] : endpoints_) {
    if (!endpoint.has_device || endpoint.local.gid_index != gid_index) continue;
    const Channel& channel = channels_.at(endpoint.channel);
    if (channel.device != device) continue;
    const bool is_limited = channel.owner.is_limited;
    holder = std::max(holder, is_limited ? HeldBy::limited_users : HeldBy::own_user);
  }
  return holder;
}

}  // namespace tulle::live
