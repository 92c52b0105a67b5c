#include "live/fabric/server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>

#include "live/fabric/core.h"
#include "live/fabric/fabric_folder.h"
#include "os/service_process.h"
#include "os/system_error.h"
#include "os/users.h"

namespace tulle::live {
namespace {

// What is read of the files of long datagrams, of which one may have 64 MiB.
constexpr std::size_t file_bytes_in_a_turn = 4 << 20;
// Messages wait for packets no longer than this, however many there are.
constexpr std::chrono::milliseconds packets_time_before_management{10};
// Sessions' ends take no longer in a turn: what they left in their rings is still sent.
constexpr std::chrono::milliseconds ends_time{5};
constexpr std::uint64_t kind_mask = 7;
constexpr int no_memory_pause_microseconds = 10'000;

int fail(const std::string& reason) {
  std::fprintf(stderr, "tulle: %s\n", reason.c_str());
  return 1;
}

}  // namespace

FabricServer::FabricServer(const FabricOptions& options, HostNetworks* networks,
                           std::optional<MachineSocket> socket)
    : networks_(networks),
      subnet_(now(), options.topology, options.is_elsewhere(socket ? socket->own() : 0)),
      managers_(managers_of(options)),
      hosts_(subnet_, managers_.get()),
      data_ports_(now(), subnet_),
      clients_([this] { return now(); }, subnet_, hosts_),
      manager_files_(options.folder + "/managers", subnet_,
                     [this](Time at, std::uint32_t host, bool is_manager) {
                       hosts_.set_manager(at, host, is_manager);
                     }) {
  hosts_.on_connection_datagram([this](std::uint32_t host) { clients_.connections_of(host); });
  if (options.keeps_rates) data_ports_.traffic().keep_rates();
  if (socket) {
    machines_.emplace(now(), std::move(*socket), options.machines, options.machine_of, subnet_,
                      data_ports_.traffic());
  }
  if (networks == nullptr || !networks->no_interfaces().empty()) return;
  interfaces_.emplace([this] { return now(); }, subnet_, data_ports_, *networks,
                      [this](std::uint32_t host) -> HostAdministration& {
                        has_to_manage_ = true;  // it is about to be asked
                        return clients_.administration_of(host);
                      },
                      [this](int fd, IpInterfaces::Link& link, IpInterfaces::Source source) {
                        const bool has_packets = source == IpInterfaces::Source::packets;
                        watch(fd, &link, has_packets ? EventKind::packets : EventKind::addresses);
                      });
}

// What programs sent may close slowly here, too.
FabricServer::~FabricServer() {
  for (const auto& session : sessions_) end(*session);
  unclosed_.finish(listener_.take());
}

std::unique_ptr<fabric::SubnetManagers> FabricServer::managers_of(const FabricOptions& options) {
  if (!options.has_manager) return nullptr;
  return std::make_unique<fabric::SubnetManagers>(now(), subnet_, manager_settings(options));
}

void FabricServer::rebase(Time by) {
  subnet_.rebase(by);
  if (managers_ != nullptr) managers_->rebase(by);
  hosts_.rebase(by);
  data_ports_.rebase(by);
  if (machines_) machines_->rebase(by);
  clients_.rebase(by);
  if (interfaces_) interfaces_->rebase(by);
}

Result<void> FabricServer::serve(UniqueFd listener, const std::function<void()>& ready) {
  signals_ = stop_signals();
  auto loop = EventLoop::create();
  if (!loop || !signals_) return loop ? system_error("cannot wait for signals") : loop.error();
  loop_ = std::move(*loop);
  if (auto opened = manager_files_.open(); !opened) return opened;
  watch(signals_.get(), nullptr);
  listener_ = WatchedListener(std::move(listener), loop_);
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
void FabricServer::watch(int fd, void* of, EventKind kind) {
  static_assert(alignof(Session) > kind_mask && alignof(OtherMachines) > kind_mask);
  std::uint32_t events = EPOLLIN;
  if (kind == EventKind::packets || kind == EventKind::machines) events |= EPOLLET;
  if (kind == EventKind::machines && waits_for_room_) events |= EPOLLOUT;
  loop_.watch(fd, events, reinterpret_cast<std::uintptr_t>(of) | static_cast<std::uint64_t>(kind));
}

Time FabricServer::next_management() const {
  Time next = std::min({subnet_.next_event(), hosts_.next_timeout(), clients_.next_event()});
  if (!listener_.is_paused()) return next;
  const std::chrono::nanoseconds left = listener_.resumes_at() - WatchedListener::Clock::now();
  return std::min(next, now() + Time::nanoseconds(left.count()));
}

Time FabricServer::next_event() const {
  const bool has_more = has_more_data_ || has_more_to_end_ || !arriving_.empty();
  if (has_more || has_to_manage_) return Time::zero();
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
      return hear(*static_cast<Session*>(of));
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
  const Time next = next_event();
  const Time left = next.is_never() ? next : next - now();
  const auto events = loop_.wait(left);
  clock_.now([this](Time by) { rebase(by); });
  for (const epoll_event& event : events) handle(event);
  read_long_datagrams();
  const Time at = now();
  const bool has_more_to_read = machines_ && machines_->read(at);
  if (machines_ && machines_->take_news()) has_to_manage_ = true;
  if (has_to_manage_ || next_management() <= at) {
    // A program's packets go before the messages that it sent later: a group that it leaves gets
    // its last packets.
    constexpr int turns_max = 16;
    const auto due = WatchedListener::Clock::now() + packets_time_before_management;
    for (int i = 0; i < turns_max && data_ports_.progress(at); ++i) {
      if (WatchedListener::Clock::now() >= due) break;
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
    watch(machines_->descriptor(), &*machines_, EventKind::machines);
  }
  end_finished();
  unclosed_.retry();
}

// Does what packets with data do not need.
void FabricServer::manage() {
  has_to_manage_ = false;
  close_read();
  accept_all();
  if (has_stop_signal(signals_)) is_stopped_ = true;
  manager_files_.read(now());
  if (networks_ != nullptr) {
    networks_->take_answers(
        [this](HostNetworks::Answer answer) { take_network(std::move(answer)); });
  }
  do {
    hosts_.progress(now(),
                    [this](HostServices::Delivery delivery) { deliver(std::move(delivery)); });
  } while (clients_.progress(loop_));
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

// --- sessions ---

void FabricServer::accept_all() {
  listener_.resume();
  constexpr int accepts_in_a_turn = 64;
  for (int i = 0; i < accepts_in_a_turn; ++i) {
    if (unclosed_.has_many_sockets()) return listener_.begin_pause();
    UniqueFd connection = listener_.accept();
    if (!connection) return;
    auto peer = peer_of(connection.get());
    auto session = std::make_unique<Session>();
    session->connection = std::move(connection);
    session->id = sessions_.unused_id();
    if (peer) session->process = peer->pid;
    watch(session->connection.get(), session.get());
    if (!peer || !is_trusted(peer->uid)) {
      refuse(*session, fmt::format("this fabric belongs to {}", user_text(geteuid())));
    }
    sessions_.add(std::move(session));
    sessions_.end_silent();
  }
}

void FabricServer::end_finished() {
  const auto due = WatchedListener::Clock::now() + ends_time;
  has_more_to_end_ = false;
  for (const auto& session : sessions_) {
    if (!session->is_over) continue;
    has_more_to_end_ = WatchedListener::Clock::now() >= due;
    if (has_more_to_end_) break;
    end(*session);
  }
  sessions_.remove_closed();
}

// Gives back all that the session had. Its program sees the end at once, however long it takes to
// close what the program has sent.
void FabricServer::end(Session& session) {
  if (session.host) hosts_.leave(*session.host, session.id);
  if (session.captures) captures_.remove(session.id);
  if (session.connects) {
    clients_.service_of(*session.connects).close_channel(session.channel);
    has_to_manage_ = true;  // peers are told
  }
  std::vector<UniqueFd> left;
  if (session.data_host) left = data_ports_.close(now(), session.id);
  for (UniqueFd* socket : {&session.connection, &session.datagrams}) {
    shutdown(socket->get(), SHUT_RDWR);
    loop_.forget(socket->get());
  }
  unclosed_.close_shut(session.sender(), std::move(session.connection));
  if (session.unread_file_bytes > 0) {
    sessions_.leave_unread(session);
    close_read();
  }
  unclosed_.close_shut(session.sender(), std::move(session.datagrams));
  // The loop would still name the session while a socket is not closed.
  for (UniqueFd& socket : left) {
    loop_.forget(socket.get());
    unclosed_.close_socket(session.sender(), std::move(socket));
  }
  if (session.arriving) unclosed_.close(session, std::move(session.arriving->file));
}

// The files of long datagrams that a program has not read stay, though its session has ended.
void FabricServer::close_read() {
  sessions_.take_read([this](Closer::Sender sender, UniqueFd socket) {
    unclosed_.close_shut(sender, std::move(socket));
  });
}

void FabricServer::refuse(Session& session, const std::string& reason) {
  static_cast<void>(send_message(session.connection.get(), encode(Refused{reason})));
  session.is_over = true;
}

// Reads the files of long datagrams in the order in which they came, and a part of them in each
// turn, so that nobody waits for long.
void FabricServer::read_long_datagrams() {
  std::size_t bytes_left = file_bytes_in_a_turn;
  for (; !arriving_.empty(); arriving_.pop_front()) {
    Session* const session = sessions_.find(arriving_.front());
    const bool is_there = session != nullptr && !session->is_over && session->arriving;
    if (is_there && !read_long_datagram(*session, bytes_left)) return;
  }
}

// Reads a part of the session's long datagram, and sends it once it is whole. The file of one that
// cannot be sent is not read. Returns false if there is more to read.
bool FabricServer::read_long_datagram(Session& session, std::size_t& bytes_left) {
  ArrivedDatagram& arriving = *session.arriving;
  const std::size_t before = arriving.datagram.bytes.size();
  const bool is_wanted =
      hosts_.can_send(*session.host, session.id, arriving.datagram, arriving.bytes);
  const auto read = is_wanted ? read_more(arriving, bytes_left) : Result<void>();
  if (read) bytes_left -= arriving.datagram.bytes.size() - before;
  if (read && is_wanted && !arriving.is_whole()) return false;
  has_to_manage_ = true;
  ArrivedDatagram arrived = *std::exchange(session.arriving, std::nullopt);
  unclosed_.close(session, std::move(arrived.file));
  if (!read && read.error().error_number != ENOMEM) {
    session.is_over = true;
  } else if (!read || !is_wanted) {
    hosts_.give_back(*session.host, session.id, arrived.datagram);
  } else {
    hosts_.send(now(), *session.host, session.id, std::move(arrived.datagram));
  }
  return true;
}

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
  FabricServer server(options, networks, std::move(around->socket));
  const auto served = server.serve(std::move(*listener), [&] { ready(around->sentence); });
  // Another fabric of this name may begin as soon as the socket's path is gone.
  around->networks.reset();
  manager.reset();
  unlink(socket.c_str());
  return served ? 0 : fail(served.error().message);
}

}  // namespace tulle::live
