#include "live/fabric/client.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <type_traits>
#include <utility>

#include "live/fabric/namespaces.h"
#include "live/message/connection.h"
#include "live/message/socket.h"
#include "live/settings.h"
#include "os/users.h"
#include "rdma/wire/smp.h"

namespace tulle::live {
namespace {

constexpr int answer_milliseconds = 5'000;
// Many programs may begin at once, and the fabric's process accepts their connections in turns.
constexpr int connect_milliseconds = 5'000;

Error strange_answer() {
  return {
      "the fabric's process gave an answer that this version of Tulle does not know; is it "
      "of another version?",
      EPROTO};
}

Result<UniqueFd> ask(const std::string& socket, FabricHello hello, std::span<const int> fds = {}) {
  auto connection = connect_patiently(socket, connect_milliseconds);
  if (!connection) {
    const int number = connection.error().error_number;
    if (number == EAGAIN) {
      return Error{fmt::format("the fabric's process at {} accepted no connection within {} ms; it "
                               "may be stopped, or the machine busy: try again",
                               socket, connect_milliseconds),
                   ETIMEDOUT};
    }
    if (number != ENOENT && number != ECONNREFUSED) return connection.error();
    return Error{fmt::format("no fabric runs at {}; `tulle fabric up` starts one", socket), number};
  }
  // The client believes what the fabric says, and enters the namespaces that it hands over.
  auto owner = peer_of(connection->get());
  if (!owner) return owner.error();
  if (!is_trusted(owner->uid)) {
    return Error{fmt::format("the fabric at {} belongs to {}, who alone may use it", socket,
                             user_text(owner->uid)),
                 EPERM};
  }
  if (auto sent = send_message(connection->get(), encoded(hello), fds); !sent) return sent.error();
  return connection;
}

template <typename Message>
Result<Message> as(std::span<const std::byte> bytes) {
  Message message;
  if constexpr (std::is_same_v<Message, ChannelOpened>) {
    if (decode(bytes, message)) return message;
  } else {
    if (decoded(bytes, message)) return message;
  }
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

// A connection, its answer, and the descriptors that came with it, which stay open together.
template <typename Message>
struct Opening {
  UniqueFd connection;
  Message message;
  std::vector<UniqueFd> fds;
};

template <typename Message>
Result<Opening<Message>> begin(const std::string& socket, const FabricHello& hello,
                               std::span<const int> fds = {},
                               int milliseconds = answer_milliseconds) {
  auto connection = ask(socket, hello, fds);
  if (!connection) return connection.error();
  auto answer = await_message(connection->get(), milliseconds);
  if (!answer) return answer.error();
  auto message = as<Message>(answer->bytes);
  if (!message) return message.error();
  return Opening<Message>{std::move(*connection), std::move(*message), std::move(answer->fds)};
}

// The same, with the number of descriptors that must come.
template <typename Message>
Result<Opening<Message>> begin_with(std::size_t descriptors, const std::string& socket,
                                    const FabricHello& hello, std::span<const int> fds = {}) {
  auto opened = begin<Message>(socket, hello, fds);
  if (opened && opened->fds.size() != descriptors) return strange_answer();
  return opened;
}

FabricHello hello_to(const FabricPlace& place, FabricPurpose purpose) {
  FabricHello hello;
  hello.purpose = purpose;
  hello.host = place.host;
  return hello;
}

}  // namespace

FabricPlace fabric_place() {
  const Settings settings = read_settings();
  return {settings.fabric, settings.host};
}

Result<HostPort> describe_host(const FabricPlace& place) {
  auto opened = begin<HostPort>(place.socket, hello_to(place, FabricPurpose::describe));
  if (!opened) return opened.error();
  return std::move(opened->message);
}

DeviceInfo device_of(const std::string& name, const HostPort& host) {
  constexpr std::uint32_t mtu_bytes_max = 4'096;
  const InfinibandPort& port = host.port;
  DeviceInfo device;
  device.name = name;
  device.node_guid = host.node_guid;
  device.mtu_bytes = mtu_bytes_max;
  device.port_active = port.state == static_cast<std::uint8_t>(wire::PortState::active);
  GidEntry entry;
  for (std::size_t i = 0; i < 8; ++i) {
    const auto shift = static_cast<unsigned>(56 - 8 * i);
    entry.gid.bytes[i] = static_cast<std::uint8_t>(port.gid_prefix >> shift);
    entry.gid.bytes[8 + i] = static_cast<std::uint8_t>(port.port_guid >> shift);
  }
  device.gids.push_back(entry);
  device.infiniband = port;
  return device;
}

Result<FabricDataPort> open_data_port(const FabricPlace& place, int button) {
  auto opened = begin_with<DataPortOpened>(2, place.socket, hello_to(place, FabricPurpose::data),
                                           {&button, 1});
  if (!opened) return opened.error();
  return FabricDataPort{std::move(opened->message), std::move(opened->connection),
                        std::move(opened->fds[0]), std::move(opened->fds[1])};
}

Result<FabricChannel> open_fabric_channel(const FabricPlace& place) {
  auto opened = begin_with<ChannelOpened>(1, place.socket, hello_to(place, FabricPurpose::connect));
  if (!opened) return opened.error();
  return FabricChannel{opened->message.channel, std::move(opened->connection),
                       std::move(opened->fds[0])};
}

Result<void> enter_host_network(const FabricPlace& place) {
  // Hosts are made one after the other, in some 20 ms each.
  constexpr int network_milliseconds = 60'000;
  auto entered = begin<HostEntered>(place.socket, hello_to(place, FabricPurpose::enter), {},
                                    network_milliseconds);
  if (!entered) return entered.error();
  return enter_namespaces(entered->fds);
}

Result<FabricCapture> capture_fabric(const std::string& socket, std::uint32_t ring_bytes,
                                     std::uint32_t snap_length, bool has_flow_control) {
  FabricHello hello;
  hello.purpose = FabricPurpose::capture;
  hello.ring_bytes = ring_bytes;
  hello.snap_length = snap_length;
  hello.has_flow_control = has_flow_control;
  auto begun = begin_with<FabricEnd>(1, socket, hello);
  if (!begun) return begun.error();
  auto ring = CaptureRing::map(std::move(begun->fds[0]));
  if (!ring) return ring.error();
  return FabricCapture{std::move(begun->connection), std::move(*ring)};
}

Result<int> fabric_process(const std::string& socket) {
  auto connection = connect_patiently(socket, connect_milliseconds);
  if (!connection) return connection.error();
  auto peer = peer_of(connection->get());
  if (!peer) return peer.error();
  return peer->pid;
}

Result<FabricNodes> fabric_status(const std::string& socket) {
  FabricHello hello;
  hello.purpose = FabricPurpose::status;
  auto connection = ask(socket, hello);
  if (!connection) return connection.error();
  FabricNodes all;
  for (;;) {
    auto some = await<FabricNodes>(connection->get());
    if (!some) return some;
    const bool is_last = some->nodes.size() < FabricNodes::nodes_max;
    all.discarded = some->discarded;
    std::move(some->nodes.begin(), some->nodes.end(), std::back_inserter(all.nodes));
    if (is_last) return all;
    hello.first = static_cast<std::uint32_t>(all.nodes.size());
    if (auto sent = send_message(connection->get(), encoded(hello)); !sent) return sent.error();
  }
}

Result<FabricMachines> fabric_machines(const std::string& socket) {
  FabricHello hello;
  hello.purpose = FabricPurpose::machines;
  auto connection = ask(socket, hello);
  if (!connection) return connection.error();
  return await<FabricMachines>(connection->get());
}

Result<void> command_fabric(const std::string& socket, FabricHello command) {
  const bool stops = command.purpose == FabricPurpose::stop;
  auto connection = ask(socket, std::move(command));
  if (!connection) return connection.error();
  auto end = await<FabricEnd>(connection->get());
  if (!end) return end.error();
  // A fabric that ends closes the connection when another may begin.
  if (stops) static_cast<void>(await_message(connection->get(), answer_milliseconds));
  return {};
}

Result<FabricPortClient> FabricPortClient::open(const FabricPlace& place) {
  auto opened = begin_with<PortOpened>(1, place.socket, hello_to(place, FabricPurpose::open));
  if (!opened) return opened.error();
  FabricPortClient client;
  client.connection_ = std::move(opened->connection);
  client.datagrams_ = std::move(opened->fds[0]);
  return client;
}

template <typename Message>
Result<std::uint32_t> FabricPortClient::change(Message message, const char* refusal) {
  if (auto sent = send_message(connection_.get(), encoded(message)); !sent) return sent.error();
  auto answer = await<AgentRegistered>(connection_.get());
  if (!answer) return answer.error();
  if (answer->error != 0) return Error{refusal, answer->error};
  return answer->agent;
}

Result<std::uint32_t> FabricPortClient::add(const RegisterAgent& registration) {
  return change(registration, "the fabric refused the agent");
}

Result<void> FabricPortClient::remove(std::uint32_t agent) {
  auto removed = change(UnregisterAgent{agent}, "the fabric knows no such agent");
  if (!removed) return removed.error();
  return {};
}

Result<void> send_datagram_patiently(int descriptor, const Datagram& datagram) {
  auto sent = send_datagram(descriptor, datagram);
  if (sent || sent.error().error_number != EAGAIN) return sent;
  constexpr int patience_milliseconds = 1'000;
  pollfd room{descriptor, POLLOUT, 0};
  static_cast<void>(poll(&room, 1, patience_milliseconds));
  return send_datagram(descriptor, datagram);
}

}  // namespace tulle::live
