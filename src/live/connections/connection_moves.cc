// Events that a program gives back because it had not taken them, and endpoints that move between
// its channels.

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "live/connections/connection_service.h"
#include "os/users.h"

namespace tulle::live {
namespace {

// Limits the events that a program gives back; its socket holds far fewer.
constexpr std::size_t given_back_max = 4096;
// Limits each of them: no event that the agent sends is half as long.
constexpr std::size_t given_back_bytes_max = 2048;
// Limits all events that wait for the programs of a user who is limited, and that these programs
// have asked for or given back.
constexpr std::size_t waiting_of_limited_max = 65'536;

}  // namespace

int ConnectionService::run(Channel& channel, Endpoint&, command::Hold&) {
  channel.is_held = true;
  return 0;
}

int ConnectionService::run(Channel& channel, command::GiveBack& command) {
  if (!take_back(channel, command.events)) return ENOBUFS;
  if (command.more_follow) return 0;
  give_back(channel, channel, {}, std::exchange(channel.given_back, {}));
  return 0;
}

// Returns false if the program gives back more than it can have got, or has too much waiting.
bool ConnectionService::take_back(Channel& channel, const std::vector<ConnectionEvent>& events) {
  auto& all = channel.given_back;
  if (all.size() + events.size() > given_back_max) return false;
  const bool are_possible = std::ranges::all_of(events, [](const ConnectionEvent& event) {
    return encode(EventMessage{event}).size() <= given_back_bytes_max;
  });
  if (!are_possible || !may_wait(channel, all.size() + events.size())) return false;
  all.insert(all.end(), events.begin(), events.end());
  return true;
}

// Returns true if so many more events may wait for the channel's program because of commands.
bool ConnectionService::may_wait(const Channel& channel, std::size_t more) const {
  if (channel.waiting.size() + more > events_waiting_max + given_back_max) return false;
  if (!channel.owner.is_limited) return true;
  std::size_t all = more;
  for (const auto& [number, each] : channels_) {
    if (each.owner.user == channel.owner.user) all += each.waiting.size() + each.given_back.size();
  }
  return all <= waiting_of_limited_max;
}

// Puts events that the program had not taken from the channel's socket in front of the waiting
// ones. Events of `moved` go to the channel `to` and others back to this channel. Events of
// endpoints that no longer exist, and requests that the program invented, are dropped.
void ConnectionService::give_back(Channel& channel, Channel& to, EndpointId moved,
                                  std::vector<ConnectionEvent> events) {
  std::deque<ConnectionEvent> kept;
  const auto find_own = [&](EndpointId id) {
    Endpoint* endpoint = find(channel, id);
    return endpoint != nullptr ? endpoint : find(to, id);
  };
  for (ConnectionEvent& event : events) {
    const EndpointId counted_id = counted_with(event);
    Endpoint* counted = find_own(counted_id);
    Endpoint* child = counted_id != endpoint_of(event) ? find_own(endpoint_of(event)) : nullptr;
    const bool is_request = child != nullptr && child->listener == counted_id;
    if (counted == nullptr) {
      // A request of a listener that is gone goes with it.
      if (is_request) destroy(*child, false);
      continue;
    }
    if (counted_id != endpoint_of(event) && !is_request) continue;
    if (counted->events_sent == 0) continue;  // the agent never sent this event
    --counted->events_sent;
    if (is_request) forget_request(*child);
    (counted_id == moved ? to.waiting : kept).push_back(std::move(event));
  }
  channel.waiting.insert(channel.waiting.begin(), kept.begin(), kept.end());
  channel.is_held = false;
  send_waiting(channel);
  if (&to != &channel) send_waiting(to);
}

int ConnectionService::run(Channel& from, Endpoint& endpoint, command::Migrate& command) {
  if (!take_back(from, command.events)) return ENOBUFS;
  const auto found = channels_.find(command.channel);
  const bool is_own = found != channels_.end() && found->second.owner == from.owner &&
                      is_known_user(from.owner.user);
  if (!is_own || !may_wait(found->second, from.given_back.size())) {
    give_back(from, from, {}, std::exchange(from.given_back, {}));
    return is_own ? ENOBUFS : EINVAL;
  }
  Channel& to = found->second;
  const auto counts_with_it = [&](const ConnectionEvent& event) {
    return counted_with(event) == endpoint.id;
  };
  const auto move_owner = [&](EndpointId id) {
    Endpoint* moved = find(from, id);
    const bool is_of_it = moved != nullptr && (id == endpoint.id || moved->listener == endpoint.id);
    if (!is_of_it || moved->channel == to.number) return;
    forget_request(*moved);
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
    std::erase_if(from.endpoints, [&](EndpointId id) { return find(id)->channel == to.number; });
  }
  give_back(from, to, endpoint.id, std::exchange(from.given_back, {}));
  to.waiting.insert(to.waiting.end(), moving.begin(), moving.end());
  send_waiting(to);
  return 0;
}

}  // namespace tulle::live
