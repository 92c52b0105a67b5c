// Messages of every kind, well formed and not, from every state of a conversation.

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "attack.h"
#include "live/fabric/messages.h"

namespace hostile {

using namespace tulle::live;

namespace {

// Kinds of conversation in which a message can come.
enum class Place { first, process, channel, capture, status };
constexpr std::array places = {Place::first, Place::process, Place::channel, Place::capture,
                               Place::status};

// Says the message in each kind of conversation, and looks at what comes back.
void say_everywhere(Context& context, std::span<const std::byte> message, int times = 1) {
  for (const Place place : places) {
    UniqueFd connection;
    std::optional<Process> process;
    std::optional<Channel> channel;
    if (place == Place::process && (process = open_process(context))) {
      connection = std::move(process->connection);
    } else if (place == Place::channel && (channel = open_channel(context))) {
      connection = std::move(channel->connection);
    } else {
      connection = to_agent();
    }
    context.expect(static_cast<bool>(connection), "the agent takes no connection");
    if (place == Place::capture) send_raw(connection.get(), encode(hello(Purpose::capture)));
    if (place == Place::status) send_raw(connection.get(), encode(hello(Purpose::status)));
    for (int i = 0; i < times; ++i) {
      send_raw(connection.get(), message);
      context.did();
    }
    // An agent that takes no more of this conversation ends it. Others may wait without end.
    static_cast<void>(next(context, connection.get(), 2));
    drain(context, connection.get());
  }
}

// The whole conversation is one message, to which there should be an answer.
std::optional<ReceivedMessage> ask(Context& context, std::span<const std::byte> message) {
  const UniqueFd connection = to_agent();
  send_raw(connection.get(), message);
  context.did();
  auto answer = next(context, connection.get(), 2'000);
  drain(context, connection.get());
  return answer;
}

Bytes with_header(MessageHeader header, std::size_t more = 0, std::byte filler = {}) {
  Bytes bytes(sizeof(header) + more, filler);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}
MessageHeader header_of(MessageKind kind) {
  return {message_magic, protocol_version, static_cast<std::uint16_t>(kind)};
}

// --- kinds ---

template <typename Message>
Bytes of_fabric(Message message) {
  return encoded(message);
}

// Well-formed messages, as nobody of the attacker's kind should send them.
std::vector<Bytes> of_kind(Context& context, MessageKind kind) {
  const auto number = static_cast<std::uint32_t>(context.random.next());
  DeviceInfo device;
  device.name = "tulle0";
  device.gids.resize(256);
  DeviceInfo endless = device;
  endless.name = std::string(60'000, 'x');
  switch (kind) {
    case MessageKind::refused:
      return {encode(Refused{"no"}), encode(Refused{std::string(100'000, '%')})};
    case MessageKind::wait:
      return {encode(Wait{})};
    case MessageKind::hello:
      return {encode(hello(Purpose::list)), encode(hello(static_cast<Purpose>(0xFF)))};
    case MessageKind::devices:
      return {encode(Devices{}), encode(Devices{{device, device}})};
    case MessageKind::opened:
      return {encode(Opened{device, number % 128, number, 16'384, 4'791, true, 1})};
    case MessageKind::rejoin: {
      std::vector<Bytes> all;
      for (std::uint32_t slot = 0; slot < 4; ++slot) {
        all.push_back(encode(Rejoin{slot, "x", {.name = "tulle0", .interfaces = "lo"}, endless}));
      }
      all.push_back(encode(Rejoin{number, "x", {}, device}));
      return all;
    }
    case MessageKind::accepted:
      return {encode(Accepted{})};
    case MessageKind::agent_status:
      return {encode(AgentStatus{})};
    case MessageKind::process_status:
      return {encode(ProcessStatus{})};
    case MessageKind::end:
      return {encode(End{})};
    case MessageKind::start_capture:
      return {encode(StartCapture{number})};
    case MessageKind::stop_capture:
      return {encode(StopCapture{})};
    case MessageKind::capture_source:
      return {encode(CaptureSource{context.agent, "agent", "tulle0"})};
    case MessageKind::publish:
      return {encode(Publish{})};
    case MessageKind::expose:
      return {encode(Expose{})};
    case MessageKind::peer:
      return {encode(PeerProcess{context.agent})};
    case MessageKind::channel_opened:
      return {encode(ChannelOpened{1}), encode(ChannelOpened{number})};
    case MessageKind::connection_command:
      return {encode(CommandMessage{number, command::Create{PortSpace::tcp, {}}})};
    case MessageKind::connection_reply:
      return {encode(ReplyMessage{reply::Failed{-1}})};
    case MessageKind::connection_event:
      return {encode(EventMessage{event::Established{EndpointId{1}}})};
    case MessageKind::device_changed:
      return {encode(DeviceChanged{number, device})};
    case MessageKind::gids_held: {
      GidsHeld all{number, {}};
      all.indices.fill(~0ull);
      return {encode(all), encode(GidsHeld{1, all.indices})};
    }
    case MessageKind::attribute:
      return {encode(Attribute{true, "4: ACTIVE"})};
    case MessageKind::membership:
      return {encode(Membership{number % 128, Gid{}, false}),
              encode(Membership{number, Gid::from_ipv4(0xE001'0203), true})};
    case MessageKind::membership_changed:
      return {encode(MembershipChanged{0})};
    // A fabric's process gets these, and the agent must not take them for its own.
    case MessageKind::fabric_hello:
      return {of_fabric(FabricHello{FabricPurpose::stop, "h0", {}, number, {}})};
    case MessageKind::host_port:
      return {of_fabric(HostPort{})};
    case MessageKind::port_opened:
      return {of_fabric(PortOpened{})};
    case MessageKind::register_agent:
      return {of_fabric(RegisterAgent{})};
    case MessageKind::unregister_agent:
      return {of_fabric(UnregisterAgent{number})};
    case MessageKind::agent_registered:
      return {of_fabric(AgentRegistered{})};
    case MessageKind::datagram:
      return {of_fabric(Datagram{})};
    case MessageKind::fabric_nodes:
      return {of_fabric(FabricNodes{})};
    case MessageKind::fabric_machines:
      return {of_fabric(FabricMachines{})};
    case MessageKind::fabric_end:
      return {of_fabric(FabricEnd{})};
    case MessageKind::data_port_opened:
      return {of_fabric(DataPortOpened{})};
    case MessageKind::port_changed:
      return {of_fabric(PortChanged{})};
    case MessageKind::port_counters:
      return {of_fabric(PortCounters{})};
    case MessageKind::host_entered:
      return {of_fabric(HostEntered{})};
  }
  return {};
}

void say_kind(Context& context, int kind) {
  for (const Bytes& message : of_kind(context, static_cast<MessageKind>(kind))) {
    say_everywhere(context, message);
    say_everywhere(context, std::span(message).first(message.size() - message.size() / 3), 1);
  }
}

void say_random_fields(Context& context, int kind) {
  for (const std::size_t size : {1u, 17u, 300u, 60'000u}) {
    Bytes message = with_header(header_of(static_cast<MessageKind>(kind)), size);
    for (std::size_t i = sizeof(MessageHeader); i < message.size(); ++i) {
      // Small numbers are more often a valid length or choice.
      const std::uint64_t drawn = context.random.next();
      message[i] = static_cast<std::byte>(drawn % 3 == 0 ? drawn >> 8 : drawn >> 8 & 3);
    }
    say_everywhere(context, message);
  }
}

// --- frames ---

void say_nothing(Context& context, int) { say_everywhere(context, {}, 3); }
void say_a_byte(Context& context, int) { say_everywhere(context, Bytes(1), 3); }
void cut_the_header(Context& context, int) {
  const Bytes whole = encode(hello(Purpose::open));
  for (std::size_t size = 1; size < sizeof(MessageHeader); ++size) {
    say_everywhere(context, std::span(whole).first(size));
  }
}
void cut_the_hello(Context& context, int) {
  const Bytes whole = encode(hello(Purpose::open));
  for (std::size_t size = sizeof(MessageHeader); size < whole.size(); ++size) {
    context.expect(is_refused(ask(context, std::span(whole).first(size))), "a cut hello counts");
  }
}
void lengthen_the_hello(Context& context, int) {
  for (const std::size_t more : {1u, 100u, 100'000u}) {
    Bytes message = encode(hello(Purpose::open));
    message.resize(message.size() + more);
    context.expect(is_refused(ask(context, message)), "bytes behind a hello count for nothing");
  }
}
void use_another_magic(Context& context, int) {
  Bytes message = encode(hello(Purpose::open));
  for (int bit = 0; bit < 32; ++bit) {
    message[bit / 8] ^= std::byte{1} << bit % 8;
    context.expect(is_refused(ask(context, message)), "a message of another magic counts");
    message[bit / 8] ^= std::byte{1} << bit % 8;
  }
}
void use_other_versions(Context& context, int) {
  for (const unsigned version : {0u, protocol_version - 1u, protocol_version + 1u, 0xFFFFu}) {
    MessageHeader header = header_of(MessageKind::hello);
    header.version = static_cast<std::uint16_t>(version);
    context.expect(is_refused(ask(context, with_header(header, 64))), "another version counts");
    say_everywhere(context, with_header(header, 64));
  }
}
void use_unknown_kinds(Context& context, int) {
  for (const unsigned kind : {0u, 26u, 27u, 255u, 256u, 0x7FFFu, 0xFFFFu}) {
    const MessageHeader header{message_magic, protocol_version, static_cast<std::uint16_t>(kind)};
    say_everywhere(context, with_header(header, 32));
  }
}
void use_unknown_purposes(Context& context, int) {
  for (int purpose = 7; purpose < 256; purpose += 31) {
    const auto answer = ask(context, encode(hello(static_cast<Purpose>(purpose))));
    context.expect(is_refused(answer), "an unknown purpose is served");
  }
}
void send_oversized(Context& context, int) {
  for (const std::size_t bytes :
       {message_bytes_max - 8, message_bytes_max, message_bytes_max + 1, std::size_t{190'000}}) {
    say_everywhere(context, with_header(header_of(MessageKind::hello), bytes, std::byte{0x41}));
  }
}
void send_byte_by_byte(Context& context, int) {
  const Bytes whole = encode(hello(Purpose::status));
  const UniqueFd connection = to_agent();
  for (const std::byte byte : whole) {
    if (!send_raw(connection.get(), {&byte, 1})) break;
    context.did();
  }
  const auto answer = next(context, connection.get());
  context.expect(!answer || is_refused(answer), "bytes add up to a message");
}
void claim_long_texts(Context& context, int) {
  for (const std::uint32_t length : {1u << 16, 1u << 31, ~0u}) {
    Bytes message = encode(hello(Purpose::open));
    std::memcpy(message.data() + sizeof(MessageHeader) + 1, &length, sizeof(length));
    context.expect(is_refused(ask(context, message)), "a text longer than its message counts");
  }
}
void claim_long_lists(Context& context, int) {
  Rejoin rejoin;
  rejoin.device.gids.resize(3);
  const Bytes whole = encode(rejoin);
  for (std::size_t at = sizeof(MessageHeader); at + 4 <= whole.size(); ++at) {
    Bytes message = whole;
    const std::uint32_t count = 0x0F00'0000;
    std::memcpy(message.data() + at, &count, sizeof(count));
    context.expect(is_refused(ask(context, message)), "a false count counts");
  }
}
void say_hello_twice(Context& context, int) {
  for (const Purpose purpose : {Purpose::open, Purpose::connect, Purpose::capture}) {
    const UniqueFd connection = to_agent();
    for (int i = 0; i < 20; ++i) {
      send_raw(connection.get(), encode(hello(purpose)));
      context.did();
    }
    int answers = 0;
    while (next(context, connection.get(), 20)) ++answers;
    context.expect(answers <= 2, "a second hello is served");
  }
}
void send_and_hang_up(Context& context, int) {
  for (int i = 0; i < 100; ++i) {
    const UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(hello(static_cast<Purpose>(i % 7))));
    context.did();
  }
}
void shut_one_direction(Context& context, int) {
  for (const int how : {SHUT_RD, SHUT_WR, SHUT_RDWR}) {
    for (int purpose = 0; purpose < 7; ++purpose) {
      const UniqueFd connection = to_agent();
      send_raw(connection.get(), encode(hello(static_cast<Purpose>(purpose))));
      shutdown(connection.get(), how);
      context.did();
      drain(context, connection.get());
    }
  }
}
void do_not_read(Context& context, int) {
  std::vector<UniqueFd> connections(32);
  for (UniqueFd& connection : connections) {
    connection = to_agent();
    const int least = 1;
    setsockopt(connection.get(), SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
    setsockopt(connection.get(), SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
    send_raw(connection.get(), encode(hello(Purpose::status)));
    context.did();
  }
  usleep(60'000);  // the agent answers after 30 ms
  context.hold();
  for (const UniqueFd& connection : connections) drain(context, connection.get());
}
void read_slowly(Context& context, int) {
  const UniqueFd connection = to_agent();
  send_raw(connection.get(), encode(hello(Purpose::status)));
  for (int i = 0; i < 10; ++i) {
    usleep(5'000);
    if (next(context, connection.get(), 30)) context.did();
  }
}
void hang_up_in_the_middle_of_status(Context& context, int) {
  for (int i = 0; i < 20; ++i) {
    const UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(hello(Purpose::status)));
    static_cast<void>(next(context, connection.get(), 100));
    context.did();
  }
}

// --- fields of a hello ---

void name_commands(Context& context, int) {
  const std::string names[] = {"",
                               std::string(100'000, 'a'),
                               std::string(31, '\0'),
                               "\x1B[2J\x1B]0;owned\x07\r\n",
                               "\xC3\x28\xFF\xFE\x80",
                               "\"},{\"pid\":1,\"x\":\"",
                               "%s%n%s%n",
                               std::string(30, 'x') + "\xE2\x82\xAC"};
  std::vector<UniqueFd> held;
  for (const std::string& name : names) {
    Hello message = hello(Purpose::open);
    message.command = name;
    message.device.name = name;
    UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(message));
    static_cast<void>(next(context, connection.get()));
    held.push_back(std::move(connection));
    context.did();
  }
  context.hold();  // the driver asks for the status, as people and programs do
}
void name_interfaces(Context& context, int) {
  const std::string names[] = {"lo,lo,lo,lo",
                               "../../etc",
                               std::string(100'000, ','),
                               std::string(100'000, 'x'),
                               std::string("lo\0lo", 5),
                               ",,",
                               "*",
                               "%s%n"};
  for (const std::string& name : names) {
    Hello message = hello(Purpose::open);
    message.device.interfaces = name;
    static_cast<void>(ask(context, encode(message)));
  }
}
// A version of RoCE may be any byte.
void name_versions(Context& context, int) {
  for (unsigned version = 0; version <= 0xFF; ++version) {
    Hello message = hello(version % 2 == 0 ? Purpose::open : Purpose::connect);
    message.device.roce = static_cast<RoceVersions>(version);
    static_cast<void>(ask(context, encode(message)));
  }
}
void name_files(Context& context, int) {
  const std::string names[] = {"../../../../etc/shadow",
                               "/etc/shadow",
                               "gids/../../../../../etc/shadow",
                               "gids/-1",
                               "gids/256",
                               "gids/4294967296",
                               "gids/99999999999999999999999",
                               "gid_attrs/types/ 0",
                               "",
                               std::string(100'000, '/'),
                               std::string("state\0x", 7)};
  for (const std::string& name : names) {
    Hello message = hello(Purpose::attribute);
    message.file = name;
    const auto answer = ask(context, encode(message));
    Attribute attribute;
    if (!answer || !decode(answer->bytes, attribute)) continue;
    // A port has entries of no use behind its last, as a kernel's has.
    const bool is_entry_of_no_use = attribute.text.find_first_not_of("0:") == std::string::npos;
    context.expect(!attribute.is_readable || is_entry_of_no_use,
                   "a file that no port has is readable: " + name);
  }
}
void ask_for_large_rings(Context& context, int) {
  for (const std::uint32_t bytes : {0u, 1u, 1u << 31, ~0u}) {
    const auto process = open_process(context);
    Hello message = hello(Purpose::capture);
    message.ring_bytes = bytes;
    message.snap_length = ~bytes;
    const UniqueFd connection = to_agent();
    send_raw(connection.get(), encode(message));
    context.did();
    while (next(context, connection.get(), 20)) {
    }
  }
}
void find_foreign_peers(Context& context, int) {
  const auto own = open_process(context);
  for (std::uint32_t slot = 0; slot < 130; ++slot) {
    Hello message = hello(Purpose::find_peer);
    message.slot = slot;
    const auto answer = ask(context, encode(message));
    if (own && slot == own->opened.slot) continue;
    context.expect(is_refused(answer), "the agent hands out a foreign table of memory");
  }
  for (const std::uint32_t slot : {1u << 31, ~0u}) {
    Hello message = hello(Purpose::find_peer);
    message.slot = slot;
    context.expect(is_refused(ask(context, encode(message))), "a slot beyond the last has a peer");
  }
}
void join_groups_for_others(Context& context, int) {
  const auto own = open_process(context);
  for (std::uint32_t slot = 0; slot < 130; ++slot) {
    for (const bool leaves : {false, true}) {
      const auto answer =
          ask(context, encode(Membership{slot, Gid::from_ipv4(0xE001'0203), leaves}));
      if (own && slot == own->opened.slot) continue;
      context.expect(is_refused(answer), "a foreign process joins or leaves a group");
    }
  }
}
void join_what_is_no_group(Context& context, int) {
  const auto own = open_process(context);
  if (!own) return;
  for (const std::uint32_t address : {0u, 0x7F00'0001u, 0xFFFF'FFFFu, 0xEFFF'FFFFu}) {
    const auto answer =
        ask(context, encode(Membership{own->opened.slot, Gid::from_ipv4(address), false}));
    MembershipChanged changed;
    const bool is_group = address == 0xEFFF'FFFFu;
    context.expect(is_group || is_refused(answer) ||
                       (answer && decode(answer->bytes, changed) && changed.error != 0),
                   "a process joins what is no group");
  }
}

}  // namespace

std::vector<Attack> message_attacks() {
  static constexpr const char* kinds[] = {"",
                                          "refused",
                                          "wait",
                                          "hello",
                                          "devices",
                                          "opened",
                                          "rejoin",
                                          "accepted",
                                          "agent_status",
                                          "process_status",
                                          "end",
                                          "start_capture",
                                          "stop_capture",
                                          "capture_source",
                                          "publish",
                                          "expose",
                                          "peer",
                                          "channel_opened",
                                          "command",
                                          "reply",
                                          "event",
                                          "device_changed",
                                          "gids_held",
                                          "attribute",
                                          "membership",
                                          "membership_changed"};
  std::vector<Attack> attacks;
  for (int kind = static_cast<int>(MessageKind::fabric_hello);
       kind <= static_cast<int>(MessageKind::host_entered); ++kind) {
    attacks.push_back({"message.of_a_fabric_" + std::to_string(kind), say_kind, kind});
  }
  for (int kind = 1; kind < static_cast<int>(std::size(kinds)); ++kind) {
    attacks.push_back({std::string("message.") + kinds[kind] + "_out_of_place", say_kind, kind});
    attacks.push_back(
        {std::string("message.") + kinds[kind] + "_at_random", say_random_fields, kind});
  }
  const Attack more[] = {{"message.empty", say_nothing},
                         {"message.one_byte", say_a_byte},
                         {"message.cut_header", cut_the_header},
                         {"message.cut_hello", cut_the_hello},
                         {"message.long_hello", lengthen_the_hello},
                         {"message.other_magic", use_another_magic},
                         {"message.other_versions", use_other_versions},
                         {"message.unknown_kinds", use_unknown_kinds},
                         {"message.unknown_purposes", use_unknown_purposes},
                         {"message.oversized", send_oversized},
                         {"message.byte_by_byte", send_byte_by_byte},
                         {"message.false_text_length", claim_long_texts},
                         {"message.false_list_length", claim_long_lists},
                         {"message.hello_twice", say_hello_twice},
                         {"message.hang_up_at_once", send_and_hang_up},
                         {"message.shut_one_direction", shut_one_direction},
                         {"message.nobody_reads", do_not_read},
                         {"message.slow_reader", read_slowly},
                         {"message.hang_up_during_status", hang_up_in_the_middle_of_status},
                         {"hello.odd_names", name_commands},
                         {"hello.odd_interfaces", name_interfaces},
                         {"hello.odd_versions", name_versions},
                         {"hello.odd_files", name_files},
                         {"hello.odd_rings", ask_for_large_rings},
                         {"hello.foreign_peers", find_foreign_peers},
                         {"hello.groups_of_others", join_groups_for_others},
                         {"hello.what_is_no_group", join_what_is_no_group}};
  attacks.insert(attacks.end(), std::begin(more), std::end(more));
  return attacks;
}

}  // namespace hostile
