#include "live/process/connection_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>
#include <variant>

#include "live/fabric/client.h"
#include "live/message/socket.h"
#include "live/process/agent_client.h"
#include "live/process/seal_choice.h"
#include "os/cancellation.h"

namespace tulle::live {
namespace {

// The agent answers in microseconds. An agent that is stopped must not make its programs hang
// indefinitely.
constexpr int answer_milliseconds = 10'000;
// Room for any reply or event; their private data are at most 256 bytes.
constexpr std::size_t message_bytes = 4096;
// Maximum of events in one command, so that it fits one message (message_bytes_max).
constexpr std::size_t events_at_a_time = 128;

bool await_reply(int socket, ReplyMessage& message) {
  pollfd readable{socket, POLLIN, 0};
  int ready;
  do {
    ready = poll(&readable, 1, answer_milliseconds);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return false;
  std::byte bytes[message_bytes];
  const ssize_t received = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  return received > 0 && decode({bytes, static_cast<std::size_t>(received)}, message);
}

// A thread of the program may be cancelled in these two, before it has changed anything.
ssize_t await_event(int socket, std::span<std::byte> bytes) {
  const CancellationPoint point;
  return recv(socket, bytes.data(), bytes.size(), MSG_PEEK);
}
void await_signal() {
  const CancellationPoint point;
  poll(nullptr, 0, -1);
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

// A channel that is new, to an agent or to the process of a software fabric.
Result<ConnectionChannel::Opened> ConnectionChannel::open_at(const Settings& settings) {
  if (!settings.fabric.empty()) {
    if (!settings.secure.empty()) return Error{"a fabric seals nothing (TULLE_SECURE)", EPROTO};
    auto channel = open_fabric_channel({settings.fabric, settings.host});
    if (!channel) return channel.error();
    return Opened{channel->number, std::move(channel->commands), std::move(channel->events)};
  }
  Hello hello;
  hello.purpose = Purpose::connect;
  hello.command = program_name();
  hello.device = settings.device;
  auto key = own_key(settings);
  if (!key) return key.error();
  hello.key_proof = key->proof;
  auto answer = ask_agent(settings, hello, IfAbsent::start);
  if (!answer) return answer.error();
  ChannelOpened opened;
  if (!decode(answer->message.bytes, opened) || answer->message.fds.size() != 1) {
    return Error{"the agent's answer is no channel for connections", EPROTO};
  }
  if (auto alike = check_agents_key(settings, key->id, opened.seal_key_id); !alike) {
    return alike.error();
  }
  return Opened{opened.channel, std::move(answer->connection), std::move(answer->message.fds[0])};
}

Result<void> ConnectionChannel::connect_to_agent() {
  auto opened = open_at(settings_);
  if (!opened) return opened.error();
  commands_ = std::move(opened->commands);
  number_ = opened->number;
  UniqueFd& events = opened->events;
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

template <typename Command>
int ConnectionChannel::ask(Command command, typename Command::Reply& reply) {
  const std::lock_guard lock(command_mutex_);
  try {
    return ask_locked(std::move(command), reply);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

template <typename Command>
int ConnectionChannel::ask(Command command) {
  reply::Done done;
  return ask(std::move(command), done);
}

template <typename Command>
int ConnectionChannel::ask_locked(Command command, typename Command::Reply& reply) {
  if constexpr (requires { command.endpoint; }) {
    const std::lock_guard lock(endpoints_mutex_);
    const auto known = endpoints_.find(command.endpoint);
    if (known == endpoints_.end()) return EINVAL;
    if (known->second.is_lost) return ENODEV;
  }
  ConnectionReply answer;
  if (!exchange(std::move(command), answer)) return ENODEV;
  if (const auto* failed = std::get_if<reply::Failed>(&answer)) return failed->error;
  auto* expected = std::get_if<typename Command::Reply>(&answer);
  if (expected == nullptr) return EPROTO;
  reply = std::move(*expected);
  return 0;
}

// Returns false if there is no agent, or it does not answer.
bool ConnectionChannel::exchange(ConnectionCommand command, ConnectionReply& reply) {
  if (!commands_) return false;
  ReplyMessage answer;
  const CommandMessage message{events_taken_, std::move(command)};
  if (!send_message(commands_.get(), encode(message)) || !await_reply(commands_.get(), answer)) {
    commands_.reset();  // a late answer must not pass for that of the next command
    return false;
  }
  reply = std::move(answer.reply);
  return true;
}

int ConnectionChannel::create(PortSpace space, ConnectionQpType qp_type, EndpointId& endpoint) {
  const std::lock_guard lock(command_mutex_);
  // The place for the endpoint is made first, so that no endpoint is lost for want of it.
  decltype(endpoints_) place;
  place.try_emplace(EndpointId{});
  const command::Create command{space, qp_type};
  reply::Created created;
  int error = ask_locked(command, created);
  if (error == ENODEV && !commands_) {
    {
      const std::lock_guard endpoints_lock(endpoints_mutex_);
      // A new agent is started only after the program has been told of the old agent's end.
      for (const auto& [id, known] : endpoints_) {
        if (!known.is_lost) return ENODEV;
      }
    }
    if (!connect_to_agent()) return ENODEV;
    error = ask_locked(command, created);
  }
  if (error != 0) return error;
  endpoint = created.endpoint;
  auto node = place.extract(place.begin());
  node.key() = endpoint;
  const std::lock_guard endpoints_lock(endpoints_mutex_);
  endpoints_.erase(endpoint);
  endpoints_.insert(std::move(node));
  return 0;
}

int ConnectionChannel::bind(EndpointId endpoint, const SocketAddress& address,
                            SocketAddress& bound) {
  reply::Bound reply;
  const int error = ask(command::Bind{endpoint, address}, reply);
  if (error == 0) bound = reply.address;
  return error;
}

int ConnectionChannel::listen(EndpointId endpoint, int backlog) {
  return ask(command::Listen{endpoint, static_cast<std::uint32_t>(std::max(backlog, 0))});
}

int ConnectionChannel::resolve_address(EndpointId endpoint, const SocketAddress& source,
                                       const SocketAddress& destination) {
  return ask(command::ResolveAddress{endpoint, source, destination});
}

int ConnectionChannel::resolve_route(EndpointId endpoint) {
  return ask(command::ResolveRoute{{endpoint}});
}

int ConnectionChannel::query(EndpointId endpoint, EndpointStatus& status) {
  return ask(command::Query{{endpoint}}, status);
}

int ConnectionChannel::connect(EndpointId endpoint, ConnectionQpType qp_type,
                               const ConnectionParameters& parameters) {
  return ask(command::Connect{endpoint, qp_type, parameters});
}

int ConnectionChannel::accept(EndpointId endpoint, ConnectionQpType qp_type,
                              const ConnectionParameters& parameters) {
  return ask(command::Accept{endpoint, qp_type, parameters});
}

int ConnectionChannel::establish(EndpointId endpoint) {
  return ask(command::Establish{{endpoint}});
}

int ConnectionChannel::reject(EndpointId endpoint, std::uint32_t reason,
                              std::span<const std::byte> private_data) {
  return ask(command::Reject{endpoint, reason, {private_data.begin(), private_data.end()}});
}

int ConnectionChannel::notify_established(EndpointId endpoint) {
  return ask(command::NotifyEstablished{{endpoint}});
}

int ConnectionChannel::disconnect(EndpointId endpoint) {
  return ask(command::Disconnect{{endpoint}});
}

int ConnectionChannel::set_option(EndpointId endpoint, std::uint32_t level, std::uint32_t option,
                                  std::span<const std::byte> bytes) {
  return ask(command::SetOption{endpoint, level, option, {bytes.begin(), bytes.end()}});
}

int ConnectionChannel::qp_attributes(EndpointId endpoint, QpAttributesOfStates& attributes) {
  return ask(command::GetQpAttributes{endpoint}, attributes);
}

int ConnectionChannel::join_multicast(EndpointId endpoint, const SocketAddress& group) {
  return ask(command::JoinMulticast{endpoint, group});
}

int ConnectionChannel::leave_multicast(EndpointId endpoint, const SocketAddress& group) {
  return ask(command::LeaveMulticast{endpoint, group});
}

int ConnectionChannel::report(EndpointId endpoint, ConnectionEventType type, std::int32_t status,
                              std::uint64_t argument) {
  return ask(command::Report{endpoint, type, status, argument});
}

// The program may not have taken all events of an endpoint that it destroys. Those that are still
// on the socket must not keep its descriptor readable. So the channel takes all events back, while
// the agent sends nothing, and the agent then sends the events of other endpoints again.
int ConnectionChannel::destroy(EndpointId endpoint, std::uint32_t& events_taken) {
  const std::lock_guard lock(command_mutex_);
  {
    const std::lock_guard endpoints_lock(endpoints_mutex_);
    const auto known = endpoints_.find(endpoint);
    if (known == endpoints_.end()) return EINVAL;
    events_taken = known->second.events_taken;
  }
  reply::Destroyed destroyed;
  int error = 0;
  try {
    error = ask_locked(command::Destroy{endpoint, events_taken}, destroyed);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0 && error != ENODEV) return error;
  {
    const std::lock_guard endpoints_lock(endpoints_mutex_);
    events_taken = endpoints_[endpoint].events_taken;
    endpoints_.erase(endpoint);
  }
  if (error != 0 || !destroyed.is_held) return 0;
  std::vector<ConnectionEvent> events = take_back();
  give_back_all_but_last(events);
  reply::Done done;
  static_cast<void>(ask_locked(command::GiveBack{false, std::move(events)}, done));
  return 0;
}

int ConnectionChannel::migrate(EndpointId endpoint, ConnectionChannel& to) {
  if (&to == this) return 0;
  const std::scoped_lock lock(command_mutex_, to.command_mutex_);
  reply::Done done;
  if (const int error = ask_locked(command::Hold{{endpoint}}, done); error != 0) return error;
  std::vector<ConnectionEvent> events = take_back();
  give_back_all_but_last(events);
  {
    const std::scoped_lock endpoints_lock(endpoints_mutex_, to.endpoints_mutex_);
    to.endpoints_[endpoint] = endpoints_[endpoint];
  }
  const int error = ask_locked(command::Migrate{endpoint, to.number_, std::move(events)}, done);
  const std::scoped_lock endpoints_lock(endpoints_mutex_, to.endpoints_mutex_);
  if (error == 0) {
    endpoints_.erase(endpoint);
  } else {
    to.endpoints_.erase(endpoint);
  }
  return error;
}

// Leaves as many events as fit in one message.
void ConnectionChannel::give_back_all_but_last(std::vector<ConnectionEvent>& events) {
  while (events.size() > events_at_a_time) {
    const auto end = events.begin() + events_at_a_time;
    reply::Done done;
    static_cast<void>(ask_locked(command::GiveBack{true, {events.begin(), end}}, done));
    events.erase(events.begin(), end);
  }
}

// Takes the events that the program has not taken yet from the socket and returns them, oldest
// first.
std::vector<ConnectionEvent> ConnectionChannel::take_back() {
  const std::lock_guard lock(taking_mutex_);
  std::vector<ConnectionEvent> events;
  std::byte bytes[message_bytes];
  for (;;) {
    const ssize_t received = recv(events_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return events;
    ++events_taken_;
    EventMessage message;
    if (decode({bytes, static_cast<std::size_t>(received)}, message)) {
      events.push_back(std::move(message.event));
    }
  }
}

int ConnectionChannel::next_event(ConnectionEvent& event) {
  std::byte bytes[message_bytes];
  for (;;) {
    const std::uint32_t generation = generation_;
    // An event that there is no memory for stays on the socket.
    ssize_t received = await_event(events_.get(), bytes);
    if (has_ended_) {
      await_signal();
      return EINTR;
    }
    if (received < 0 && errno != ECONNRESET) return errno;
    if (received <= 0) {
      if (lose_agent(generation, event)) return 0;
      continue;
    }
    const std::lock_guard lock(taking_mutex_);
    received = recv(events_.get(), bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    if (received <= 0) continue;  // another thread has taken it
    EventMessage message;
    const bool is_event = decode({bytes, static_cast<std::size_t>(received)}, message);
    const bool is_known = is_event && deliver(message.event);
    static_cast<void>(recv(events_.get(), bytes, sizeof(bytes), MSG_DONTWAIT));
    ++events_taken_;
    if (!is_known) continue;
    event = std::move(message.event);
    return 0;
  }
}

void ConnectionChannel::end() {
  has_ended_ = true;
  shutdown(events_.get(), SHUT_RDWR);
  shutdown(commands_.get(), SHUT_RDWR);
}

// Counts an event. Returns false if its endpoint has been destroyed in the meantime.
bool ConnectionChannel::deliver(const ConnectionEvent& event) {
  const std::lock_guard lock(endpoints_mutex_);
  const auto known = endpoints_.find(counted_with(event));
  if (known == endpoints_.end()) return false;
  if (std::holds_alternative<event::ConnectRequest>(event)) endpoints_[endpoint_of(event)] = {};
  ++known->second.events_taken;
  return true;
}

// The agent is gone, so each endpoint's device is gone too, as programs see it. Reports one
// DeviceRemoval for each endpoint. After the last, a silent socket replaces the descriptor, which
// would otherwise stay readable. Returns false if there is nothing to report.
bool ConnectionChannel::lose_agent(std::uint32_t generation, ConnectionEvent& event) {
  const std::lock_guard lock(endpoints_mutex_);
  if (generation != generation_) return false;
  for (auto& [id, known] : endpoints_) {
    if (known.is_lost) continue;
    known.is_lost = true;
    ++known.events_taken;
    event = event::DeviceRemoval{id};
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
