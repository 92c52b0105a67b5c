#include "live/fabric/server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "fabric/subnet.h"
#include "fabric/subnet_managers.h"
#include "live/fabric/captures.h"
#include "live/fabric/client.h"
#include "live/fabric/data_ports.h"
#include "live/fabric/datagrams.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/host_administration.h"
#include "live/fabric/host_connections.h"
#include "live/fabric/host_networks.h"
#include "live/fabric/host_services.h"
#include "live/fabric/ip_interfaces.h"
#include "live/fabric/manager_files.h"
#include "live/fabric/messages.h"
#include "live/fabric/other_machines.h"
#include "live/fabric/session.h"
#include "live/message/port_attributes.h"
#include "live/message/socket.h"
#include "os/service_process.h"
#include "os/trusted_folder.h"

namespace tulle::live {
namespace {

using Session = FabricSession;

constexpr std::size_t sessions_max = 1'024;
// Beyond those of programs, for the commands of the fabric's owner: status, cut, down.
constexpr std::size_t commands_max = 32;
// Connections that have said nothing yet.
constexpr std::ptrdiff_t silent_max = 64;
static_assert(sessions_max == 1'024, "the text says it");
constexpr char too_many_text[] = "the fabric has 1024 connections, which is the most";
constexpr int messages_in_a_turn = 64;
// The hosts' connection managers, and their questions to subnet administration, are clients of the
// services, too, with separate numbers.
constexpr std::uint32_t own_clients = 1u << 31;
constexpr std::uint32_t administration_clients = 1u << 30;
// The lowest bits of an event's datum say what kind of thing its address belongs to.
constexpr std::uint64_t kind_mask = 7;
enum class EventKind : std::uint8_t { session, bell, packets, addresses, machines };
constexpr int no_memory_pause_microseconds = 10'000;

class FabricServer {
 public:
  FabricServer(const FabricOptions& options, UniqueFd listener, HostNetworks* networks,
               std::optional<MachineSocket> socket)
      : listener_(std::move(listener)),
        networks_(networks),
        subnet_(now(), options.topology, options.is_elsewhere(socket ? socket->own() : 0)),
        managers_(managers_of(options, subnet_)),
        hosts_(subnet_, managers_.get()),
        data_ports_(now(), subnet_),
        manager_files_(options.folder + "/managers", subnet_,
                       [this](Time at, std::uint32_t host, bool is_manager) {
                         hosts_.set_manager(at, host, is_manager);
                       }) {
    hosts_.on_connection_datagram([this](std::uint32_t host) { connections_of(host); });
    if (options.keeps_rates) data_ports_.traffic().keep_rates();
    if (socket) {
      machines_.emplace(now(), std::move(*socket), options.machines, options.machine_of, subnet_,
                        data_ports_.traffic());
    }
    if (networks == nullptr || !networks->no_interfaces().empty()) return;
    interfaces_.emplace(
        now, subnet_, data_ports_, *networks,
        [this](std::uint32_t host) -> HostAdministration& {
          has_to_manage_ = true;  // it is about to be asked
          return administration_of(host);
        },
        [this](int fd, IpInterfaces::Link& link, IpInterfaces::Source source) {
          const bool has_packets = source == IpInterfaces::Source::packets;
          watch(fd, &link, has_packets ? EventKind::packets : EventKind::addresses);
        });
  }

  Result<void> serve(const std::function<void()>& ready);

 private:
  static std::unique_ptr<fabric::SubnetManagers> managers_of(const FabricOptions& options,
                                                             fabric::Subnet& subnet) {
    if (!options.has_manager) return nullptr;
    return std::make_unique<fabric::SubnetManagers>(now(), subnet, manager_settings(options));
  }
  // Returns the time since the process began. A Time has 106 days, and a machine may have been up
  // for longer.
  static Time now() {
    static const auto begin = std::chrono::steady_clock::now();
    const auto since = std::chrono::steady_clock::now() - begin;
    return Time::nanoseconds(std::chrono::nanoseconds(since).count());
  }

  void watch(int fd, void* of, EventKind kind = EventKind::session, int change = EPOLL_CTL_ADD);
  void handle(const epoll_event& event);
  Time next_management() const;
  Time next_event() const;
  void turn();
  void accept_all();
  void end_silent();
  void handle(Session& session);
  void end(const Session& session);
  void handle_message(Session& session, ReceivedMessage& message);
  void greet(Session& session, const FabricHello& hello, std::vector<UniqueFd>& fds);
  void greet_program(Session& session, const FabricHello& hello, std::vector<UniqueFd>& fds);
  void open_port(Session& session, std::uint32_t host);
  HostAdministration& administration_of(std::uint32_t host);
  HostConnections& connections_of(std::uint32_t host);
  void open_channel(Session& session, std::uint32_t host);
  void execute(Session& session, std::span<const std::byte> bytes);
  bool progress_connections();
  void open_data_port(Session& session, std::uint32_t host, UniqueFd button);
  void enter(Session& session, std::uint32_t host);
  void admit(Session& session, std::uint32_t host);
  void take_network(HostNetworks::Answer answer);
  void pass_reregistrations();
  void begin_capture(Session& session, const FabricHello& hello);
  void manage();
  void tell_of_port(Session& session);
  void change_cable(Session& session, const FabricHello& hello);
  FabricNodes nodes_from(std::uint32_t first) const;
  std::string no_network(std::uint32_t host, const std::string& reason) const;
  void take_datagrams(Session& session);
  void deliver(const management::DatagramService::Delivery& delivery);
  template <typename Message>
  void answer(Session& session, Message message);
  void refuse(Session& session, const std::string& reason) {
    static_cast<void>(send_message(session.connection.get(), encode(Refused{reason})));
    session.is_over = true;
  }

  UniqueFd listener_;
  UniqueFd signals_;
  UniqueFd epoll_;
  HostNetworks* networks_;  // null: the hosts share this machine's network
  fabric::Subnet subnet_;
  std::unique_ptr<fabric::SubnetManagers> managers_;  // null: the fabric has none
  HostServices hosts_;
  DataPorts data_ports_;
  Captures captures_{data_ports_.traffic()};
  std::optional<OtherMachines> machines_;  // none: all nodes are here
  std::map<std::uint32_t, std::unique_ptr<HostAdministration>> administrations_;  // by host
  std::map<std::uint32_t, std::unique_ptr<HostConnections>> connections_;         // by host
  std::optional<IpInterfaces> interfaces_;  // none: the hosts have no IP over InfiniBand
  Time connections_due_ = Time::never();    // when one of them has something to do
  ManagerFiles manager_files_;
  std::map<std::uint32_t, std::vector<ConnectionService::ChannelNumber>> blocked_;  // by host
  std::vector<std::unique_ptr<Session>> sessions_;
  std::uint32_t next_id_ = 1;
  bool is_stopped_ = false;
  bool has_to_manage_ = true;    // something has happened besides packets with data
  bool has_more_data_ = false;   // packets with data are left to move
  bool waits_for_room_ = false;  // of the socket for other machines
};

Result<void> FabricServer::serve(const std::function<void()>& ready) {
  signals_ = stop_signals();
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!signals_ || !epoll_) {
    return Error{fmt::format("cannot wait for events: {}", std::strerror(errno)), errno};
  }
  if (auto opened = manager_files_.open(); !opened) return opened;
  watch(signals_.get(), nullptr);
  watch(listener_.get(), nullptr);
  watch(manager_files_.descriptor(), nullptr);
  if (networks_ != nullptr) watch(networks_->descriptor(), nullptr);
  if (machines_) watch(machines_->descriptor(), &*machines_, EventKind::machines);
  // Programs find a subnet that its manager has set up. Those of other machines come unasked.
  if (machines_ && networks_ != nullptr) networks_->ask_for_all();
  manage();
  ready();
  while (!is_stopped_) {
    try {
      turn();
    } catch (const std::bad_alloc&) {
      usleep(no_memory_pause_microseconds);  // the descriptors tell once more what is to be done
    }
  }
  return {};
}

// An event's datum is the address of a session, or of an interface.
void FabricServer::watch(int fd, void* of, EventKind kind, int change) {
  static_assert(alignof(Session) > kind_mask && alignof(OtherMachines) > kind_mask);
  epoll_event event{};
  event.events = EPOLLIN;
  if (kind == EventKind::packets || kind == EventKind::machines) event.events |= EPOLLET;
  if (kind == EventKind::machines && waits_for_room_) event.events |= EPOLLOUT;
  event.data.u64 = reinterpret_cast<std::uintptr_t>(of) | static_cast<std::uint64_t>(kind);
  epoll_ctl(epoll_.get(), change, fd, &event);
}

Time FabricServer::next_management() const {
  return std::min({subnet_.next_event(), hosts_.next_timeout(), connections_due_});
}

Time FabricServer::next_event() const {
  if (has_more_data_ || has_to_manage_) return Time::zero();
  Time next = std::min(next_management(), data_ports_.next_event());
  if (machines_) next = std::min(next, machines_->next_event());
  return interfaces_ ? std::min(next, interfaces_->next_event()) : next;
}

void FabricServer::handle(const epoll_event& event) {
  const std::uint64_t datum = event.data.u64;
  void* const of = reinterpret_cast<void*>(datum & ~kind_mask);
  if (of == nullptr) {
    has_to_manage_ = true;
    return;
  }
  switch (static_cast<EventKind>(datum & kind_mask)) {
    case EventKind::session:
      return handle(*static_cast<Session*>(of));
    case EventKind::bell:  // the connection need not be looked at
      return data_ports_.answer(static_cast<Session*>(of)->id);
    case EventKind::packets:
      return interfaces_->read(now(), *static_cast<IpInterfaces::Link*>(of),
                               IpInterfaces::Source::packets);
    case EventKind::addresses:
      return interfaces_->read(now(), *static_cast<IpInterfaces::Link*>(of),
                               IpInterfaces::Source::addresses);
    case EventKind::machines:
      return machines_->wake();
  }
}

void FabricServer::turn() {
  std::array<epoll_event, 64> events;
  const Time next = next_event();
  const Time left = next.is_never() ? next : next - now();
  const int count = wait_for_events(epoll_.get(), events, left);
  for (int i = 0; i < count; ++i) handle(events[i]);
  const Time at = now();
  const bool has_more_to_read = machines_ && machines_->read(at);
  if (machines_ && machines_->take_news()) has_to_manage_ = true;
  if (has_to_manage_ || next_management() <= at) {
    // A program's packets go before the messages that it sent later: a group that it leaves gets
    // its last packets.
    constexpr int turns_max = 16;
    for (int i = 0; i < turns_max && data_ports_.progress(at); ++i) {
    }
    manage();
    if (machines_) machines_->follow();
  }
  if (machines_ && machines_->next_event() <= at) machines_->run(at);
  has_more_data_ = data_ports_.progress(at) || has_more_to_read;
  if (interfaces_) has_more_data_ = interfaces_->progress(at) || has_more_data_;
  if (machines_) has_more_data_ = machines_->send() || has_more_data_;
  if (machines_ &&
      machines_->wants_room() != std::exchange(waits_for_room_, machines_->wants_room())) {
    watch(machines_->descriptor(), &*machines_, EventKind::machines, EPOLL_CTL_MOD);
  }
  std::erase_if(sessions_, [this](const auto& session) {
    if (session->is_over) end(*session);
    return session->is_over;
  });
}

// Does what packets with data do not need.
void FabricServer::manage() {
  has_to_manage_ = false;
  accept_all();
  if (has_stop_signal(signals_)) is_stopped_ = true;
  manager_files_.read(now());
  if (networks_ != nullptr) {
    networks_->take_answers(
        [this](HostNetworks::Answer answer) { take_network(std::move(answer)); });
  }
  do {
    hosts_.progress(now(), [this](const auto& delivery) { deliver(delivery); });
  } while (progress_connections());
  data_ports_.follow(now());
  pass_reregistrations();
  if (interfaces_) interfaces_->follow(now());
  for (const auto& session : sessions_) {
    if (session->data_host && !session->is_over) tell_of_port(*session);
  }
}

// The keeper has made a host's namespaces, or an interface.
void FabricServer::take_network(HostNetworks::Answer answer) {
  const std::uint32_t host = answer.host;
  const std::string reason = answer.interface.empty() ? answer.reason : std::string();
  if (interfaces_) interfaces_->take(now(), std::move(answer));
  if (reason.empty() && !networks_->is_made(host)) return;
  for (const auto& session : sessions_) {
    if (session->entered != host || session->is_over) continue;
    session->entered.reset();
    if (reason.empty()) admit(*session, host);
    if (!reason.empty()) refuse(*session, no_network(host, reason));
  }
}

// Notifies all users of a port that they must register with the manager again.
void FabricServer::pass_reregistrations() {
  const auto pass = [this](std::uint32_t host) {
    if (!hosts_.take_reregistration(host)) return;
    if (interfaces_) interfaces_->register_anew(now(), host);
    for (const auto& session : sessions_) {
      if (session->data_host == host) session->must_register_anew = true;
    }
  };
  for (const auto& session : sessions_) {
    if (session->data_host) pass(*session->data_host);
  }
  if (!interfaces_) return;
  for (const std::uint32_t host : interfaces_->hosts()) pass(host);
}

void FabricServer::tell_of_port(Session& session) {
  PortChanged changed{hosts_.port_of(*session.data_host), session.must_register_anew};
  if (changed.port == session.told && !changed.must_register_anew) return;
  const InfinibandPort port = changed.port;
  const Result<void> sent = send_message(session.connection.get(), encoded(changed));
  // A program that is stopped is told once it reads again, and something else happens.
  if (!sent && sent.error().error_number == EAGAIN) return;
  if (!sent) session.is_over = true;
  session.told = port;
  session.must_register_anew = false;
}

void FabricServer::accept_all() {
  constexpr int accepts_in_a_turn = 64;
  for (int i = 0; i < accepts_in_a_turn; ++i) {
    UniqueFd connection = accept_connection(listener_);
    if (!connection) return;
    auto peer = peer_of(connection.get());
    auto session = std::make_unique<Session>();
    session->connection = std::move(connection);
    session->id = next_id_++;
    watch(session->connection.get(), session.get());
    if (!peer || !is_trusted(peer->uid)) {
      refuse(*session, fmt::format("this fabric belongs to user {}", geteuid()));
    }
    sessions_.push_back(std::move(session));
    end_silent();
  }
}

// Ends the oldest of the connections that have said nothing, if there are too many.
void FabricServer::end_silent() {
  const auto is_silent = [](const auto& each) { return !each->has_said && !each->is_over; };
  if (std::ranges::count_if(sessions_, is_silent) <= silent_max) return;
  (*std::ranges::find_if(sessions_, is_silent))->is_over = true;
}

void FabricServer::handle(Session& session) {
  for (int i = 0; i < messages_in_a_turn && !session.is_over; ++i) {
    auto message = receive_message(session.connection.get());
    if (message) {
      has_to_manage_ = session.has_said = true;
      handle_message(session, *message);
      continue;
    }
    if (message.error().error_number != EAGAIN) session.is_over = true;
    break;
  }
  if (session.host && !session.is_over) take_datagrams(session);
}

// Gives back all that the session had.
void FabricServer::end(const Session& session) {
  if (session.host) hosts_.leave(*session.host, session.id);
  if (session.captures) captures_.remove(session.id);
  if (session.data_host) data_ports_.close(now(), session.id);
  if (session.connects) {
    connections_.at(*session.connects)->service().close_channel(session.channel);
    has_to_manage_ = true;  // peers are told
  }
}

template <typename Message>
void FabricServer::answer(Session& session, Message message) {
  if (!send_message(session.connection.get(), encoded(message))) session.is_over = true;
}

void FabricServer::handle_message(Session& session, ReceivedMessage& message) {
  if (session.connects) return execute(session, message.bytes);
  FabricHello hello;
  if (!session.host && !session.data_host) {
    if (decoded(message.bytes, hello)) return greet(session, hello, message.fds);
    return refuse(session,
                  "the fabric does not know this message; is the program's Tulle of "
                  "another version?");
  }
  RegisterAgent registration;
  UnregisterAgent removal;
  // A program says nothing about its port for data.
  if (session.host && decoded(message.bytes, registration)) {
    answer(session, hosts_.add(*session.host, session.id, registration));
  } else if (session.host && decoded(message.bytes, removal)) {
    answer(session, hosts_.remove(*session.host, session.id, removal.agent));
  } else {
    session.is_over = true;
  }
}

void FabricServer::greet(Session& session, const FabricHello& hello, std::vector<UniqueFd>& fds) {
  const auto greeted = static_cast<std::size_t>(
      std::ranges::count_if(sessions_, [](const auto& each) { return each->has_said; }));
  if (greeted > sessions_max + commands_max) return refuse(session, too_many_text);
  switch (hello.purpose) {
    case FabricPurpose::describe:
    case FabricPurpose::open:
    case FabricPurpose::data:
    case FabricPurpose::attribute:
    case FabricPurpose::counters:
    case FabricPurpose::enter:
    case FabricPurpose::connect:
      if (greeted > sessions_max) return refuse(session, too_many_text);
      return greet_program(session, hello, fds);
    case FabricPurpose::capture:
      return begin_capture(session, hello);
    case FabricPurpose::status:
      return answer(session, nodes_from(hello.first));
    case FabricPurpose::machines:
      return answer(session,
                    FabricMachines{machines_ ? machines_->status() : std::vector<FabricMachine>()});
    case FabricPurpose::cut:
    case FabricPurpose::join:
      return change_cable(session, hello);
    case FabricPurpose::stop:
      answer(session, FabricEnd{});
      is_stopped_ = true;
      return;
  }
  session.is_over = true;
}

void FabricServer::greet_program(Session& session, const FabricHello& hello,
                                 std::vector<UniqueFd>& fds) {
  const auto host = subnet_.find(hello.host);
  if (!host || !subnet_.topology().is_host(*host)) {
    return refuse(session,
                  fmt::format("the fabric has no host {}; its hosts are h0 to h{}",
                              tulle::quoted(hello.host), subnet_.topology().adapters() - 1));
  }
  if (subnet_.is_elsewhere(*host)) {
    return refuse(session, fmt::format("{} is a host of the machine {}", hello.host,
                                       tulle::quoted(machines_->name_of(*host))));
  }
  if (hello.purpose == FabricPurpose::open) return open_port(session, *host);
  if (hello.purpose == FabricPurpose::connect) return open_channel(session, *host);
  if (hello.purpose == FabricPurpose::data) {
    return open_data_port(session, *host, fds.size() == 1 ? std::move(fds[0]) : UniqueFd());
  }
  if (hello.purpose == FabricPurpose::enter) return enter(session, *host);
  if (hello.purpose == FabricPurpose::counters) return answer(session, hosts_.counters(*host));
  if (hello.purpose == FabricPurpose::attribute) {
    const auto text = port_attribute(device_of({}, hosts_.describe(*host, {})), hello.file);
    const Attribute attribute{text.has_value(), text.value_or("")};
    if (!send_message(session.connection.get(), encode(attribute))) session.is_over = true;
    return;
  }
  answer(session, hosts_.describe(*host, manager_files_.path(*host)));
}

void FabricServer::open_port(Session& session, std::uint32_t host) {
  std::array<int, 2> ends{};
  constexpr int kind = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (socketpair(AF_UNIX, kind, 0, ends.data()) != 0) {
    return refuse(session,
                  fmt::format("the fabric cannot make a socket: {}", std::strerror(errno)));
  }
  session.datagrams.reset(ends[0]);
  const UniqueFd programs_end(ends[1]);
  PortOpened opened;
  const std::array<int, 1> fds = {programs_end.get()};
  if (!send_message(session.connection.get(), encoded(opened), fds)) {
    session.is_over = true;
    return;
  }
  session.host = host;
  hosts_.enter(host, session.id, process_at(session.connection.get()));
  watch(session.datagrams.get(), &session);
}

HostAdministration& FabricServer::administration_of(std::uint32_t host) {
  auto& administration = administrations_[host];
  if (administration == nullptr) {
    administration = std::make_unique<HostAdministration>(
        host, own_clients | administration_clients | host, now, subnet_, hosts_);
  }
  return *administration;
}

// A host has a connection manager from the first program or peer on that needs it.
HostConnections& FabricServer::connections_of(std::uint32_t host) {
  auto& connections = connections_[host];
  if (connections == nullptr) {
    connections = std::make_unique<HostConnections>(host, own_clients | host, now, subnet_, hosts_,
                                                    administration_of(host));
  }
  return *connections;
}

void FabricServer::open_channel(Session& session, std::uint32_t host) {
  HostConnections& connections = connections_of(host);
  const pid_t process = process_at(session.connection.get());
  auto events = connections.service().open_channel(
      {process, geteuid(), false}, {.name = "tulle0", .interfaces = {}}, session.channel);
  if (!events) return refuse(session, events.error().message);
  session.connects = host;
  const std::array<int, 1> fds = {events->get()};
  if (!send_message(session.connection.get(), encode(ChannelOpened{session.channel}), fds)) {
    session.is_over = true;
  }
}

void FabricServer::execute(Session& session, std::span<const std::byte> bytes) {
  CommandMessage command;
  if (!decode(bytes, command)) {
    session.is_over = true;  // a program of this version sends nothing else
    return;
  }
  ConnectionService& service = connections_.at(*session.connects)->service();
  const ReplyMessage reply{service.execute(session.channel, std::move(command))};
  if (!send_message(session.connection.get(), encode(reply))) session.is_over = true;
}

// Returns true if a host's connection manager has sent datagrams.
bool FabricServer::progress_connections() {
  bool has_sent = false;
  connections_due_ = Time::never();
  for (auto& [host, connections] : connections_) {
    has_sent = connections->progress() || has_sent;
    const Time left = connections->time_left();
    if (!left.is_never()) connections_due_ = std::min(connections_due_, now() + left);
    ConnectionService& service = connections->service();
    for (const auto channel : std::exchange(blocked_[host], {})) service.flush(channel);
    // An event tells that the program reads again. Then all that is blocked is tried.
    for (const auto& [socket, channel] : service.take_blocked()) {
      blocked_[host].push_back(channel);
      epoll_event event{};
      event.events = EPOLLOUT | EPOLLONESHOT;
      if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event) != 0) {
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event);
      }
    }
  }
  return has_sent;
}

