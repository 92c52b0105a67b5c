// An attacker takes all that there is of something, and holds it. Meanwhile the driver opens a
// device, counts the slots of each user, and looks after the victims.

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "attack.h"

namespace hostile {

using namespace tulle::live;

namespace {

constexpr std::size_t slots_of_a_user = 64;  // half of the host's
constexpr std::size_t connections_of_a_user = 512;

void take_slots(Context& context, int) {
  std::vector<Process> held;
  for (int i = 0; i < 130; ++i) {
    auto process = open_process(context);
    context.did();
    if (process) held.push_back(std::move(*process));
  }
  context.expect(held.size() <= slots_of_a_user, "one user has more than half of the slots");
  context.expect(held.size() >= slots_of_a_user / 2, "too few slots for this attack to count");
  context.hold();
}
// A slot that is given back must not count, and one that is held must not be forgotten.
void take_slots_in_turn(Context& context, int) {
  for (int i = 0; i < 300; ++i) {
    context.expect(open_process(context).has_value(), "a slot that was given back is lost");
    context.did();
  }
}
// Counts the connections that the agent neither refuses nor closes.
void take_connections(Context& context, int) {
  std::vector<UniqueFd> held;
  for (int i = 0; i < 900; ++i) {
    UniqueFd connection = to_agent();
    context.did();
    if (connection) held.push_back(std::move(connection));
  }
  context.hold();
  std::size_t open = 0;
  for (const UniqueFd& connection : held) {
    char c;
    open += recv(connection.get(), &c, 1, MSG_DONTWAIT) < 0;
  }
  context.expect(open <= connections_of_a_user, "one user has more connections");
}
void take_channels(Context& context, int) {
  std::vector<Channel> held;
  for (int i = 0; i < 600; ++i) {
    auto channel = open_channel(context);
    context.did();
    if (channel) held.push_back(std::move(*channel));
  }
  context.expect(held.size() <= connections_of_a_user, "one user has more channels");
  context.hold();
}

// Gives many commands before it looks at the answers, since it must be faster than the victims. The
// agent ends a channel whose socket has no room for another answer, so at most 32 are awaited.
std::size_t give_many(Context& context, Channel& channel, const ConnectionCommand& command,
                      std::size_t times) {
  const Bytes message = encode(CommandMessage{0, command});
  std::size_t done = 0;
  std::size_t answered = 0;
  const auto take = [&](int milliseconds) {
    const auto answer = next(context, channel.connection.get(), milliseconds);
    ReplyMessage reply;
    if (!answer || !decode(answer->bytes, reply)) return false;
    ++answered;
    if (!has_failed(reply.reply)) ++done;
    return true;
  };
  for (std::size_t i = 0; i < times; ++i) {
    while (!send_raw(channel.connection.get(), message)) {
      if (!take(1'000)) return done;
    }
    context.did();
    while (i - answered >= 32) {
      if (!take(1'000)) return done;
    }
  }
  while (answered < times && take(1'000)) {
  }
  return done;
}

bool has_ended(const Channel& channel) {
  char c;
  return recv(channel.connection.get(), &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// The endpoints of a channel that ended are gone, and do not count.
void make_endpoints(Context& context, int channels) {
  std::vector<Channel> held;
  std::size_t made = 0;
  for (int i = 0; i < channels; ++i) {
    auto channel = open_channel(context);
    if (!channel) break;
    const std::size_t more =
        give_many(context, *channel, command::Create{PortSpace::tcp, ConnectionQpType::rc}, 17'000);
    context.expect(!has_ended(*channel), "the agent ends a channel whose answers are read");
    made += more;
    held.push_back(std::move(*channel));
    if (more == 0) break;
  }
  context.expect(made <= 16'384, "one user has more endpoints than half of all connections");
  context.expect(made == 16'384, "too few endpoints for this attack to count");
  context.hold();
}
// Each bound endpoint holds a port of the host, of which connections need some, too.
void take_ports(Context& context, int space) {
  std::vector<Channel> held;
  std::size_t bound = 0;
  for (int i = 0; i < 2; ++i) {
    auto channel = open_channel(context);
    if (!channel) break;
    const auto of = static_cast<PortSpace>(space);
    for (int n = 0; n < 30'000; ++n) {
      const EndpointId id = channel->create(context, of);
      if (id == EndpointId{}) break;
      const auto reply = channel->say(context, command::Bind{id, loopback(0)});
      context.did();
      if (has_failed(reply)) break;
      ++bound;
    }
    held.push_back(std::move(*channel));
  }
  context.expect(bound <= 14'116, "one user has more than half of the ephemeral ports");
  context.hold();
}
void make_listeners(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return context.expect(false, "the agent opens no channel");
  for (int i = 0; i < 3'000; ++i) {
    channel->say(context, command::Listen{channel->create(context), ~0u});
    context.did();
  }
  context.hold();
}
// Connects to an address from which nobody answers.
void connect_to_silence(Context& context, int count) {
  auto channel = open_channel(context);
  if (!channel) return context.expect(false, "the agent opens no channel");
  SocketAddress silent = loopback(7);
  silent.address = {std::byte{127}, std::byte{9}, std::byte{9}, std::byte{9}};
  for (int i = 0; i < count; ++i) {
    const EndpointId own = channel->create(context);
    if (!resolve(context, *channel, own, silent)) break;
    channel->say(context, command::Connect{own, ConnectionQpType::rc, {}});
    context.did();
    if (i % 16 == 0) channel->take_events(context);
  }
  context.hold();
}
// Asks the attacker's own listener, and never answers.
void ask_and_never_answer(Context& context, int) {
  auto listening = open_channel(context);
  auto asking = open_channel(context);
  if (!listening || !asking) return context.expect(false, "the agent opens no channel");
  const EndpointId listener = listening->create(context);
  listening->say(context, command::Listen{listener, ~0u});
  const auto status = listening->say(context, command::Query{{listener}});
  const auto* known = std::get_if<EndpointStatus>(&status);
  if (known == nullptr) return context.expect(false, "the agent forgets a listener");
  for (int i = 0; i < 3'000; ++i) {
    const EndpointId own = asking->create(context);
    if (!resolve(context, *asking, own, loopback(known->source.port))) break;
    asking->say(context, command::Connect{own, ConnectionQpType::rc, {}});
    context.did();
    if (i % 16 == 0) asking->take_events(context);
  }
  context.hold();
}
// Fills the queue of a victim's listener, as far as it is the agent's to prevent.
void knock_without_end(Context& context, int) {
  auto channel = open_channel(context);
  if (!channel) return context.expect(false, "the agent opens no channel");
  for (int i = 0; i < 3'000; ++i) {
    const EndpointId own = channel->create(context);
    const std::uint16_t port = context.listeners[i % context.listeners.size()];
    if (!resolve(context, *channel, own, loopback(port))) break;
    channel->say(context, command::Connect{own, ConnectionQpType::rc, {}});
    context.did();
    if (i % 16 == 0) channel->take_events(context);
  }
  context.hold();
}
void join_many_groups(Context& context, int) {
  auto channel = open_channel(context);
  auto process = open_process(context);
  if (!channel || !process) return context.expect(false, "the agent serves nobody");
  const EndpointId own = channel->create(context, PortSpace::udp);
  SocketAddress group = loopback(0);
  resolve(context, *channel, own, loopback(1));
  std::size_t joined = 0;
  for (int i = 0; i < 2'000; ++i) {
    group.address = {std::byte{224}, std::byte{9}, std::byte(i >> 8), std::byte(i)};
    joined += !has_failed(channel->say(context, command::JoinMulticast{own, group}));
    channel->take_events(context);
    context.did();
  }
  context.expect(joined <= 1'024, "an endpoint joins more than 1,024 groups");
  joined = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const UniqueFd connection = to_agent();
    send_raw(connection.get(),
             encode(Membership{process->opened.slot, Gid::from_ipv4(0xE001'0000 + i), false}));
    const auto answer = next(context, connection.get());
    MembershipChanged changed;
    joined += answer && decode(answer->bytes, changed) && changed.error == 0;
    context.did();
  }
  context.expect(joined <= 64, "a process joins more than 64 groups");
  context.hold();
}
void capture_many_times(Context& context, int) {
  std::vector<UniqueFd> held;
  std::size_t captures = 0;
  for (int i = 0; i < 100; ++i) {
    Hello message = hello(Purpose::capture);
    message.ring_bytes = ~0u;
    UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(message));
    const auto answer = next(context, connection.get());
    captures += answer && !is_refused(answer);
    held.push_back(std::move(connection));
    context.did();
  }
  context.expect(captures <= 1, "one user captures several times");
  context.hold();
}
// Linux counts the descriptors in messages that nobody has read for their sender, here the agent,
// which can send none once there are too many.
void never_read_descriptors(Context& context, int leaves) {
  std::vector<UniqueFd> held;
  const Purpose purposes[] = {Purpose::open, Purpose::connect, Purpose::capture};
  for (int i = 0; i < 480; ++i) {
    Hello message = hello(purposes[i % std::size(purposes)]);
    message.ring_bytes = 1 << 16;
    UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(message));
    context.did();
    // The agent then sees the end of the conversation, while what is unread stays in the kernel.
    if (leaves == 1) shutdown(connection.get(), SHUT_WR);
    held.push_back(std::move(connection));
    if (held.size() == 240) context.hold();
  }
  context.hold();
}
// Long names, which each connection makes the agent keep.
void fill_memory_with_names(Context& context, int) {
  std::vector<UniqueFd> held;
  for (int i = 0; i < 500; ++i) {
    Hello message = hello(i % 2 == 0 ? Purpose::open : Purpose::connect);
    message.device.name = std::string(60'000, 'x') + std::to_string(i);
    message.command = std::string(60'000, 'y');
    UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(message));
    static_cast<void>(next(context, connection.get(), 20));
    held.push_back(std::move(connection));
    context.did();
  }
  context.hold();
}
void ask_without_end(Context& context, int purpose) {
  for (int turn = 0; turn < 6; ++turn) {
    std::vector<UniqueFd> held(400);
    for (UniqueFd& connection : held) {
      connection = to_agent();
      send_raw(connection.get(), encode(hello(static_cast<Purpose>(purpose))));
      context.did();
    }
    if (turn == 3) context.hold();
    for (const UniqueFd& connection : held) static_cast<void>(next(context, connection.get(), 1));
  }
}
void connect_and_hang_up(Context& context, int) {
  for (int i = 0; i < 5'000; ++i) {
    const UniqueFd connection = to_agent();
    context.did();
    if (i == 2'500) context.hold();
  }
}
// Leaves the agent's queue of connections full, as far as it can.
void stay_in_the_queue(Context& context, int) {
  std::vector<UniqueFd> held;
  for (int turn = 0; turn < 20; ++turn) {
    for (int i = 0; i < 300; ++i) {
      auto connection = connect_to("@tulle");
      context.did();
      if (connection) held.push_back(std::move(*connection));
    }
    if (turn == 10) context.hold();
    held.clear();
  }
}
void close_many_endpoints_at_once(Context& context, int) {
  for (int i = 0; i < 2; ++i) {
    auto channel = open_channel(context);
    if (!channel) return;
    give_many(context, *channel, command::Create{PortSpace::tcp, ConnectionQpType::rc}, 17'000);
    context.hold();
  }
}

}  // namespace

std::vector<Attack> quota_attacks() {
  const auto purpose = [](Purpose of) { return static_cast<int>(of); };
  return {{"quota.slots", take_slots, 0, true},
          {"quota.slots_in_turn", take_slots_in_turn, 0, true},
          {"quota.connections", take_connections, 0, true},
          {"quota.channels", take_channels, 0, true},
          {"quota.endpoints_of_a_channel", make_endpoints, 1, true},
          {"quota.endpoints_of_a_user", make_endpoints, 4, true},
          {"quota.endpoints_closed_at_once", close_many_endpoints_at_once, 0, true},
          {"quota.tcp_ports", take_ports, static_cast<int>(PortSpace::tcp), true},
          {"quota.udp_ports", take_ports, static_cast<int>(PortSpace::udp), true},
          {"quota.listeners", make_listeners, 0, true},
          {"quota.connects_to_silence", connect_to_silence, 16'384, true},
          {"quota.requests_never_answered", ask_and_never_answer, 0, true},
          {"quota.knocks_at_listeners", knock_without_end, 0, true},
          {"quota.groups", join_many_groups, 0, true},
          {"quota.captures", capture_many_times, 0, true},
          {"quota.unread_descriptors", never_read_descriptors, 0, true},
          {"quota.unread_descriptors_of_the_dead", never_read_descriptors, 1, true},
          {"quota.names", fill_memory_with_names, 0, true},
          {"quota.status_without_end", ask_without_end, purpose(Purpose::status), true},
          {"quota.list_without_end", ask_without_end, purpose(Purpose::list), true},
          {"quota.attribute_without_end", ask_without_end, purpose(Purpose::attribute), true},
          {"quota.connections_in_turn", connect_and_hang_up, 0, true},
          {"quota.queue_of_connections", stay_in_the_queue, 0, true}};
}

}  // namespace hostile
