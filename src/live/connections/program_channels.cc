#include "live/connections/program_channels.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "live/message/socket.h"

namespace tulle::live {
namespace {

// Limits the events that wait because of a program's own commands. Otherwise a program that takes
// none would fill this process's memory.
constexpr std::size_t events_waiting_max = 4096;
// Limits the events that a program gives back; its socket holds far fewer.
constexpr std::size_t given_back_max = 4096;
// Limits each of them: no event that the agent sends is half as long.
constexpr std::size_t given_back_bytes_max = 2048;
// Limits all events that wait for the programs of a user who is limited, and that these programs
// have asked for or given back.
constexpr std::size_t waiting_of_limited_max = 65'536;

}  // namespace

Result<UniqueFd> ProgramChannels::open(const ChannelOwner& owner, const DeviceChoice& device,
                                       ChannelNumber& number) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Error{"cannot make a channel for events (too many open files?)", errno};
  }
  ProgramChannel channel;
  channel.events.reset(ends[0]);
  UniqueFd program_end(ends[1]);
  shutdown(ends[1], SHUT_WR);  // the program only receives
  while (next_ == 0 || channels_.contains(next_)) ++next_;
  number = channel.number = next_++;
  channel.owner = owner;
  channel.device = device;
  channels_[number] = std::move(channel);
  return program_end;
}

ProgramChannel* ProgramChannels::find(ChannelNumber number) {
  const auto found = channels_.find(number);
  return found == channels_.end() ? nullptr : &found->second;
}

void ProgramChannels::close(ProgramChannel& channel) {
  // What is left was sent for endpoints that are in other channels now.
  auto& sent = channel.requests_sent;
  while (!sent.empty()) drop_request(channel, sent.begin()->first);
  channels_.erase(channel.number);
}

std::vector<std::pair<int, ChannelNumber>> ProgramChannels::take_blocked() {
  std::vector<std::pair<int, ChannelNumber>> blocked;
  for (auto& [number, channel] : channels_) {
    if (std::exchange(channel.is_blocked, false)) {
      blocked.emplace_back(channel.events.get(), number);
    }
  }
  return blocked;
}

void ProgramChannels::tell(const Endpoint& endpoint, ConnectionEvent event) {
  ProgramChannel& channel = channels_.at(endpoint.channel);
  channel.waiting.push_back(std::move(event));
  send_waiting(channel);
}

void ProgramChannels::send_waiting(ProgramChannel& channel) {
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
    Endpoint* counted = endpoints_.find(counted_id);
    Endpoint* made =
        counted_id != endpoint_of(event) ? endpoints_.find(endpoint_of(event)) : nullptr;
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

void ProgramChannels::note_taken(ProgramChannel& channel, std::uint32_t events_taken) {
  auto& sent = channel.requests_sent;
  while (!sent.empty() &&
         static_cast<std::int32_t>(events_taken - sent.begin()->second.position) >= 0) {
    drop_request(channel, sent.begin()->first);
  }
}

void ProgramChannels::drop_request(ProgramChannel& channel, std::uint64_t number) {
  const auto request = channel.requests_sent.find(number);
  if (request == channel.requests_sent.end()) return;
  if (Endpoint* listener = endpoints_.find(request->second.listener)) --listener->requests_sent;
  channel.requests_sent.erase(request);
}

void ProgramChannels::forget_request(Endpoint& endpoint) {
  const auto name = std::exchange(endpoint.request, std::nullopt);
  ProgramChannel* channel = name ? find(name->channel) : nullptr;
  if (channel != nullptr) drop_request(*channel, name->number);
}

std::vector<EndpointId> ProgramChannels::drop_waiting(ProgramChannel& channel, EndpointId gone) {
  std::vector<EndpointId> orphans;
  std::erase_if(channel.waiting, [&](const ConnectionEvent& event) {
    if (counted_with(event) != gone) return false;
    const Endpoint* child = endpoints_.find(endpoint_of(event));
    if (child != nullptr && child->listener == gone) orphans.push_back(child->id);
    return true;
  });
  return orphans;
}

std::uint32_t ProgramChannels::untaken_requests(const Endpoint& listener) {
  ProgramChannel& channel = channels_.at(listener.channel);
  int unread_bytes = 0;
  if (ioctl(channel.events.get(), SIOCOUTQ, &unread_bytes) == 0 && unread_bytes == 0) {
    note_taken(channel, channel.events_sent);
  }
  std::size_t requests = listener.requests_sent;
  for (const ConnectionEvent& event : channel.waiting) {
    requests += counted_with(event) == listener.id && endpoint_of(event) != listener.id;
  }
  return static_cast<std::uint32_t>(requests);
}

bool ProgramChannels::may_ask_for_event(const ProgramChannel& channel) const {
  return channel.waiting.size() < events_waiting_max && may_wait(channel, 1);
}

bool ProgramChannels::may_wait(const ProgramChannel& channel, std::size_t more) const {
  if (channel.waiting.size() + more > events_waiting_max + given_back_max) return false;
  if (!channel.owner.is_limited) return true;
  std::size_t all = more;
  for (const auto& [number, each] : channels_) {
    if (each.owner.user == channel.owner.user) all += each.waiting.size() + each.given_back.size();
  }
  return all <= waiting_of_limited_max;
}

bool ProgramChannels::take_back(ProgramChannel& channel,
                                const std::vector<ConnectionEvent>& events) {
  auto& all = channel.given_back;
  if (all.size() + events.size() > given_back_max) return false;
  const bool are_possible = std::ranges::all_of(events, [](const ConnectionEvent& event) {
    return encode(EventMessage{event}).size() <= given_back_bytes_max;
  });
  if (!are_possible || !may_wait(channel, all.size() + events.size())) return false;
  all.insert(all.end(), events.begin(), events.end());
  return true;
}

}  // namespace tulle::live