void FabricServer::open_data_port(Session& session, std::uint32_t host, UniqueFd button) {
  const pid_t process = process_at(session.connection.get());
  auto port = data_ports_.open(now(), host, session.id, std::move(button), process);
  if (!port) return refuse(session, port.error().message);
  session.data_host = host;
  DataPortOpened opened{hosts_.describe(host, {}), port->slot, port->first_qp, port->qp_count};
  session.told = opened.port.port;
  const std::array<int, 2> fds = {port->memory.get(), port->button.get()};
  if (!send_message(session.connection.get(), encoded(opened), fds)) session.is_over = true;
  watch(data_ports_.bell(session.id), &session, EventKind::bell);
}

// Lets the program enter the host's network. The first ones wait until it has been made.
void FabricServer::enter(Session& session, std::uint32_t host) {
  if (networks_ == nullptr || networks_->is_made(host)) return admit(session, host);
  const auto asked = networks_->find(host).empty() ? networks_->ask(host) : Result<void>();
  if (!asked) return refuse(session, no_network(host, asked.error().message));
  session.entered = host;
  networks_->ask_for_all();
}

void FabricServer::admit(Session& session, std::uint32_t host) {
  std::vector<int> namespaces;
  if (networks_ != nullptr) {
    for (const UniqueFd& one : networks_->find(host)) namespaces.push_back(one.get());
  }
  HostEntered entered;
  if (!send_message(session.connection.get(), encoded(entered), namespaces)) session.is_over = true;
}

