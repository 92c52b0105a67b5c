// The multicast groups that endpoints join.

#include <algorithm>
#include <cerrno>

#include "live/connections/connection_service.h"

namespace tulle::live {
namespace {

// The most multicast groups that an endpoint joins.
constexpr std::size_t groups_max = 1024;
// The most that all endpoints of a user join who is limited (ConnectionService::Owner).
constexpr std::size_t users_groups_max = 16'384;

}  // namespace

int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::JoinMulticast& command) {
  const SocketAddress& group = command.group;
  if (!endpoint.has_device || !is_datagram(endpoint.space)) return EINVAL;
  if (group.family == 0 || !group.gid().is_multicast()) return EINVAL;
  if (endpoint.groups.size() >= groups_max || channel.waiting.size() >= events_waiting_max ||
      !may_wait(channel, 1)) {
    return ENOBUFS;
  }
  Held& held = held_.at(channel.owner.user);
  if (channel.owner.is_limited && held.groups >= users_groups_max) return ENOBUFS;
  ++held.groups;
  endpoint.groups.push_back(group);
  const std::uint32_t qkey = endpoint.qkey != 0 ? endpoint.qkey : default_qkey;
  const auto joined = network_.join(endpoint.id, endpoint.space, group, qkey);
  if (joined) take_group(endpoint.id, group, *joined);
  return 0;
}

void ConnectionService::take_group(EndpointId asker, const SocketAddress& address,
                                   Result<ConnectionGroup> group) {
  Endpoint* endpoint = find(asker);
  if (endpoint == nullptr) return;
  const auto found = std::find_if(endpoint->groups.begin(), endpoint->groups.end(),
                                  [&](const auto& each) { return each.gid() == address.gid(); });
  if (found == endpoint->groups.end()) return;
  event::MulticastJoined joined;
  joined.endpoint = asker;
  joined.qp_number = 0xFF'FFFF;
  joined.address = address.gid();
  joined.qkey = endpoint->qkey != 0 ? endpoint->qkey : default_qkey;
  joined.path = path_of(*endpoint);
  joined.path.destination = address.gid();
  joined.path.hop_limit = 1;  // the default of IP multicast
  if (group) {
    joined.path.destination = group->gid;
    joined.path.lid = group->lid;
    joined.path.service_level = group->service_level;
    joined.path.is_global = true;
  } else {
    endpoint->groups.erase(found);
    --held_.at(channels_.at(endpoint->channel).owner.user).groups;
    network_.leave(endpoint->space, address);
    joined.status = -group.error().error_number;
  }
  tell(*endpoint, joined);
}

int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::LeaveMulticast& command) {
  const Gid left = command.group.gid();
  const auto found = std::find_if(endpoint.groups.begin(), endpoint.groups.end(),
                                  [&](const SocketAddress& group) { return group.gid() == left; });
  if (found == endpoint.groups.end()) return EINVAL;
  endpoint.groups.erase(found);
  --held_.at(channel.owner.user).groups;
  network_.leave(endpoint.space, command.group);
  return 0;
}

}  // namespace tulle::live
