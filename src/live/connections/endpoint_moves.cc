#include "live/connections/endpoint_moves.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "os/users.h"

namespace tulle::live {

int EndpointMoves::give_back(ProgramChannel& channel, const command::GiveBack& command) {
  if (!channels_.take_back(channel, command.events)) return ENOBUFS;
  if (command.more_follow) return 0;
  put_back(channel, channel, {});
  return 0;
}

// Puts the events that the channel's program has given back in front of the waiting ones. Events of
// `moved` go to the channel `to` and others back to this channel. Events of endpoints that no
// longer exist, and requests that the program invented, are dropped.
void EndpointMoves::put_back(ProgramChannel& channel, ProgramChannel& to, EndpointId moved) {
  std::vector<ConnectionEvent> events = std::exchange(channel.given_back, {});
  std::deque<ConnectionEvent> kept;
  const auto find_own = [&](EndpointId id) {
    Endpoint* endpoint = endpoints_.find(channel.number, id);
    return endpoint != nullptr ? endpoint : endpoints_.find(to.number, id);
  };
  for (ConnectionEvent& event : events) {
    const EndpointId counted_id = counted_with(event);
    Endpoint* counted = find_own(counted_id);
    Endpoint* child = counted_id != endpoint_of(event) ? find_own(endpoint_of(event)) : nullptr;
    const bool is_request = child != nullptr && child->listener == counted_id;
    if (counted == nullptr) {
      // A request of a listener that is gone goes with it.
      if (is_request) resources_.destroy(*child, false);
      continue;
    }
    if (counted_id != endpoint_of(event) && !is_request) continue;
    if (counted->events_sent == 0) continue;  // the agent never sent this event
    --counted->events_sent;
    if (is_request) channels_.forget_request(*child);
    (counted_id == moved ? to.waiting : kept).push_back(std::move(event));
  }
  channel.waiting.insert(channel.waiting.begin(), kept.begin(), kept.end());
  channel.is_held = false;
  channels_.send_waiting(channel);
  if (&to != &channel) channels_.send_waiting(to);
}

int EndpointMoves::migrate(ProgramChannel& from, Endpoint& endpoint,
                           const command::Migrate& command) {
  if (!channels_.take_back(from, command.events)) return ENOBUFS;
  ProgramChannel* const found = channels_.find(command.channel);
  const bool is_own =
      found != nullptr && found->owner == from.owner && is_known_user(from.owner.user);
  if (!is_own || !channels_.may_wait(*found, from.given_back.size())) {
    put_back(from, from, {});
    return is_own ? ENOBUFS : EINVAL;
  }
  ProgramChannel& to = *found;
  const auto counts_with_it = [&](const ConnectionEvent& event) {
    return counted_with(event) == endpoint.id;
  };
  const auto move_owner = [&](EndpointId id) {
    Endpoint* moved = endpoints_.find(from.number, id);
    const bool is_of_it = moved != nullptr && (id == endpoint.id || moved->listener == endpoint.id);
    if (!is_of_it || moved->channel == to.number) return;
    channels_.forget_request(*moved);
    to.endpoints.push_back(id);
    moved->channel = to.number;
  };
  auto& waiting = from.waiting;
  const auto rest = std::stable_partition(
      waiting.begin(), waiting.end(), [&](const auto& event) { return !counts_with_it(event); });
  std::deque<ConnectionEvent> moving(rest, waiting.end());
  waiting.erase(rest, waiting.end());
  // Requests that no program has seen move with their listener.
  for (const ConnectionEvent& event : moving) move_owner(endpoint_of(event));
  for (const ConnectionEvent& event : from.given_back) {
    if (counts_with_it(event)) move_owner(endpoint_of(event));
  }
  move_owner(endpoint.id);
  if (to.number != from.number) {
    std::erase_if(from.endpoints,
                  [&](EndpointId id) { return endpoints_.find(id)->channel == to.number; });
  }
  put_back(from, to, endpoint.id);
  to.waiting.insert(to.waiting.end(), moving.begin(), moving.end());
  channels_.send_waiting(to);
  return 0;
}

}  // namespace tulle::live
