#include "live/fabric/client.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstdlib>

#include "live/message/socket.h"

namespace tulle::live {
namespace {

constexpr int answer_milliseconds = 5'000;

Error strange_answer() {
  return {
      "the fabric's process gave an answer that this version of Tulle does not know; is it "
      "of another version?",
      EPROTO};
}

Result<UniqueFd> ask(const std::string& socket, FabricHello hello) {
  auto connection = connect_to(socket);
  if (!connection) {
    const bool is_gone = connection.error().error_number == ENOENT ||
                         connection.error().error_number == ECONNREFUSED;
    if (!is_gone) return connection.error();
    return Error{fmt::format("no fabric runs at {}; `tulle fabric up` starts one", socket),
                 connection.error().error_number};
  }
  if (auto sent = send_message(connection->get(), encoded(hello)); !sent) return sent.error();
  return connection;
}

template <typename Message>
Result<Message> as(std::span<const std::byte> bytes) {
  Message message;
  if (decoded(bytes, message)) return message;
  Refused refused;
  if (decode(bytes, refused)) return Error{refused.reason, EINVAL};
  return strange_answer();
}

template <typename Message>
Result<Message> await(int socket) {
  auto answer = await_message(socket, answer_milliseconds);
  if (!answer) return answer.error();
  return as<Message>(answer->bytes);
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

FabricPlace fabric_place() {
  return {from_environment("TULLE_FABRIC"), from_environment("TULLE_HOST")};
}

Result<HostPort> describe_host(const FabricPlace& place) {
  FabricHello hello;
  hello.purpose = FabricPurpose::describe;
  hello.host = place.host;
  auto connection = ask(place.socket, hello);
  if (!connection) return connection.error();
  return await<HostPort>(connection->get());
}

Result<std::vector<FabricNode>> fabric_status(const std::string& socket, FabricEnd& end) {
  FabricHello hello;
  hello.purpose = FabricPurpose::status;
  auto connection = ask(socket, hello);
  if (!connection) return connection.error();
  std::vector<FabricNode> nodes;
  for (;;) {
    auto answer = await_message(connection->get(), answer_milliseconds);
    if (!answer) return answer.error();
    if (decoded(answer->bytes, end)) return nodes;
    auto node = as<FabricNode>(answer->bytes);
    if (!node) return node.error();
    nodes.push_back(std::move(*node));
  }
}

Result<void> command_fabric(const std::string& socket, FabricHello command) {
  auto connection = ask(socket, std::move(command));
  if (!connection) return connection.error();
  auto end = await<FabricEnd>(connection->get());
  if (!end) return end.error();
  return {};
}

Result<FabricPortClient> FabricPortClient::open(const FabricPlace& place) {
  FabricHello hello;
  hello.purpose = FabricPurpose::open;
  hello.host = place.host;
  auto connection = ask(place.socket, hello);
  if (!connection) return connection.error();
  auto answer = await_message(connection->get(), answer_milliseconds);
  if (!answer) return answer.error();
  if (auto opened = as<PortOpened>(answer->bytes); !opened) return opened.error();
  if (answer->fds.size() != 1) return strange_answer();
  FabricPortClient client;
  client.connection_ = std::move(*connection);
  client.datagrams_ = std::move(answer->fds[0]);
  return client;
}

Result<std::uint32_t> FabricPortClient::add(const RegisterAgent& registration) {
  RegisterAgent message = registration;
  if (auto sent = send_message(connection_.get(), encoded(message)); !sent) return sent.error();
  auto answer = await<AgentRegistered>(connection_.get());
  if (!answer) return answer.error();
  if (answer->error != 0) return Error{"the fabric refused the agent", answer->error};
  return answer->agent;
}

Result<void> FabricPortClient::remove(std::uint32_t agent) {
  UnregisterAgent message{agent};
  if (auto sent = send_message(connection_.get(), encoded(message)); !sent) return sent.error();
  auto answer = await<AgentRegistered>(connection_.get());
  if (!answer) return answer.error();
  if (answer->error != 0) return Error{"the fabric knows no such agent", answer->error};
  return {};
}

Result<void> send_datagram(int descriptor, Datagram datagram) {
  const auto bytes = encoded(datagram);
  auto sent = send_message(descriptor, bytes);
  if (sent || sent.error().error_number != EAGAIN) return sent;
  constexpr int patience_milliseconds = 1'000;
  pollfd room{descriptor, POLLOUT, 0};
  static_cast<void>(poll(&room, 1, patience_milliseconds));
  return send_message(descriptor, bytes);
}

Result<Datagram> receive_datagram(int descriptor) {
  auto message = receive_message(descriptor);
  if (!message) return message.error();
  return as<Datagram>(message->bytes);
}

}  // namespace tulle::live
