// Commands to the connection manager: each with foreign endpoints, and in orders that no honest
// program uses.

#include <cerrno>

#include "attack.h"

namespace hostile {

using namespace tulle::live;

namespace {

using MakeCommand = ConnectionCommand (*)(Context& context, EndpointId id);

ConnectionParameters parameters_of(Context& context, std::size_t private_bytes = 56) {
  ConnectionParameters parameters;
  parameters.private_data.resize(private_bytes);
  for (std::byte& byte : parameters.private_data) {
    byte = static_cast<std::byte>(context.random.next());
  }
  parameters.qp_number = static_cast<std::uint32_t>(context.random.next());
  parameters.retry_count = parameters.rnr_retry_count = 0xFF;
  parameters.responder_resources = parameters.initiator_depth = 0xFF;
  return parameters;
}

SocketAddress group_address() {
  SocketAddress group = loopback(0);
  group.address = {std::byte{224}, std::byte{1}, std::byte{2}, std::byte{3}};
  return group;
}

std::vector<ConnectionEvent> events_of(EndpointId id, EndpointId other) {
  event::ConnectRequest request;
  request.endpoint = other;
  request.listener = id;
  event::ConnectRequest inverse = request;
  std::swap(inverse.endpoint, inverse.listener);
  return {event::AddressResolved{id, {}, {}},
          event::AddressError{id, -1},
          event::RouteResolved{id, {}},
          event::RouteError{id, -1},
          request,
          inverse,
          event::ConnectResponse{id, {}, {}},
          event::Unreachable{id, -1, {}},
          event::Rejected{id, 28, {}},
          event::Established{id},
          event::DatagramEstablished{id, 1, 1, {}, {}},
          event::Disconnected{id, 0},
          event::DeviceRemoval{id},
          event::MulticastJoined{id, 1, 1, {}, {}, 0},
          event::TimewaitExit{id},
          event::Reported{ConnectionEventType::user, id, 0, 0}};
}

struct CommandRow {
  const char* name;
  MakeCommand make;
};
const CommandRow rows[] = {
    {"bind",
     [](Context&, EndpointId id) -> ConnectionCommand {
       return command::Bind{id, loopback(0)};
     }},
    {"listen",
     [](Context&, EndpointId id) -> ConnectionCommand {
       return command::Listen{id, ~0u};
     }},
    {"resolve_address",
     [](Context& context, EndpointId id) -> ConnectionCommand {
       return command::ResolveAddress{id, {}, loopback(context.listeners.front())};
     }},
    {"resolve_route",
     [](Context&, EndpointId id) -> ConnectionCommand { return command::ResolveRoute{{id}}; }},
    {"query", [](Context&, EndpointId id) -> ConnectionCommand { return command::Query{{id}}; }},
    {"connect",
     [](Context& context, EndpointId id) -> ConnectionCommand {
       return command::Connect{id, ConnectionQpType::rc, parameters_of(context)};
     }},
    {"accept",
     [](Context& context, EndpointId id) -> ConnectionCommand {
       return command::Accept{id, ConnectionQpType::rc, parameters_of(context)};
     }},
    {"establish",
     [](Context&, EndpointId id) -> ConnectionCommand { return command::Establish{{id}}; }},
    {"reject",
     [](Context&, EndpointId id) -> ConnectionCommand {
       return command::Reject{id, 28, Bytes(148)};
     }},
    {"notify_established",
     [](Context&, EndpointId id) -> ConnectionCommand { return command::NotifyEstablished{{id}}; }},
    {"disconnect",
     [](Context&, EndpointId id) -> ConnectionCommand { return command::Disconnect{{id}}; }},
    {"destroy",
     [](Context& context, EndpointId id) -> ConnectionCommand {
       return command::Destroy{id, static_cast<std::uint32_t>(context.random.next())};
     }},
    {"set_option",
     [](Context&, EndpointId id) -> ConnectionCommand {
       return command::SetOption{id, 0, 0, Bytes(1)};
     }},
    {"get_qp_attributes",
     [](Context&, EndpointId id) -> ConnectionCommand { return command::GetQpAttributes{id}; }},
    {"join_multicast",
     [](Context&, EndpointId id) -> ConnectionCommand {
       return command::JoinMulticast{id, group_address()};
     }},
    {"leave_multicast",
     [](Context&, EndpointId id) -> ConnectionCommand {
       return command::LeaveMulticast{id, group_address()};
     }},
    {"hold", [](Context&, EndpointId id) -> ConnectionCommand { return command::Hold{{id}}; }},
    {"report",
     [](Context& context, EndpointId id) -> ConnectionCommand {
       return command::Report{id, ConnectionEventType::user, 0, context.random.next()};
     }},
    {"migrate",
     [](Context&, EndpointId id) -> ConnectionCommand {
       return command::Migrate{id, 1, events_of(id, EndpointId{id.value + 1})};
     }},
};

// Names endpoints of other programs: the agent numbers all in turn, so they are near the
// attacker's.
void name_foreign_endpoints(Context& context, int row) {
  auto channel = open_channel(context);
  auto other = open_channel(context);
  if (!channel || !other) return context.expect(false, "the agent opens no channel");
  const EndpointId own = channel->create(context);
  const EndpointId of_another_channel = other->create(context);
  std::vector<EndpointId> ids = {EndpointId{}, EndpointId{1}, EndpointId{~0u}, of_another_channel};
  for (std::uint32_t back = 1; back < 200; ++back) ids.push_back(EndpointId{own.value - back});
  for (std::uint32_t on = 2; on < 20; ++on) ids.push_back(EndpointId{own.value + on});
  for (int i = 0; i < 20; ++i) {
    ids.push_back(EndpointId{static_cast<std::uint32_t>(context.random.next())});
  }
  for (const EndpointId id : ids) {
    if (id == own) continue;
    context.expect(has_failed(channel->say(context, rows[row].make(context, id))),
                   "a command reaches a foreign endpoint");
    context.did();
  }
}

// Gives the command in each state of an endpoint of the attacker's own.
void give_in_all_states(Context& context, int row) {
  for (int state = 0; state < 6; ++state) {
    auto channel = open_channel(context);
    if (!channel) return context.expect(false, "the agent opens no channel");
    const EndpointId own = channel->create(context, state == 5 ? PortSpace::udp : PortSpace::tcp);
    if (state == 1) channel->say(context, command::Bind{own, loopback(0)});
    if (state == 2) channel->say(context, command::Listen{own, 1});
    if (state >= 3) resolve(context, *channel, own, loopback(1));  // where nobody listens
    if (state == 4) {
      channel->say(context,
                   command::Connect{own, ConnectionQpType::rc, parameters_of(context, 56)});
    }
    for (int i = 0; i < 3; ++i) {
      channel->say(context, rows[row].make(context, own));
      context.did();
    }
    channel->take_events(context);
  }
}

void give_back_invented_events(Context& context, int) {
  auto channel = open_channel(context);
  auto other = open_channel(context);
  if (!channel || !other) return;
  const EndpointId own = channel->create(context);
  const EndpointId second = other->create(context);
  for (std::uint32_t back = 0; back < 64; ++back) {
    const EndpointId foreign{own.value - back};
    for (const auto& [a, b] : {std::pair{own, foreign},
                               {foreign, own},
                               {foreign, second},
                               {second, foreign},
                               {EndpointId{}, foreign}}) {
      channel->say(context, command::GiveBack{false, events_of(a, b)});
      context.did();
    }
  }
  channel->take_events(context);
}
void give_back_without_end(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  const EndpointId own = channel->create(context);
  std::vector<ConnectionEvent> many(1'000, event::Established{own});
  bool is_refused = false;
  for (int i = 0; i < 20; ++i) {
    is_refused |= has_failed(channel->say(context, command::GiveBack{true, many}));
    context.did();
  }
  context.expect(is_refused, "events are taken back without end");
}
void migrate_to_foreign_channels(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  const EndpointId own = channel->create(context);
  channel->say(context, command::Bind{own, loopback(0)});
  for (std::uint32_t number = 0; number < 3'000; ++number) {
    if (number == channel->number) continue;
    context.expect(has_failed(channel->say(context, command::Migrate{own, number, {}})),
                   "an endpoint migrates to a foreign channel");
    context.did();
  }
}
void report_forged_events(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  const EndpointId own = channel->create(context);
  for (int type = 0; type < 256; ++type) {
    const bool may = type >= 16 && type <= 18;
    const command::Report report{own, static_cast<ConnectionEventType>(type), 0, 0};
    context.expect(may || has_failed(channel->say(context, report)),
                   "a program reports an event that only the agent makes");
    context.did();
  }
}
void set_odd_options(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  for (std::uint32_t level = 0; level < 4; ++level) {
    for (std::uint32_t option = 0; option < 6; ++option) {
      for (const std::size_t size : {0u, 1u, 4u, 5u, 70'000u}) {
        const EndpointId own = channel->create(context);
        channel->say(context, command::SetOption{own, level, option, Bytes(size, std::byte{0xFF})});
        channel->say(context, command::Destroy{own, 0});
        context.did();
      }
    }
  }
}
// Shares the victims' ports, and listens there.
void take_over_ports(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  for (const std::uint16_t port : context.listeners) {
    for (const bool shares : {false, true}) {
      for (const bool is_wildcard : {false, true}) {
        const EndpointId own = channel->create(context);
        if (shares) {
          channel->say(context, command::SetOption{own, 0, 1, Bytes{std::byte{1}, {}, {}, {}}});
        }
        SocketAddress at = loopback(port);
        if (is_wildcard) at.address = {};
        const bool is_bound = !has_failed(channel->say(context, command::Bind{own, at}));
        context.expect(!is_bound || has_failed(channel->say(context, command::Listen{own, 8})),
                       "an attacker listens at a victim's port");
        context.did();
      }
    }
  }
  context.hold();
}
void bind_foreign_addresses(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  for (const int first : {1, 8, 224, 255}) {
    SocketAddress at = loopback(0);
    at.address = {std::byte(first), std::byte{8}, std::byte{8}, std::byte{8}};
    const EndpointId own = channel->create(context);
    context.expect(has_failed(channel->say(context, command::Bind{own, at})),
                   "an endpoint is bound to an address of another host");
    context.did();
  }
  for (const int family : {1, 10, 16, 17, 0xFFFF}) {
    SocketAddress at = loopback(0);
    at.family = static_cast<std::uint16_t>(family);
    at.scope_id = ~0u;
    channel->say(context, command::Bind{channel->create(context), at});
    channel->say(context, command::ResolveAddress{channel->create(context), at, at});
    context.did();
  }
}
// Connects to the victims' listeners, as anybody may, and goes on as nobody should.
void knock_at_listeners(Context& context, int kind) {
  auto channel = open_channel(context);
  if (!channel) return;
  for (int i = 0; i < 20; ++i) {
    const std::uint16_t port = context.listeners[i % context.listeners.size()];
    const EndpointId own = channel->create(context);
    if (!resolve(context, *channel, own, loopback(port))) continue;
    const auto type = static_cast<ConnectionQpType>(kind == 1 ? context.random.next() : 2);
    const std::size_t bytes = kind == 2 ? 57 + 1'000 * static_cast<std::size_t>(i) : 56;
    channel->say(context, command::Connect{own, type, parameters_of(context, bytes)});
    context.did();
    if (kind == 3) channel->say(context, command::Destroy{own, 0});
    if (kind == 4) channel->say(context, command::Establish{{own}});
    if (kind == 5) {
      for (int n = 0; n < 20; ++n) channel->say(context, command::Disconnect{{own}});
    }
    channel->take_events(context);
  }
}
void speak_before_the_channel(Context& context, int) {
  for (const CommandRow& row : rows) {
    const UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(CommandMessage{0, row.make(context, EndpointId{1})}));
    context.expect(is_refused(next(context, connection.get())),
                   "a command without a channel counts");
    context.did();
  }
}
void pipeline_commands(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  const Bytes message = encode(CommandMessage{0, command::Create{PortSpace::tcp, {}}});
  for (int i = 0; i < 2'000 && send_raw(channel->connection.get(), message); ++i) context.did();
  usleep(10'000);
  drain(context, channel->connection.get());
}
void lie_about_events_taken(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  for (const std::uint32_t taken : {1u, 1u << 31, ~0u, 0u}) {
    channel->events_taken = taken;
    const EndpointId own = channel->create(context);
    resolve(context, *channel, own, loopback(context.listeners.front()));
    channel->say(context, command::Destroy{own, taken});
    channel->say(context, command::GiveBack{false, events_of(own, own)});
    context.did();
  }
}
void cut_commands(Context& context, int) {
  for (const CommandRow& row : rows) {
    const Bytes whole = encode(CommandMessage{0, row.make(context, EndpointId{7})});
    for (std::size_t size = sizeof(MessageHeader); size < whole.size();
         size += 1 + whole.size() / 6) {
      auto channel = open_channel(context);
      if (!channel) return;
      send_raw(channel->connection.get(), std::span(whole).first(size));
      context.did();
      drain(context, channel->connection.get());
    }
  }
}
void use_unknown_commands(Context& context, int) {
  for (int position = 0; position < 256; position += 5) {
    auto channel = open_channel(context);
    if (!channel) return;
    Bytes message = encode(CommandMessage{0, command::Query{}});
    message[sizeof(MessageHeader) + 4] = static_cast<std::byte>(position);
    send_raw(channel->connection.get(), message);
    context.did();
    drain(context, channel->connection.get());
  }
}
void hold_for_ever(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  const EndpointId own = channel->create(context);
  for (int i = 0; i < 6'000; ++i) {
    if (i % 3 == 0) channel->say(context, command::Hold{{own}});
    const auto reply = channel->say(context, command::Report{own, ConnectionEventType::user, 0, 0});
    context.did();
    if (has_failed(reply)) return;
  }
  context.expect(false, "events wait without end");
}
void migrate_in_circles(Context& context, int) {
  auto first = open_channel(context);
  auto second = open_channel(context);
  if (!first || !second) return;
  const EndpointId listener = first->create(context);
  first->say(context, command::Listen{listener, 4});
  for (int i = 0; i < 50; ++i) {
    auto& from = i % 2 == 0 ? *first : *second;
    auto& to = i % 2 == 0 ? *second : *first;
    from.say(context, command::Hold{{listener}});
    from.say(context, command::Migrate{listener, to.number, events_of(listener, listener)});
    context.did();
  }
  second->connection.reset();
  first->take_events(context);
}
// Accepts its own connection twice, with queue pair numbers of victims.
void connect_to_itself(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return;
  const EndpointId listener = channel->create(context);
  channel->say(context, command::Bind{listener, loopback(0)});
  channel->say(context, command::Listen{listener, 8});
  const auto status = channel->say(context, command::Query{{listener}});
  const auto* known = std::get_if<EndpointStatus>(&status);
  if (known == nullptr) return context.expect(false, "the agent forgets a listener");
  for (int i = 0; i < 10; ++i) {
    const EndpointId own = channel->create(context);
    resolve(context, *channel, own, loopback(known->source.port));
    channel->say(context, command::Connect{own, ConnectionQpType::rc, parameters_of(context)});
    for (int n = 0; n < 20; ++n) {
      const auto message = next(context, channel->events.get(), n == 0 ? 100 : 5);
      EventMessage event;
      if (!message || !decode(message->bytes, event)) break;
      ++channel->events_taken;
      const auto* request = std::get_if<event::ConnectRequest>(&event.event);
      if (request == nullptr) continue;
      for (int again = 0; again < 2; ++again) {
        channel->say(context, command::Accept{request->endpoint, ConnectionQpType::rc,
                                              parameters_of(context, 196)});
      }
      channel->say(context, command::Reject{request->endpoint, 28, Bytes(400)});
    }
    context.did();
  }
}

}  // namespace

std::vector<Attack> command_attacks() {
  std::vector<Attack> attacks;
  for (int row = 0; row < static_cast<int>(std::size(rows)); ++row) {
    attacks.push_back(
        {std::string("command.") + rows[row].name + "_foreign", name_foreign_endpoints, row});
    attacks.push_back(
        {std::string("command.") + rows[row].name + "_in_all_states", give_in_all_states, row});
  }
  const Attack more[] = {{"command.give_back_invented", give_back_invented_events},
                         {"command.give_back_without_end", give_back_without_end},
                         {"command.migrate_to_foreign_channels", migrate_to_foreign_channels},
                         {"command.migrate_in_circles", migrate_in_circles},
                         {"command.report_forged", report_forged_events},
                         {"command.odd_options", set_odd_options},
                         {"command.take_over_ports", take_over_ports},
                         {"command.foreign_addresses", bind_foreign_addresses},
                         {"command.knock_at_listeners", knock_at_listeners, 0},
                         {"command.knock_with_odd_types", knock_at_listeners, 1},
                         {"command.knock_with_long_data", knock_at_listeners, 2},
                         {"command.knock_and_run", knock_at_listeners, 3},
                         {"command.knock_and_establish", knock_at_listeners, 4},
                         {"command.knock_and_disconnect", knock_at_listeners, 5},
                         {"command.connect_to_itself", connect_to_itself},
                         {"command.without_a_channel", speak_before_the_channel},
                         {"command.pipelined", pipeline_commands, 0, true},
                         {"command.false_events_taken", lie_about_events_taken},
                         {"command.cut", cut_commands},
                         {"command.unknown", use_unknown_commands},
                         {"command.hold_for_ever", hold_for_ever, 0, true}};
  attacks.insert(attacks.end(), std::begin(more), std::end(more));
  return attacks;
}

}  // namespace hostile
