#include "live/connections/endpoint_groups.h"

#include <algorithm>
#include <cerrno>

namespace tulle::live {
namespace {

// The most multicast groups that an endpoint joins.
constexpr std::size_t groups_max = 1024;

}  // namespace

int EndpointGroups::join(const ProgramChannel& channel, Endpoint& endpoint,
                         const SocketAddress& group) {
  if (!endpoint.has_device || !is_datagram(endpoint.space)) return EINVAL;
  if (group.family == 0 || !group.gid().is_multicast()) return EINVAL;
  if (endpoint.groups.size() >= groups_max || !channels_.may_ask_for_event(channel)) return ENOBUFS;
  if (!shares_.may_have_group(channel.owner)) return ENOBUFS;
  shares_.add_group(channel.owner);
  endpoint.groups.push_back(group);
  const auto joined = network_.join(endpoint.id, endpoint.space, group, qkey_of(endpoint));
  if (joined) take_group(endpoint.id, group, *joined);
  return 0;
}

void EndpointGroups::take_group(EndpointId asker, const SocketAddress& address,
                                Result<ConnectionGroup> group) {
  Endpoint* endpoint = endpoints_.find(asker);
  if (endpoint == nullptr) return;
  const auto found = std::find_if(endpoint->groups.begin(), endpoint->groups.end(),
                                  [&](const auto& each) { return each.gid() == address.gid(); });
  if (found == endpoint->groups.end()) return;
  event::MulticastJoined joined;
  joined.endpoint = asker;
  joined.qp_number = 0xFF'FFFF;
  joined.address = address.gid();
  joined.qkey = qkey_of(*endpoint);
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
    shares_.remove_groups(channels_.at(endpoint->channel).owner, 1);
    network_.leave(endpoint->space, address);
    joined.status = -group.error().error_number;
  }
  channels_.tell(*endpoint, joined);
}

int EndpointGroups::leave(const ProgramChannel& channel, Endpoint& endpoint,
                          const SocketAddress& group) {
  const Gid left = group.gid();
  const auto found = std::find_if(endpoint.groups.begin(), endpoint.groups.end(),
                                  [&](const SocketAddress& each) { return each.gid() == left; });
  if (found == endpoint.groups.end()) return EINVAL;
  endpoint.groups.erase(found);
  shares_.remove_groups(channel.owner, 1);
  network_.leave(endpoint.space, group);
  return 0;
}

}  // namespace tulle::live
