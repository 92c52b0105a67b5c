#include "live/connection/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "live/agent/client.h"
#include "live/message/socket.h"

namespace tulle::live {
namespace {

using Operation = ConnectionOperation;

// The agent answers in microseconds. An agent that is stopped must not make its programs hang
// indefinitely.
constexpr int answer_milliseconds = 10'000;
// Room for any reply or event; their private data are at most 256 bytes.
constexpr std::size_t message_bytes = 4096;
// Maximum of events in one command, so that it fits one message (message_bytes_max).
constexpr std::size_t events_at_a_time = 128;

ConnectionCommand command_of(Operation operation, EndpointId endpoint) {
  ConnectionCommand command;
  command.operation = operation;
  command.endpoint = endpoint;
  return command;
}

bool await_reply(int socket, ConnectionReply& reply) {
  pollfd readable{socket, POLLIN, 0};
  int ready;
  do {
    ready = poll(&readable, 1, answer_milliseconds);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return false;
  std::byte bytes[message_bytes];
  const ssize_t received = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  return received > 0 && decode({bytes, static_cast<std::size_t>(received)}, reply);
}

}  // namespace

Result<std::unique_ptr<ConnectionChannel>> ConnectionChannel::open() {
  return open(read_settings());
}

Result<std::unique_ptr<ConnectionChannel>> ConnectionChannel::open(const Settings& settings) {
  std::unique_ptr<ConnectionChannel> channel(new ConnectionChannel(settings));
  if (auto connected = channel->connect_to_agent(); !connected) return connected.error();
  return channel;
}

ConnectionChannel::~ConnectionChannel() = default;

Result<void> ConnectionChannel::connect_to_agent() {
  Hello hello;
  hello.purpose = Purpose::connect;
  hello.command = program_name();
  hello.device = settings_.device;
  hello.interfaces = settings_.interfaces;
  auto answer = ask_agent(settings_, hello, IfAbsent::start);
  if (!answer) return answer.error();
  ChannelOpened opened;
  if (!decode(answer->message.bytes, opened) || answer->message.fds.size() != 1) {
    return Error{"the agent's answer is no channel for connections", EPROTO};
  }
  commands_ = std::move(answer->connection);
  number_ = opened.channel;
  UniqueFd& events = answer->message.fds[0];
  if (!events_) {
    events_ = std::move(events);
    return {};
  }
  const std::lock_guard lock(endpoints_mutex_);
  events_taken_ = 0;
  replace_events(events.get());
  quiet_end_.reset();  // wakes threads that wait on the old socket
  return {};
}

int ConnectionChannel::ask(ConnectionCommand& command, ConnectionReply& reply) {
  const std::lock_guard lock(command_mutex_);
  return ask_locked(command, reply);
}

int ConnectionChannel::ask_locked(ConnectionCommand& command, ConnectionReply& reply) {
  if (command.operation != Operation::create && command.operation != Operation::give_back) {
    const std::lock_guard lock(endpoints_mutex_);
    const auto known = endpoints_.find(command.endpoint);
    if (known == endpoints_.end()) return EINVAL;
    if (known->second.is_lost) return ENODEV;
  }
  if (!commands_) return ENODEV;
  command.events_taken = events_taken_;
  if (!send_message(commands_.get(), encode(command)) || !await_reply(commands_.get(), reply)) {
    commands_.reset();  // a late answer must not pass for that of the next command
    return ENODEV;
  }
  return reply.error;
}

int ConnectionChannel::simple(Operation operation, EndpointId endpoint) {
  ConnectionCommand command = command_of(operation, endpoint);
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::create(PortSpace space, ConnectionQpType qp_type, EndpointId& endpoint) {
  const std::lock_guard lock(command_mutex_);
  ConnectionCommand command = command_of(Operation::create, {});
  command.port_space = space;
  command.qp_type = qp_type;
  ConnectionReply reply;
  int error = ask_locked(command, reply);
  if (error == ENODEV && !commands_) {
    {
      const std::lock_guard endpoints_lock(endpoints_mutex_);
      // A new agent is started only after the program has been told of the old agent's end.
      for (const auto& [id, known] : endpoints_) {
        if (!known.is_lost) return ENODEV;
      }
    }
    if (!connect_to_agent()) return ENODEV;
    error = ask_locked(command, reply);
  }
  if (error != 0) return error;
  endpoint = reply.endpoint;
  const std::lock_guard endpoints_lock(endpoints_mutex_);
  endpoints_[endpoint] = {};
  return 0;
}

int ConnectionChannel::bind(EndpointId endpoint, const SocketAddress& address,
                            SocketAddress& bound) {
  ConnectionCommand command = command_of(Operation::bind, endpoint);
  command.source = address;
  ConnectionReply reply;
  const int error = ask(command, reply);
  if (error == 0) bound = reply.source;
  return error;
}

int ConnectionChannel::listen(EndpointId endpoint, int backlog) {
  ConnectionCommand command = command_of(Operation::listen, endpoint);
  command.number = backlog > 0 ? static_cast<std::uint32_t>(backlog) : 0;
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::resolve_address(EndpointId endpoint, const SocketAddress& source,
                                       const SocketAddress& destination, int timeout_milliseconds) {
  ConnectionCommand command = command_of(Operation::resolve_address, endpoint);
  command.source = source;
  command.destination = destination;
  command.number = static_cast<std::uint32_t>(timeout_milliseconds);
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::resolve_route(EndpointId endpoint, int timeout_milliseconds) {
  ConnectionCommand command = command_of(Operation::resolve_route, endpoint);
  command.number = static_cast<std::uint32_t>(timeout_milliseconds);
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::query(EndpointId endpoint, EndpointStatus& status) {
  ConnectionCommand command = command_of(Operation::query, endpoint);
  ConnectionReply reply;
  const int error = ask(command, reply);
  if (error == 0) status = std::move(reply.status);
  return error;
}

int ConnectionChannel::connect(EndpointId endpoint, ConnectionQpType qp_type,
                               const ConnectionParameters& parameters) {
  ConnectionCommand command = command_of(Operation::connect, endpoint);
  command.parameters = parameters;
  command.qp_type = qp_type;
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::accept(EndpointId endpoint, ConnectionQpType qp_type,
                              const ConnectionParameters& parameters) {
  ConnectionCommand command = command_of(Operation::accept, endpoint);
  command.parameters = parameters;
  command.qp_type = qp_type;
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::establish(EndpointId endpoint) {
  return simple(Operation::establish, endpoint);
}

int ConnectionChannel::reject(EndpointId endpoint, std::uint32_t reason,
                              std::span<const std::byte> private_data) {
  ConnectionCommand command = command_of(Operation::reject, endpoint);
  command.number = reason;
  command.bytes.assign(private_data.begin(), private_data.end());
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::notify_established(EndpointId endpoint) {
  return simple(Operation::notify_established, endpoint);
}

int ConnectionChannel::disconnect(EndpointId endpoint) {
  return simple(Operation::disconnect, endpoint);
}

int ConnectionChannel::set_option(EndpointId endpoint, std::uint32_t level, std::uint32_t option,
                                  std::span<const std::byte> bytes) {
  ConnectionCommand command = command_of(Operation::set_option, endpoint);
  command.level = level;
  command.number = option;
  command.bytes.assign(bytes.begin(), bytes.end());
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::qp_attributes(EndpointId endpoint, QpTarget state,
                                     QpAttributes& attributes) {
  ConnectionCommand command = command_of(Operation::qp_attributes, endpoint);
  command.target = state;
  ConnectionReply reply;
  const int error = ask(command, reply);
  if (error == 0) attributes = reply.attributes;
  return error;
}

int ConnectionChannel::join_multicast(EndpointId endpoint, const SocketAddress& group,
                                      std::uint32_t flags) {
  ConnectionCommand command = command_of(Operation::join_multicast, endpoint);
  command.destination = group;
  command.number = flags;
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::report(EndpointId endpoint, ConnectionEventType type, std::int32_t status,
                              std::uint64_t argument) {
  ConnectionCommand command = command_of(Operation::report, endpoint);
  ConnectionEvent& event = command.events.emplace_back();
  event.type = type;
  event.status = status;
  event.argument = argument;
  ConnectionReply reply;
  return ask(command, reply);
}

int ConnectionChannel::leave_multicast(EndpointId endpoint, const SocketAddress& group) {
  ConnectionCommand command = command_of(Operation::leave_multicast, endpoint);
  command.destination = group;
  ConnectionReply reply;
  return ask(command, reply);
}

// The program may not have taken all events of an endpoint that it destroys. Those that lie on the
// socket must not keep its descriptor readable. So the channel takes all events back, while the
// agent sends nothing, and the agent then sends the events of other endpoints again.
int ConnectionChannel::destroy(EndpointId endpoint, std::uint32_t& events_taken) {
  const std::lock_guard lock(command_mutex_);
  ConnectionCommand command = command_of(Operation::destroy, endpoint);
  {
    const std::lock_guard endpoints_lock(endpoints_mutex_);
    const auto known = endpoints_.find(endpoint);
    if (known == endpoints_.end()) return EINVAL;
    events_taken = command.level = known->second.events_taken;
  }
  ConnectionReply reply;
  const int error = ask_locked(command, reply);
  if (error != 0 && error != ENODEV) return error;
  {
    const std::lock_guard endpoints_lock(endpoints_mutex_);
    events_taken = endpoints_[endpoint].events_taken;
    endpoints_.erase(endpoint);
  }
  if (error != 0 || !reply.is_held) return 0;
  ConnectionCommand give_back = command_of(Operation::give_back, {});
  std::vector<ConnectionEvent> events = take_back();
  while (events.size() > events_at_a_time) {
    give_back.number = 1;
    give_back.events.assign(events.begin(), events.begin() + events_at_a_time);
    events.erase(events.begin(), events.begin() + events_at_a_time);
    static_cast<void>(ask_locked(give_back, reply));
  }
  give_back.number = 0;
  give_back.events = std::move(events);
  static_cast<void>(ask_locked(give_back, reply));
  return 0;
}

int ConnectionChannel::migrate(EndpointId endpoint, ConnectionChannel& to) {
  if (&to == this) return 0;
  const std::scoped_lock lock(command_mutex_, to.command_mutex_);
  ConnectionReply reply;
  ConnectionCommand command = command_of(Operation::hold, endpoint);
  if (const int error = ask_locked(command, reply); error != 0) return error;
  command.operation = Operation::give_back;
  std::vector<ConnectionEvent> events = take_back();
  while (events.size() > events_at_a_time) {
    command.number = 1;
    command.events.assign(events.begin(), events.begin() + events_at_a_time);
    events.erase(events.begin(), events.begin() + events_at_a_time);
    static_cast<void>(ask_locked(command, reply));
  }
  {
    const std::scoped_lock endpoints_lock(endpoints_mutex_, to.endpoints_mutex_);
    to.endpoints_[endpoint] = endpoints_[endpoint];
  }
  command.operation = Operation::migrate;
  command.number = to.number_;
  command.events = std::move(events);
  const int error = ask_locked(command, reply);
  const std::scoped_lock endpoints_lock(endpoints_mutex_, to.endpoints_mutex_);
  if (error == 0) {
    endpoints_.erase(endpoint);
  } else {
    to.endpoints_.erase(endpoint);
  }
  return error;
}

// Takes the events that the program has not taken yet from the socket and returns them, oldest
// first.
std::vector<ConnectionEvent> ConnectionChannel::take_back() {
  std::vector<ConnectionEvent> events;
  std::byte bytes[message_bytes];
  for (;;) {
    const ssize_t received = recv(events_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return events;
    ++events_taken_;
    ConnectionEvent event;
    if (decode({bytes, static_cast<std::size_t>(received)}, event)) {
      events.push_back(std::move(event));
    }
  }
}

int ConnectionChannel::next_event(ConnectionEvent& event) {
  std::byte bytes[message_bytes];
  for (;;) {
    const std::uint32_t generation = generation_;
    const ssize_t received = recv(events_.get(), bytes, sizeof(bytes), 0);
    if (received < 0 && errno != ECONNRESET) return errno;
    if (received <= 0) {
      if (lose_agent(generation, event)) return 0;
      continue;
    }
    ++events_taken_;
    if (!decode({bytes, static_cast<std::size_t>(received)}, event)) continue;
    if (deliver(event)) return 0;
  }
}

// Counts an event. Returns false if its endpoint has been destroyed in the meantime.
bool ConnectionChannel::deliver(const ConnectionEvent& event) {
  const std::lock_guard lock(endpoints_mutex_);
  const auto known = endpoints_.find(event.owner());
  if (known == endpoints_.end()) return false;
  ++known->second.events_taken;
  if (event.is_request()) endpoints_[event.endpoint] = {};
  return true;
}

// The agent is gone, so each endpoint's device is gone too, as programs see it. Reports one
// device_removal for each endpoint. After the last, a silent socket replaces the descriptor, which
// would otherwise stay readable. Returns false if there is nothing to report.
bool ConnectionChannel::lose_agent(std::uint32_t generation, ConnectionEvent& event) {
  const std::lock_guard lock(endpoints_mutex_);
  if (generation != generation_) return false;
  for (auto& [id, known] : endpoints_) {
    if (known.is_lost) continue;
    known.is_lost = true;
    ++known.events_taken;
    event = {};
    event.type = ConnectionEventType::device_removal;
    event.endpoint = id;
    return true;
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  const UniqueFd quiet(ends[0]);
  quiet_end_.reset(ends[1]);
  replace_events(quiet.get());
  return false;
}

// Keeps the descriptor's number and flags, because the program knows the one and has set the
// others.
void ConnectionChannel::replace_events(int socket) {
  const int flags = fcntl(events_.get(), F_GETFL);
  dup3(socket, events_.get(), O_CLOEXEC);
  fcntl(events_.get(), F_SETFL, flags);
  ++generation_;
}

}  // namespace tulle::live