std::string FabricServer::no_network(std::uint32_t host, const std::string& reason) const {
  return fmt::format("the fabric cannot make the network of {}: {}", fabric::host_name(host),
                     reason);
}

void FabricServer::begin_capture(Session& session, const FabricHello& hello) {
  if (session.captures) return refuse(session, "this connection has a capture");
  auto ring =
      captures_.add(session.id, {hello.ring_bytes, hello.snap_length, hello.has_flow_control});
  if (!ring) return refuse(session, ring.error().message);
  session.captures = true;
  const std::array<int, 1> fds = {*ring};
  FabricEnd begun;
  if (!send_message(session.connection.get(), encoded(begun), fds)) session.is_over = true;
}

void FabricServer::change_cable(Session& session, const FabricHello& hello) {
  auto link = find_cable(subnet_, hello.ends);
  if (!link) return refuse(session, link.error().message);
  subnet_.set_cut(now(), *link, hello.purpose == FabricPurpose::cut);
  answer(session, FabricEnd{});
}

FabricNodes FabricServer::nodes_from(std::uint32_t first) const {
  FabricNodes some;
  some.discarded = subnet_.discarded();
  const std::uint32_t all = subnet_.topology().nodes();
  for (std::uint32_t node = first; node < all && some.nodes.size() < FabricNodes::nodes_max;
       ++node) {
    some.nodes.push_back(hosts_.node_status(node));
    const auto connections = connections_.find(node);
    if (connections != connections_.end()) {
      some.nodes.back().listeners = connections->second->service().listener_count();
    }
    if (machines_) some.nodes.back().machine = machines_->name_of(node);
    const bool has_address = networks_ != nullptr && !some.nodes.back().is_switch;
    if (has_address) {
      some.nodes.back().address =
          subnet_.is_elsewhere(node) ? infiniband_address(node) : host_address(node);
    }
    if (interfaces_) some.nodes.back().interfaces = interfaces_->status(node);
  }
  return some;
}

