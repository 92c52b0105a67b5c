#include "live/connections/connection_service.h"

#include <algorithm>
#include <span>
#include <variant>

#include "base/random_source.h"
#include "os/system_random.h"

namespace tulle::live {
namespace {

management::cm::Manager::Settings manager_settings(std::uint64_t guid) {
  management::cm::Manager::Settings settings;
  settings.ca_guid = guid;
  settings.random = RandomSource{system_random};
  return settings;
}

bool names_endpoint(const ConnectionCommand& command) {
  return std::visit(
      [](const auto& each) {
        return requires { each.endpoint; };
      },
      command);
}

}  // namespace

ConnectionService::ConnectionService(ConnectionNetwork& network, std::uint64_t node_guid)
    : network_(network),
      manager_(manager_settings(node_guid)),
      endpoints_(RandomSource{system_random}),
      channels_(endpoints_),
      resources_(network, manager_, clock_, endpoints_, channels_, shares_,
                 RandomSource{system_random}),
      addresses_(network, endpoints_, channels_, resources_),
      groups_(network, endpoints_, channels_, shares_),
      moves_(endpoints_, channels_, resources_),
      peer_messages_(manager_, clock_, endpoints_),
      peer_events_(network, manager_, clock_, endpoints_, channels_, resources_),
      commands_(endpoints_, channels_, resources_, addresses_, groups_, moves_, peer_messages_) {}

Result<UniqueFd> ConnectionService::open_channel(const Owner& owner, const DeviceChoice& device,
                                                 ChannelNumber& number) {
  return channels_.open(owner, device, number);
}

ConnectionReply ConnectionService::execute(ChannelNumber number, const CommandMessage& message) {
  ProgramChannel& channel = channels_.at(number);
  channels_.note_taken(channel, message.events_taken);
  ConnectionReply reply = commands_.execute(channel, message.command);
  if (names_endpoint(message.command)) progress();
  return reply;
}

void ConnectionService::close_channel(ChannelNumber number) {
  ProgramChannel* const channel = channels_.find(number);
  if (channel == nullptr) return;
  // Nobody reads them any more, and each endpoint would look through all of them.
  channel->waiting.clear();
  while (!channel->endpoints.empty()) {
    resources_.destroy(*endpoints_.find(channel->endpoints.back()), false);
  }
  channels_.close(*channel);
  progress();
}

void ConnectionService::end_connections_of(QpNumbers gone) {
  peer_messages_.end_connections_of(gone);
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
  while (const auto event = manager_.pull_event()) peer_events_.handle(*event);
  while (const management::cm::Outgoing* out = manager_.next_outgoing()) {
    network_.send(*out);
    manager_.pop_outgoing();
  }
}

void ConnectionService::flush(ChannelNumber number) {
  if (ProgramChannel* channel = channels_.find(number)) channels_.send_waiting(*channel);
}

std::uint32_t ConnectionService::listener_count() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      endpoints_.all(), [](const auto& entry) { return entry.second.listened_service != 0; }));
}

HeldBy ConnectionService::holder_of(const DeviceChoice& device, std::size_t gid_index) const {
  HeldBy holder = HeldBy::nobody;
  for (const auto& [id, endpoint] : endpoints_.all()) {
    if (!endpoint.has_device || endpoint.local.gid_index != gid_index) continue;
    const ProgramChannel& channel = channels_.at(endpoint.channel);
    if (channel.device != device) continue;
    const bool is_limited = channel.owner.is_limited;
    holder = std::max(holder, is_limited ? HeldBy::limited_users : HeldBy::own_user);
  }
  return holder;
}

}  // namespace tulle::live
