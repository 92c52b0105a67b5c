// Tests programs that connect through the host agent, over real sockets of a private network
// namespace.

#include "live/process/connection_channel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "base/folder_test.h"
#include "live/path/packets/capture_ring.h"
#include "live/process/agent_client.h"
#include "live/process/seal_choice.h"
#include "live/test_network_test.h"
#include "rdma/wire/cm.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/mad.h"

namespace tulle::live {
namespace {

using Type = ConnectionEventType;

SocketAddress ipv4(const char* text, std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  inet_pton(AF_INET, text, &in.sin_addr);
  return *SocketAddress::from(reinterpret_cast<const sockaddr*>(&in), sizeof(in));
}

SocketAddress ipv6(const char* text, std::uint16_t port) {
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  inet_pton(AF_INET6, text, &in6.sin6_addr);
  return *SocketAddress::from(reinterpret_cast<const sockaddr*>(&in6), sizeof(in6));
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string front(const std::vector<std::byte>& data, std::size_t bytes) {
  if (data.size() < bytes) return "too short";
  return {reinterpret_cast<const char*>(data.data()), bytes};
}

ConnectionParameters parameters(std::string_view text, std::uint32_t qp_number) {
  ConnectionParameters p;
  p.private_data = bytes_of(text);
  p.responder_resources = 3;
  p.initiator_depth = 5;
  p.retry_count = 7;
  p.rnr_retry_count = 6;
  p.qp_number = qp_number;
  return p;
}

constexpr auto rc = ConnectionQpType::rc;

// A channel whose events are awaited with a time limit.
struct Program {
  std::unique_ptr<ConnectionChannel> channel;

  Program() {
    auto opened = ConnectionChannel::open(read_settings());
    if (!opened) ADD_FAILURE() << opened.error().message;
    if (opened) channel = std::move(*opened);
    fcntl(channel->event_fd(), F_SETFL, O_NONBLOCK);
  }
  bool is_readable(int milliseconds = 0) const {
    pollfd fd{channel->event_fd(), POLLIN, 0};
    return poll(&fd, 1, milliseconds) == 1;
  }
  ConnectionEvent next(int milliseconds = 5'000) {
    ConnectionEvent event = event::DeviceRemoval{};
    if (!is_readable(milliseconds)) {
      ADD_FAILURE() << "no event";
    } else if (const int error = channel->next_event(event); error != 0) {
      ADD_FAILURE() << std::strerror(error);
    }
    return event;
  }
  // Takes the next event, which must be of this kind.
  template <typename Event>
  Event take(int milliseconds = 5'000) {
    const ConnectionEvent event = next(milliseconds);
    if (const auto* expected = std::get_if<Event>(&event)) return *expected;
    ADD_FAILURE() << "an event of type " << static_cast<int>(type_of(event));
    return {};
  }
  EndpointId create(PortSpace space = PortSpace::tcp) {
    EndpointId id;
    const auto type = space == PortSpace::udp ? ConnectionQpType::ud : rc;
    EXPECT_EQ(channel->create(space, type, id), 0);
    return id;
  }
  EndpointId listen(const SocketAddress& address, SocketAddress& bound, int backlog = 0,
                    PortSpace space = PortSpace::tcp) {
    const EndpointId id = create(space);
    EXPECT_EQ(channel->bind(id, address, bound), 0);
    EXPECT_EQ(channel->listen(id, backlog), 0);
    return id;
  }
  void resolve(EndpointId id, const SocketAddress& to) {
    EXPECT_EQ(channel->resolve_address(id, {}, to), 0);
    EXPECT_EQ(type_of(next()), Type::address_resolved);
    EXPECT_EQ(channel->resolve_route(id), 0);
    EXPECT_EQ(type_of(next()), Type::route_resolved);
  }
  std::uint32_t destroy(EndpointId id) {
    std::uint32_t taken = 0;
    EXPECT_EQ(channel->destroy(id, taken), 0);
    return taken;
  }
};

class ConnectionChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    setenv("TULLE_EXECUTABLE", "/bin/false", 1);
    agent.emplace();
  }
  void TearDown() override {
    agent.reset();
    unsetenv("TULLE_EXECUTABLE");
  }
  // The two ends of an established connection.
  struct Pair {
    EndpointId client;
    EndpointId server;
  };
  Pair connect(Program& client, Program& server, const SocketAddress& to) {
    Pair pair;
    pair.client = client.create();
    client.resolve(pair.client, to);
    EXPECT_EQ(client.channel->connect(pair.client, rc, parameters("ask", 0x111)), 0);
    pair.server = endpoint_of(server.next());
    EXPECT_EQ(server.channel->accept(pair.server, rc, parameters("yes", 0x222)), 0);
    EXPECT_EQ(type_of(client.next()), Type::connect_response);
    EXPECT_EQ(client.channel->establish(pair.client), 0);
    EXPECT_EQ(type_of(server.next()), Type::established);
    return pair;
  }
  std::optional<TestAgent> agent;
};

TEST_F(ConnectionChannelTest, ConnectsWithPrivateDataAndDisconnects) {
  Program client, server;
  SocketAddress at;
  const EndpointId listener = server.listen(ipv4("127.0.0.1", 0), at);
  EXPECT_NE(at.port, 0);
  const EndpointId id = client.create();
  client.resolve(id, at);
  QpAttributesOfStates early;
  EXPECT_EQ(client.channel->qp_attributes(id, early), 0);
  EXPECT_NE(early.init.mask, 0u);
  EXPECT_EQ(early.ready_to_receive.mask | early.ready_to_send.mask, 0u) << "no peer is known";
  ASSERT_EQ(client.channel->connect(id, rc, parameters("who is there?", 0x1234)), 0);

  const auto request = server.take<event::ConnectRequest>();
  EXPECT_EQ(request.listener, listener);
  EXPECT_NE(request.endpoint, listener);
  EXPECT_EQ(request.parameters.private_data.size(), 56u);
  EXPECT_EQ(front(request.parameters.private_data, 13), "who is there?");
  EXPECT_EQ(request.parameters.qp_number, 0x1234u);
  // The peer may have this many READs and atomics under way.
  EXPECT_EQ(request.parameters.responder_resources, 5);
  EXPECT_EQ(request.parameters.initiator_depth, 3);
  EXPECT_EQ(request.parameters.retry_count, 7);
  EXPECT_EQ(request.parameters.rnr_retry_count, 6);
  const EndpointId child = request.endpoint;
  QpAttributesOfStates passive;
  EXPECT_EQ(server.channel->qp_attributes(child, passive), 0);
  EXPECT_EQ(passive.ready_to_receive.destination_qp, 0x1234u);
  EXPECT_EQ(request.attributes.ready_to_receive.destination_qp, 0x1234u)
      << "the event has them too";
  ASSERT_EQ(server.channel->accept(child, rc, parameters("it is me", 0x4321)), 0);

  const auto response = client.take<event::ConnectResponse>();
  EXPECT_EQ(response.endpoint, id);
  EXPECT_EQ(response.parameters.private_data.size(), 196u);
  EXPECT_EQ(front(response.parameters.private_data, 8), "it is me");
  QpAttributesOfStates active;
  EXPECT_EQ(client.channel->qp_attributes(id, active), 0);
  EXPECT_EQ(active.ready_to_receive.destination_qp, 0x4321u);
  EXPECT_EQ(response.attributes.ready_to_receive.destination_qp, 0x4321u);
  EXPECT_EQ(active.ready_to_receive.path_mtu_bytes, 4096);
  EXPECT_EQ(active.ready_to_send.sq_psn, passive.ready_to_receive.rq_psn);
  EXPECT_EQ(active.ready_to_send.retry_count, 7);
  EXPECT_FALSE(server.is_readable());
  ASSERT_EQ(client.channel->establish(id), 0);
  EXPECT_EQ(server.take<event::Established>().endpoint, child);

  ASSERT_EQ(client.channel->disconnect(id), 0);
  EXPECT_EQ(server.take<event::Disconnected>().endpoint, child);
  EXPECT_FALSE(client.is_readable());  // the event comes only when the server agrees
  ASSERT_EQ(server.channel->disconnect(child), 0);
  EXPECT_EQ(type_of(client.next()), Type::disconnected);
  EXPECT_EQ(type_of(client.next()), Type::timewait_exit);
  EXPECT_EQ(type_of(server.next()), Type::timewait_exit);
  EXPECT_EQ(client.destroy(id), 5u);
  EXPECT_EQ(server.destroy(child), 3u);
  EXPECT_EQ(server.destroy(listener), 1u);
}

TEST_F(ConnectionChannelTest, NobodyListens) {
  Program client;
  const EndpointId id = client.create();
  client.resolve(id, ipv4("127.0.0.1", 7471));
  ASSERT_EQ(client.channel->connect(id, rc, {}), 0);
  EXPECT_EQ(client.take<event::Rejected>().status, 8);  // invalid service ID
}

TEST_F(ConnectionChannelTest, AProgramRejects) {
  Program client, server;
  SocketAddress at;
  server.listen(ipv4("0.0.0.0", 7471), at);
  const EndpointId id = client.create();
  client.resolve(id, ipv4("127.0.0.1", 7471));
  ASSERT_EQ(client.channel->connect(id, rc, {}), 0);
  const EndpointId child = endpoint_of(server.next());
  ASSERT_EQ(server.channel->reject(child, 0, bytes_of("not today")), 0);
  EXPECT_EQ(server.channel->reject(child, 0, {}), EINVAL);
  const auto rejected = client.take<event::Rejected>();
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(rejected.private_data.size(), 148u);
  EXPECT_EQ(front(rejected.private_data, 9), "not today");
}

TEST_F(ConnectionChannelTest, ADeadProcessDisconnects) {
  Program server;
  SocketAddress at;
  server.listen(ipv4("0.0.0.0", 0), at);
  at = ipv4("127.0.0.1", at.port);
  const pid_t child = fork();
  if (child == 0) {
    Program client;
    const EndpointId id = client.create();
    client.resolve(id, at);
    client.channel->connect(id, rc, parameters("", 0x55));
    client.next();
    client.channel->establish(id);
    pause();
  }
  const EndpointId connection = endpoint_of(server.next());
  ASSERT_EQ(server.channel->accept(connection, rc, parameters("", 0x66)), 0);
  EXPECT_EQ(type_of(server.next()), Type::established);
  kill(child, SIGKILL);
  EXPECT_EQ(server.take<event::Disconnected>().endpoint, connection);
  waitpid(child, nullptr, 0);
}

TEST_F(ConnectionChannelTest, ADeadAgentRemovesTheDevice) {
  Program program;
  const EndpointId one = program.create();
  const EndpointId two = program.create();
  agent->stop(SIGKILL);
  EXPECT_EQ(program.channel->listen(one, 0), ENODEV);
  const auto first = program.take<event::DeviceRemoval>();
  const auto second = program.take<event::DeviceRemoval>();
  EXPECT_NE(first.endpoint, second.endpoint);
  ConnectionEvent none;
  EXPECT_EQ(program.channel->next_event(none), EAGAIN);
  EXPECT_FALSE(program.is_readable());
  EXPECT_EQ(program.destroy(one), 1u);
  agent->start();
  const EndpointId three = program.create();
  EXPECT_EQ(program.channel->disconnect(two), ENODEV);
  EXPECT_EQ(program.channel->resolve_address(three, {}, ipv4("127.0.0.1", 1)), 0);
  EXPECT_EQ(type_of(program.next()), Type::address_resolved);
}

TEST_F(ConnectionChannelTest, PortsAreOfTheirSpace) {
  Program program;
  SocketAddress at;
  const EndpointId one = program.create();
  EXPECT_EQ(program.channel->bind(one, ipv4("127.0.0.1", 5000), at), 0);
  EXPECT_EQ(program.channel->bind(one, ipv4("127.0.0.1", 5001), at), EINVAL);
  const EndpointId same = program.create();
  EXPECT_EQ(program.channel->bind(same, ipv4("127.0.0.1", 5000), at), EADDRINUSE);
  EXPECT_EQ(program.channel->bind(same, ipv4("0.0.0.0", 5000), at), EADDRINUSE);
  EXPECT_EQ(program.channel->bind(same, ipv4("10.1.2.3", 5000), at), EADDRNOTAVAIL);
  const EndpointId other = program.create(PortSpace::udp);
  EXPECT_EQ(program.channel->bind(other, ipv4("127.0.0.1", 5000), at), 0);
  program.destroy(one);
  EXPECT_EQ(program.channel->bind(same, ipv4("0.0.0.0", 5000), at), 0);
  EXPECT_EQ(program.channel->listen(same, 0), 0);
  const EndpointId shared = program.create();
  const int yes = 1;
  EXPECT_EQ(program.channel->set_option(shared, 0, 1, std::as_bytes(std::span(&yes, 1))), 0);
  EXPECT_EQ(program.channel->bind(shared, ipv4("0.0.0.0", 5000), at), EADDRINUSE);
}

TEST_F(ConnectionChannelTest, AddressesThatCannotBeReached) {
  Program program;
  const EndpointId id = program.create();
  EXPECT_EQ(program.channel->resolve_address(id, {}, ipv4("10.9.9.9", 1)), 0);
  EXPECT_EQ(program.take<event::AddressError>().status, -ENETUNREACH);
  EXPECT_EQ(program.channel->resolve_route(id), EINVAL);
  EXPECT_EQ(program.channel->connect(id, rc, {}), EINVAL);
}

TEST_F(ConnectionChannelTest, Ipv6AndAWildcardForBoth) {
  Program client, server;
  SocketAddress at;
  server.listen(ipv6("::", 6000), at);
  const EndpointId six = client.create();
  client.resolve(six, ipv6("::1", 6000));
  ASSERT_EQ(client.channel->connect(six, rc, {}), 0);
  const auto first = server.take<event::ConnectRequest>();
  EndpointStatus status;
  EXPECT_EQ(server.channel->query(first.endpoint, status), 0);
  EXPECT_EQ(status.source, ipv6("::1", 6000));
  const EndpointId four = client.create();
  client.resolve(four, ipv4("127.0.0.1", 6000));
  ASSERT_EQ(client.channel->connect(four, rc, {}), 0);
  const auto second = server.take<event::ConnectRequest>();
  EXPECT_EQ(server.channel->query(second.endpoint, status), 0);
  EXPECT_EQ(status.source, ipv4("127.0.0.1", 6000));
  EXPECT_EQ(status.destination.family, AF_INET);
}

TEST_F(ConnectionChannelTest, DatagramsFindTheirQueuePair) {
  Program client, server;
  SocketAddress at;
  server.listen(ipv4("127.0.0.1", 7000), at, 0, PortSpace::udp);
  const EndpointId id = client.create(PortSpace::udp);
  client.resolve(id, at);
  ASSERT_EQ(client.channel->connect(id, ConnectionQpType::ud, parameters("hello", 0)), 0);
  const auto request = server.take<event::ConnectRequest>();
  EXPECT_TRUE(request.is_datagram);
  EXPECT_EQ(request.parameters.private_data.size(), 180u);
  EXPECT_EQ(front(request.parameters.private_data, 5), "hello");
  ASSERT_EQ(
      server.channel->accept(request.endpoint, ConnectionQpType::ud, parameters("here", 0x777)), 0);
  const auto answer = client.take<event::DatagramEstablished>();
  EXPECT_EQ(answer.qp_number, 0x777u);
  EXPECT_EQ(answer.qkey, 0x01234567u);
  EXPECT_EQ(answer.path.destination, Gid::from_ipv4(0x7F00'0001));
  EXPECT_EQ(front(answer.private_data, 4), "here");
  const EndpointId other = client.create(PortSpace::udp);
  client.resolve(other, ipv4("127.0.0.1", 7001));
  ASSERT_EQ(client.channel->connect(other, ConnectionQpType::ud, {}), 0);
  EXPECT_EQ(client.take<event::Unreachable>().status, 1);
}

TEST_F(ConnectionChannelTest, ProgramsReportEventsToThemselves) {
  Program program, other;
  const EndpointId id = program.create();
  constexpr std::uint64_t argument = 0x0123'4567'89AB'CDEF;
  ASSERT_EQ(program.channel->report(id, Type::user, -7, argument), 0);
  ASSERT_EQ(program.channel->report(id, Type::address_information_error, -ENOENT, 0), 0);
  const auto first = program.take<event::Reported>();
  EXPECT_EQ(first.type, Type::user);
  EXPECT_EQ(first.endpoint, id);
  EXPECT_EQ(first.status, -7);
  EXPECT_EQ(first.argument, argument);
  EXPECT_EQ(type_of(program.next()), Type::address_information_error);
  EXPECT_EQ(program.channel->report(id, Type::established, 0, 0), EINVAL);
  EXPECT_EQ(program.channel->report({}, Type::user, 0, 0), EINVAL);
  EXPECT_EQ(other.channel->report(id, Type::user, 0, 0), EINVAL);
  // An endpoint that migrates to another channel takes its waiting events along.
  ASSERT_EQ(program.channel->report(id, Type::user, 0, argument), 0);
  ASSERT_EQ(program.channel->migrate(id, *other.channel), 0);
  EXPECT_EQ(other.take<event::Reported>().argument, argument);
}

TEST_F(ConnectionChannelTest, ReportsThatNobodyTakesAreBounded) {
  Program program;
  const EndpointId id = program.create();
  int error = 0;
  for (int i = 0; i < 20'000 && error == 0; ++i) {
    error = program.channel->report(id, Type::user, 0, 0);
  }
  EXPECT_EQ(error, ENOBUFS);
}

TEST_F(ConnectionChannelTest, GroupsHaveTheirAddressAsGid) {
  Program program;
  SocketAddress at;
  const EndpointId id = program.create(PortSpace::udp);
  EXPECT_EQ(program.channel->join_multicast(id, ipv4("239.1.2.3", 0)), EINVAL);
  ASSERT_EQ(program.channel->bind(id, ipv4("127.0.0.1", 0), at), 0);
  EXPECT_EQ(program.channel->join_multicast(id, ipv4("127.0.0.1", 0)), EINVAL);
  ASSERT_EQ(program.channel->join_multicast(id, ipv4("239.1.2.3", 0)), 0);
  const auto joined = program.take<event::MulticastJoined>();
  EXPECT_EQ(joined.path.destination, Gid::from_ipv4(0xEF01'0203));
  EXPECT_EQ(joined.qp_number, 0xFF'FFFFu);
  EXPECT_EQ(joined.qkey, 0x01234567u);
  EXPECT_EQ(program.channel->leave_multicast(id, ipv4("239.1.2.3", 0)), 0);
  EXPECT_EQ(program.channel->leave_multicast(id, ipv4("239.1.2.3", 0)), EINVAL);
}

TEST_F(ConnectionChannelTest, EventsGoWithTheirEndpoint) {
  Program one, other;
  const EndpointId stays = one.create();
  const EndpointId moves = one.create();
  const EndpointId dies = one.create();
  for (const EndpointId id : {dies, stays, moves}) {
    ASSERT_EQ(one.channel->resolve_address(id, {}, ipv4("127.0.0.1", 1)), 0);
  }
  EXPECT_EQ(one.destroy(dies), 0u);
  ASSERT_EQ(one.channel->migrate(moves, *other.channel), 0);
  EXPECT_EQ(endpoint_of(one.next()), stays);
  EXPECT_FALSE(one.is_readable());
  EXPECT_EQ(endpoint_of(other.next()), moves);
  EXPECT_FALSE(other.is_readable());
  EXPECT_EQ(one.channel->resolve_route(moves), EINVAL);
  EXPECT_EQ(other.channel->resolve_route(moves), 0);
  EXPECT_EQ(type_of(other.next()), Type::route_resolved);
}

TEST_F(ConnectionChannelTest, ManyEventsWaitForASlowProgram) {
  Program program;
  constexpr int endpoints = 2'000;  // far more than the socket holds
  std::vector<EndpointId> ids;
  for (int i = 0; i < endpoints; ++i) {
    ids.push_back(program.create());
    ASSERT_EQ(program.channel->resolve_address(ids.back(), {}, ipv4("127.0.0.1", 1)), 0);
  }
  for (int i = 0; i < endpoints; ++i) ASSERT_EQ(endpoint_of(program.next()), ids[i]);
  EXPECT_FALSE(program.is_readable());
}

TEST_F(ConnectionChannelTest, WhoFindsTheBacklogFullComesAgain) {
  Program client, server;
  SocketAddress at;
  server.listen(ipv4("127.0.0.1", 0), at, 1);
  const EndpointId first = client.create();
  const EndpointId second = client.create();
  client.resolve(first, at);
  client.resolve(second, at);
  ASSERT_EQ(client.channel->connect(first, rc, parameters("", 1)), 0);
  ASSERT_EQ(client.channel->connect(second, rc, parameters("", 2)), 0);
  EXPECT_EQ(server.take<event::ConnectRequest>().parameters.qp_number, 1u);
  EXPECT_FALSE(server.is_readable());
  // The second request arrives when the peer repeats it, as late as under Linux.
  EXPECT_EQ(server.take<event::ConnectRequest>(15'000).parameters.qp_number, 2u);
  EXPECT_FALSE(client.is_readable());
}

TEST_F(ConnectionChannelTest, WhoAsksBetweenBindingAndListeningWaits) {
  Program client, server;
  SocketAddress at;
  const EndpointId listener = server.create();
  ASSERT_EQ(server.channel->bind(listener, ipv4("127.0.0.1", 0), at), 0);
  const EndpointId id = client.create();
  client.resolve(id, at);
  ASSERT_EQ(client.channel->connect(id, rc, parameters("early", 1)), 0);
  EXPECT_FALSE(client.is_readable(50));
  ASSERT_EQ(server.channel->listen(listener, 0), 0);
  EXPECT_EQ(front(server.take<event::ConnectRequest>().parameters.private_data, 5), "early");
}

TEST_F(ConnectionChannelTest, WhoAsksABoundPortThatNobodyListensAtIsRefused) {
  Program client, server;
  SocketAddress at;
  ASSERT_EQ(server.channel->bind(server.create(), ipv4("127.0.0.1", 0), at), 0);
  const EndpointId id = client.create();
  client.resolve(id, at);
  ASSERT_EQ(client.channel->connect(id, rc, parameters("", 1)), 0);
  EXPECT_EQ(type_of(client.next()), Type::rejected);
}

TEST_F(ConnectionChannelTest, AStaleConnectionIsBroken) {
  Program client, server;
  SocketAddress at;
  server.listen(ipv4("127.0.0.1", 0), at);
  const Pair pair = connect(client, server, at);
  const EndpointId again = client.create();
  client.resolve(again, at);
  // The same queue pair asks for another connection.
  ASSERT_EQ(client.channel->connect(again, rc, parameters("", 0x111)), 0);
  bool is_rejected = false, is_disconnected = false;
  for (int i = 0; i < 2; ++i) {
    const ConnectionEvent event = client.next();
    if (const auto* rejected = std::get_if<event::Rejected>(&event)) {
      is_rejected = rejected->endpoint == again && rejected->status == 10;
    } else if (const auto* ended = std::get_if<event::Disconnected>(&event)) {
      is_disconnected = ended->endpoint == pair.client;
    }
  }
  EXPECT_TRUE(is_rejected);
  EXPECT_TRUE(is_disconnected);
}

// The agent here seals nothing: it may have come after one that did.
TEST_F(ConnectionChannelTest, AProgramThatSealsHasNoConnectionsThroughAnAgentThatDoesNot) {
  const Folder folder;
  folder.write("keys", std::string(64, '5') + "\n");
  const std::string keys = folder.path("keys");
  std::filesystem::permissions(keys, std::filesystem::perms::owner_read);
  Settings sealed = read_settings();
  sealed.secure = keys;
  auto refused = ConnectionChannel::open(sealed);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("seals nothing"), std::string::npos)
      << refused.error().message;
  // The program looks too: an agent's word is not enough.
  auto own = own_key(sealed);
  ASSERT_TRUE(own);
  EXPECT_NE(own->id, 0);
  EXPECT_FALSE(check_agents_key(sealed, own->id, 0));
  EXPECT_FALSE(check_agents_key(sealed, own->id, own->id + 1));
  EXPECT_TRUE(check_agents_key(sealed, own->id, own->id));
}

TEST_F(ConnectionChannelTest, AnAgentThatSealsOtherwiseDoesNotGetASlotBack) {
  Rejoin rejoin;
  rejoin.slot = 5;
  rejoin.key_proof[31] = 7;
  auto connection = connect_to(read_settings().agent);
  ASSERT_TRUE(connection);
  ASSERT_TRUE(send_message(connection->get(), encode(rejoin)));
  auto answer = await_message(connection->get(), 2'000);
  Refused refused;
  ASSERT_TRUE(answer && decode(answer->bytes, refused));
  EXPECT_NE(refused.reason.find("seals nothing"), std::string::npos) << refused.reason;
}

TEST_F(ConnectionChannelTest, CapturesShowWhatIsSaid) {
  Hello hello;
  hello.purpose = Purpose::capture;
  auto capture = ask_agent(read_settings(), hello, IfAbsent::fail);
  ASSERT_TRUE(capture) << capture.error().message;
  Program client;
  auto message = await_message(capture->connection.get(), 2'000);
  CaptureSource source;
  ASSERT_TRUE(message && decode(message->bytes, source) && message->fds.size() == 1);
  EXPECT_EQ(source.pid, agent->pid());
  auto ring = CaptureRing::map(std::move(message->fds[0]));
  ASSERT_TRUE(ring);
  const EndpointId id = client.create();
  client.resolve(id, ipv4("127.0.0.1", 7471));
  ASSERT_EQ(client.channel->connect(id, rc, {}), 0);
  EXPECT_EQ(type_of(client.next()), Type::rejected);
  std::size_t frames[2] = {};
  CapturedFrame frame;
  for (std::vector<std::byte> bytes; ring->read(frame, bytes);) ++frames[frame.outbound];
  EXPECT_EQ(frames[0], 2u);  // a request and a rejection, each sent and received here
  EXPECT_EQ(frames[1], 2u);
}

// Returns the message of a MAD at the end of a captured frame, before the ICRC, or nothing if the
// MAD is of another kind.
template <typename Message>
std::optional<Message> message_in(std::span<const std::byte> frame) {
  constexpr std::size_t mad_bytes = 256;
  if (frame.size() < mad_bytes + wire::icrc_bytes) return std::nullopt;
  const auto mad = frame.last(mad_bytes + wire::icrc_bytes);
  wire::MadHeader header;
  std::memcpy(&header, mad.data(), sizeof(header));
  if (header.attribute_id != static_cast<std::uint16_t>(Message::attribute)) return std::nullopt;
  Message message;
  std::memcpy(&message, mad.data() + sizeof(header), sizeof(message));
  return message;
}

// IBTA 12.6.5, as Linux interprets it too. Two ends of this implementation alone would not notice
// an error.
TEST_F(ConnectionChannelTest, AStartingPsnIsWhereTheOtherSideBeginsToSend) {
  Hello hello;
  hello.purpose = Purpose::capture;
  auto capture = ask_agent(read_settings(), hello, IfAbsent::fail);
  ASSERT_TRUE(capture) << capture.error().message;
  Program client, server;
  auto message = await_message(capture->connection.get(), 2'000);
  ASSERT_TRUE(message && message->fds.size() == 1);
  auto ring = CaptureRing::map(std::move(message->fds[0]));
  ASSERT_TRUE(ring);
  SocketAddress at;
  server.listen(ipv4("127.0.0.1", 0), at);
  const Pair pair = connect(client, server, at);

  std::optional<std::uint32_t> asked, answered;
  CapturedFrame frame;
  for (std::vector<std::byte> bytes; ring->read(frame, bytes);) {
    if (const auto request = message_in<wire::cm::Request>(bytes)) asked = request->starting_psn;
    if (const auto reply = message_in<wire::cm::Reply>(bytes)) answered = reply->starting_psn;
  }
  ASSERT_TRUE(asked && answered);
  EXPECT_NE(*asked, *answered);
  for (const auto& [program, id, own, others] :
       {std::tuple{&client, pair.client, *asked, *answered},
        {&server, pair.server, *answered, *asked}}) {
    QpAttributesOfStates states;
    EXPECT_EQ(program->channel->qp_attributes(id, states), 0);
    EXPECT_EQ(states.ready_to_receive.rq_psn, own);
    EXPECT_EQ(states.ready_to_send.sq_psn, others);
  }
}

std::size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator folder("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

std::size_t resident_kilobytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  }
  return 0;
}

// Makes connections one after the other, each with private data both ways. Afterwards the agent has
// as many descriptors as before. Its memory grows when connections come faster than before, since
// it remembers each for half a second, but memory that is lost makes it grow with every part.
TEST_F(ConnectionChannelTest, TenThousandConnectionsLeaveNothing) {
  constexpr std::size_t parts = 5, connections_a_part = 2'000;
  const std::size_t descriptors = descriptors_of(agent->pid());
  std::array<std::size_t, parts + 1> kilobytes{};
  {
    Program client, server;
    SocketAddress at;
    const EndpointId listener = server.listen(ipv4("127.0.0.1", 0), at);
    for (std::size_t& after : kilobytes) {
      for (std::size_t i = 0; i < connections_a_part; ++i) {
        const Pair pair = connect(client, server, at);
        ASSERT_EQ(client.channel->disconnect(pair.client), 0);
        ASSERT_EQ(type_of(server.next()), Type::disconnected);
        ASSERT_EQ(server.channel->disconnect(pair.server), 0);
        ASSERT_EQ(type_of(client.next()), Type::disconnected);
        client.destroy(pair.client);
        server.destroy(pair.server);
      }
      after = resident_kilobytes(agent->pid());
    }
    server.destroy(listener);
  }
  std::size_t least_growth = SIZE_MAX;
  for (std::size_t i = 1; i <= parts; ++i) {
    least_growth = std::min(least_growth, kilobytes[i] - std::min(kilobytes[i], kilobytes[i - 1]));
  }
#ifndef __SANITIZE_ADDRESS__  // the sanitizer keeps freed memory for a while
  EXPECT_LT(least_growth * 1'024, 64 * connections_a_part) << "64 bytes a connection are lost";
#endif
  // The agent closes its ends of both channels, and the pidfd of each.
  for (int i = 0; i < 100 && descriptors_of(agent->pid()) != descriptors; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(descriptors_of(agent->pid()), descriptors);
}

}  // namespace
}  // namespace tulle::live
