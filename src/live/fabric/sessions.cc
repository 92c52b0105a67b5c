#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/quoted.h"
#include "live/fabric/client.h"
#include "live/fabric/core.h"
#include "live/message/port_attributes.h"

namespace tulle::live {
namespace {

constexpr int messages_in_a_turn = 64;

// Returns whether the fabric's owner says this, and not a program.
bool is_command(FabricPurpose purpose) {
  switch (purpose) {
    case FabricPurpose::describe:
    case FabricPurpose::open:
    case FabricPurpose::data:
    case FabricPurpose::attribute:
    case FabricPurpose::counters:
    case FabricPurpose::enter:
    case FabricPurpose::connect:
      return false;
    case FabricPurpose::capture:
    case FabricPurpose::status:
    case FabricPurpose::machines:
    case FabricPurpose::cut:
    case FabricPurpose::join:
    case FabricPurpose::stop:
      return true;
  }
  return true;
}

bool has_descriptor(const UniqueFd& fd) { return static_cast<bool>(fd); }

}  // namespace

template <typename Message>
void FabricServer::answer(Session& session, Message message) {
  if (!send_message(session.connection.get(), encoded(message))) session.is_over = true;
}

void FabricServer::handle(Session& session) {
  for (int i = 0; i < messages_in_a_turn && !session.is_over; ++i) {
    if (refuses_to_read(session, session.connection.get())) return;
    std::vector<UniqueFd> of_no_message;
    auto message = unclosed_.receive(session, session.connection.get(), of_no_message);
    unclosed_.close(session, std::move(of_no_message));
    if (message) {
      has_to_manage_ = session.has_said = true;
      handle_message(session, *message);
      // No program of Tulle's sends descriptors that nobody takes.
      if (std::ranges::any_of(message->fds, has_descriptor)) session.is_over = true;
      unclosed_.close(session, std::move(message->fds));
      continue;
    }
    if (message.error().error_number == EPROTO) refuse(session, message.error().message);
    if (message.error().error_number != EAGAIN) session.is_over = true;
    break;
  }
  if (session.host && !session.is_over) take_datagrams(session);
}

// The program may have rung. No program of Tulle's gives a ring descriptors.
void FabricServer::hear(Session& session) {
  if (session.is_over) return;
  const int bell = data_ports_.bell(session.id);
  if (refuses_to_read(session, bell)) return;
  auto has_descriptors = next_has_descriptors(bell);
  if (!has_descriptors) return;
  session.is_over = *has_descriptors;
  if (!session.is_over) data_ports_.answer(session.id);
}

bool FabricServer::refuses_to_read(Session& session, int socket) {
  const char* const objection = unclosed_.objection_to_reading(session, socket);
  if (objection != nullptr) refuse(session, objection);
  return objection != nullptr;
}

// Takes no more once a long datagram has come: its file is read in its turn, and what the program
// sent later comes later.
void FabricServer::take_datagrams(Session& session) {
  for (int i = 0; i < messages_in_a_turn && !session.arriving; ++i) {
    if (refuses_to_read(session, session.datagrams.get())) return;
    std::vector<UniqueFd> unused;
    auto message = unclosed_.receive(session, session.datagrams.get(), unused);
    auto arrived = first_bytes_of(std::move(message), unused);
    unclosed_.close(session, std::move(unused));
    if (!arrived) {
      if (arrived.error().error_number != EAGAIN) session.is_over = true;
      return;
    }
    if (arrived->file) {
      session.arriving = std::move(*arrived);
      arriving_.push_back(session.id);
      return;
    }
    has_to_manage_ = true;
    hosts_.send(now(), *session.host, session.id, std::move(arrived->datagram));
  }
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
  const auto refusal = sessions_.no_place_for(session, is_command(hello.purpose));
  if (!refusal.empty()) return refuse(session, refusal);
  if (!is_command(hello.purpose)) return greet_program(session, hello, fds);
  switch (hello.purpose) {
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
    default:
      session.is_over = true;
  }
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
    UniqueFd none;
    return open_data_port(session, *host, fds.size() == 1 ? fds[0] : none);
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
  const GivenDescriptor programs_end = unclosed_.given(session, UniqueFd(ends[1]));
  PortOpened opened;
  const std::array<int, 1> fds = {programs_end.get()};
  if (!send_message(session.connection.get(), encoded(opened), fds)) {
    session.is_over = true;
    return;
  }
  session.host = host;
  hosts_.enter(host, session.id, session.process);
  watch(session.datagrams.get(), &session);
}

// A program that does not read loses what comes.
void FabricServer::deliver(HostServices::Delivery delivery) {
  if (clients_.take(delivery)) return;
  Session* const session = sessions_.find(delivery.client);
  if (session == nullptr) return;
  Datagram datagram = hosts_.as_message(*session->host, std::move(delivery));
  const std::size_t bytes = datagram.bytes.size();
  const bool is_in_file = bytes > datagram_bytes_in_message;
  if (is_in_file && !sessions_.has_room_for_file(*session, bytes)) return;
  const auto sent = send_datagram(session->datagrams.get(), std::move(datagram));
  if (sent && is_in_file) session->unread_file_bytes += bytes;
}

void FabricServer::open_channel(Session& session, std::uint32_t host) {
  HostConnections& connections = clients_.connections_of(host);
  auto events = connections.service().open_channel(
      {session.process, geteuid(), false}, {.name = "tulle0", .interfaces = {}}, session.channel);
  if (!events) return refuse(session, events.error().message);
  session.connects = host;
  const GivenDescriptor given = unclosed_.given(session, std::move(*events));
  const std::array<int, 1> fds = {given.get()};
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
  ConnectionService& service = clients_.service_of(*session.connects);
  const ReplyMessage reply{service.execute(session.channel, command)};
  if (!send_message(session.connection.get(), encode(reply))) session.is_over = true;
}

void FabricServer::open_data_port(Session& session, std::uint32_t host, UniqueFd& button) {
  auto port = data_ports_.open(now(), host, session.id, std::move(button), session.process);
  if (!port) return refuse(session, port.error().message);
  session.data_host = host;
  DataPortOpened opened{hosts_.describe(host, {}), port->slot, port->first_qp, port->qp_count};
  session.told = opened.port.port;
  const GivenDescriptor given = unclosed_.given(session, std::move(port->button));
  const std::array<int, 2> fds = {port->memory.get(), given.get()};
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

std::string FabricServer::no_network(std::uint32_t host, const std::string& reason) {
  return fmt::format("the fabric cannot make the network of {}: {}", fabric::host_name(host),
                     reason);
}

void FabricServer::begin_capture(Session& session, const FabricHello& hello) {
  if (session.captures) return refuse(session, "this connection has a capture");
  auto ring = captures_.add(session.id, session.process,
                            {hello.ring_bytes, hello.snap_length, hello.has_flow_control});
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
    some.nodes.back().listeners = clients_.listener_count(node);
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

}  // namespace tulle::live