void FabricServer::take_datagrams(Session& session) {
  for (int i = 0; i < messages_in_a_turn; ++i) {
    auto datagram = receive_datagram(session.datagrams.get());
    if (!datagram) {
      if (datagram.error().error_number != EAGAIN) session.is_over = true;
      return;
    }
    has_to_manage_ = true;
    hosts_.send(now(), *session.host, session.id, *datagram);
  }
}

// A program that does not read loses what comes.
void FabricServer::deliver(const management::DatagramService::Delivery& delivery) {
  if ((delivery.client & own_clients) != 0) {
    const std::uint32_t host = delivery.client & ~(own_clients | administration_clients);
    if ((delivery.client & administration_clients) != 0) {
      return administrations_.at(host)->take(delivery);
    }
    return connections_.at(host)->take(delivery);
  }
  const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& session) {
    return session->id == delivery.client;
  });
  if (found == sessions_.end()) return;
  Datagram datagram = hosts_.as_message(*(*found)->host, delivery);
  static_cast<void>(send_datagram((*found)->datagrams.get(), std::move(datagram)));
}

int fail(const std::string& reason) {
  std::fprintf(stderr, "tulle: %s\n", reason.c_str());
  return 1;
}

}  // namespace

int run_fabric(const FabricOptions& options, void (*ready)(const std::string& network)) {
  raise_file_limit();
  const std::string socket = fabric_socket(options.folder);
  auto listener = listen_at(socket);
  if (!listener) {
    if (listener.error().error_number != EADDRINUSE) return fail(listener.error().message);
    return fail(
        fmt::format("the fabric \"{}\" is up already; `tulle fabric down` ends it", options.name));
  }
  std::optional<ManagerFolder> manager(options.folder);
  auto around = prepare(options);
  if (!around) return fail(around.error().message);
  HostNetworks* networks = around->networks ? &*around->networks : nullptr;
  FabricServer server(options, std::move(*listener), networks, std::move(around->socket));
  const auto served = server.serve([&] { ready(around->sentence); });
  // Another fabric of this name may begin as soon as the socket's path is gone.
  around->networks.reset();
  manager.reset();
  unlink(socket.c_str());
  return served ? 0 : fail(served.error().message);
}

}  // namespace tulle::live
