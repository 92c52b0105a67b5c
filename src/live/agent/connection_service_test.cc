// Tests the host agent's connection manager alone: its programs are two ends of this test, which
// give it commands directly and read its events from their sockets. Its datagrams go to itself over
// the loopback of a private network namespace.

#include "live/connections/connection_service.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/agent/ip_network.h"
#include "live/message/socket.h"
#include "live/path/packets/udp_socket.h"
#include "live/test_network_test.h"
#include "os/user_namespace_test.h"

namespace tulle::live {
namespace {

constexpr auto rc = ConnectionQpType::rc;

SocketAddress loopback(std::uint16_t port) {
  SocketAddress address;
  address.family = AF_INET;
  address.port = port;
  address.address[0] = std::byte{127};
  address.address[3] = std::byte{1};
  return address;
}

ConnectionParameters parameters(std::uint32_t qp_number, std::uint8_t data = 0) {
  ConnectionParameters p;
  p.private_data = {std::byte{data}};
  p.responder_resources = p.initiator_depth = 1;
  p.qp_number = qp_number;
  return p;
}

// A program, as the service sees one.
class End {
 public:
  End(ConnectionService& service, pid_t pid) : End(service, {pid, 0, false}) {}
  End(ConnectionService& service, const ConnectionService::Owner& owner,
      RoceVersions roce = RoceVersions::v2)
      : service_(service) {
    const DeviceChoice device{.name = "tulle0", .interfaces = "lo", .roce = roce};
    auto events = service.open_channel(owner, device, number_);
    if (!events) ADD_FAILURE() << events.error().message;
    if (events) events_ = std::move(*events);
  }

  ConnectionService::ChannelNumber number() const { return number_; }
  ConnectionReply ask(ConnectionCommand command) {
    return service_.execute(number_, {hides_what_it_took_ ? 0 : taken_, std::move(command)});
  }
  void hide_what_it_took() { hides_what_it_took_ = true; }
  // Returns the errno of the reply.
  int run(ConnectionCommand command) {
    const ConnectionReply reply = ask(std::move(command));
    const auto* failed = std::get_if<reply::Failed>(&reply);
    return failed != nullptr ? failed->error : 0;
  }
  template <typename Command>
  typename Command::Reply get(Command command) {
    const ConnectionReply reply = ask(std::move(command));
    const auto* expected = std::get_if<typename Command::Reply>(&reply);
    if (expected == nullptr) ADD_FAILURE() << "no such reply";
    return expected != nullptr ? *expected : typename Command::Reply{};
  }

  EndpointId create(PortSpace space = PortSpace::tcp) {
    return get(command::Create{space, rc}).endpoint;
  }
  // Takes the next event. Lets the service work meanwhile, as the agent's loop does.
  std::optional<ConnectionEvent> next(int milliseconds = 5'000) {
    for (; milliseconds >= 0; --milliseconds) {
      service_.progress();
      auto message = receive_message(events_.get());
      EventMessage event;
      if (message && decode(message->bytes, event)) {
        ++taken_;
        return event.event;
      }
      pollfd readable{events_.get(), POLLIN, 0};
      poll(&readable, 1, 1);
    }
    return std::nullopt;
  }
  template <typename Event>
  Event take() {
    const auto event = next();
    const auto* expected = event ? std::get_if<Event>(&*event) : nullptr;
    if (expected == nullptr) ADD_FAILURE() << "no such event";
    return expected != nullptr ? *expected : Event{};
  }
  bool is_silent() { return !next(20).has_value(); }

  EndpointId listen(const SocketAddress& at, std::uint32_t backlog = 0) {
    const EndpointId id = create();
    EXPECT_EQ(run(command::Bind{id, at}), 0);
    EXPECT_EQ(run(command::Listen{id, backlog}), 0);
    return id;
  }
  EndpointId resolve(const SocketAddress& to) {
    const EndpointId id = create();
    EXPECT_EQ(run(command::ResolveAddress{id, {}, to}), 0);
    take<event::AddressResolved>();
    EXPECT_EQ(run(command::ResolveRoute{{id}}), 0);
    take<event::RouteResolved>();
    return id;
  }
  EndpointId connect(const SocketAddress& to, std::uint32_t qp_number = 0x111) {
    const EndpointId id = resolve(to);
    EXPECT_EQ(run(command::Connect{id, rc, parameters(qp_number, 1)}), 0);
    return id;
  }

 private:
  ConnectionService& service_;
  ConnectionService::ChannelNumber number_ = 0;
  UniqueFd events_;
  std::uint32_t taken_ = 0;
  bool hides_what_it_took_ = false;
};

class ConnectionServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    auto socket = bind_udp(0, PortUse::exclusive);
    ASSERT_TRUE(socket);
    socket_ = std::move(*socket);
    network_.emplace(socket_.get(), port_of(socket_.get()), UniqueFd(), devices_);
    service_.emplace(*network_, 1);
    client_.emplace(*service_, 100);
    server_.emplace(*service_, 200);
  }
  struct Pair {
    EndpointId client;
    EndpointId server;
  };
  Pair connect(std::uint16_t port) {
    Pair pair;
    pair.client = client_->connect(loopback(port));
    pair.server = server_->take<event::ConnectRequest>().endpoint;
    EXPECT_EQ(server_->run(command::Accept{pair.server, rc, parameters(0x222, 2)}), 0);
    EXPECT_EQ(client_->take<event::ConnectResponse>().endpoint, pair.client);
    EXPECT_EQ(client_->run(command::Establish{{pair.client}}), 0);
    EXPECT_EQ(server_->take<event::Established>().endpoint, pair.server);
    return pair;
  }

  KnownDevices devices_{[](const auto&, std::size_t) { return HeldBy::nobody; }};
  UniqueFd socket_;
  std::optional<IpNetwork> network_;
  std::optional<ConnectionService> service_;
  std::optional<End> client_, server_;
};

TEST_F(ConnectionServiceTest, ConnectsAndDisconnects) {
  const EndpointId listener = server_->listen(loopback(7000));
  EXPECT_EQ(service_->listener_count(), 1u);
  const EndpointId id = client_->connect(loopback(7000), 0x123);
  const auto request = server_->take<event::ConnectRequest>();
  EXPECT_EQ(request.listener, listener);
  EXPECT_EQ(request.parameters.qp_number, 0x123u);
  EXPECT_EQ(request.parameters.private_data.at(0), std::byte{1});
  EXPECT_EQ(request.known.destination.family, AF_INET);
  ASSERT_EQ(server_->run(command::Accept{request.endpoint, rc, parameters(0x456, 2)}), 0);
  const auto response = client_->take<event::ConnectResponse>();
  EXPECT_EQ(response.endpoint, id);
  EXPECT_EQ(response.parameters.qp_number, 0x456u);
  ASSERT_EQ(client_->run(command::Establish{{id}}), 0);
  server_->take<event::Established>();

  ASSERT_EQ(client_->run(command::Disconnect{{id}}), 0);
  EXPECT_EQ(server_->take<event::Disconnected>().endpoint, request.endpoint);
  EXPECT_TRUE(client_->is_silent()) << "the server has not agreed yet";
  ASSERT_EQ(server_->run(command::Disconnect{{request.endpoint}}), 0);
  EXPECT_EQ(client_->take<event::Disconnected>().status, 0);
  client_->take<event::TimewaitExit>();
  server_->take<event::TimewaitExit>();
  EXPECT_FALSE(client_->get(command::Destroy{id, 5}).is_held);
  EXPECT_FALSE(server_->get(command::Destroy{listener, 1}).is_held);
  EXPECT_EQ(service_->listener_count(), 0u);
}

TEST_F(ConnectionServiceTest, RejectsWithReasonAndData) {
  server_->listen(loopback(7000));
  client_->connect(loopback(7000));
  const EndpointId child = server_->take<event::ConnectRequest>().endpoint;
  const std::vector<std::byte> data{std::byte{7}};
  ASSERT_EQ(server_->run(command::Reject{child, 0, data}), 0);
  const auto rejected = client_->take<event::Rejected>();
  EXPECT_EQ(rejected.status, 28);
  EXPECT_EQ(rejected.private_data.at(0), std::byte{7});
  EXPECT_EQ(server_->run(command::Reject{child, 0, data}), EINVAL);
  EXPECT_EQ(server_->run(command::Accept{child, rc, parameters(1)}), EINVAL);
}

TEST_F(ConnectionServiceTest, NobodyListensAtThatPort) {
  client_->connect(loopback(7000));
  EXPECT_EQ(client_->take<event::Rejected>().status, 8);
}

TEST_F(ConnectionServiceTest, AClientThatDiesIsDisconnected) {
  server_->listen(loopback(7000));
  const Pair pair = connect(7000);
  service_->close_channel(client_->number());
  EXPECT_EQ(server_->take<event::Disconnected>().endpoint, pair.server);
  service_->close_channel(client_->number());  // a second time does nothing
}

// A channel may stay although the process has gone that had the queue pairs.
TEST_F(ConnectionServiceTest, ConnectionsEndWithTheirQueuePairs) {
  server_->listen(loopback(7000), 1);
  const Pair pair = connect(7000);  // queue pairs 0x111 and 0x222
  const EndpointId asking = client_->connect(loopback(7000), 0x112);
  server_->take<event::ConnectRequest>();
  service_->end_connections_of({0x100, 0x100});
  EXPECT_EQ(server_->take<event::Disconnected>().endpoint, pair.server);
  server_->take<event::Rejected>();
  EXPECT_TRUE(client_->is_silent()) << "its connections ask no more";
  EXPECT_EQ(client_->run(command::Establish{{asking}}), EINVAL);
  // The next owner of the number connects.
  client_->connect(loopback(7000), 0x111);
  server_->take<event::ConnectRequest>();
}

TEST_F(ConnectionServiceTest, AClientThatDiesWhileItAsksIsForgotten) {
  server_->listen(loopback(7000));
  client_->connect(loopback(7000));
  const EndpointId child = server_->take<event::ConnectRequest>().endpoint;
  service_->close_channel(client_->number());
  EXPECT_TRUE(std::holds_alternative<event::Rejected>(server_->next().value()));
  EXPECT_EQ(server_->run(command::Accept{child, rc, parameters(1)}), EINVAL);
}

TEST_F(ConnectionServiceTest, AServerThatDiesRefusesWhatItDidNotTake) {
  const EndpointId listener = server_->listen(loopback(7000));
  ASSERT_EQ(server_->run(command::Hold{{listener}}), 0);
  client_->connect(loopback(7000));
  EXPECT_TRUE(server_->is_silent()) << "the channel is held";
  service_->close_channel(server_->number());
  client_->take<event::Rejected>();
  EXPECT_EQ(service_->listener_count(), 0u);
}

TEST_F(ConnectionServiceTest, APortIsBoundOnce) {
  const EndpointId first = client_->create();
  const auto bound = client_->get(command::Bind{first, loopback(0)}).address;
  EXPECT_NE(bound.port, 0);
  EXPECT_EQ(client_->run(command::Bind{first, loopback(1)}), EINVAL) << "it is bound already";
  const EndpointId second = server_->create();
  EXPECT_EQ(server_->run(command::Bind{second, bound}), EADDRINUSE);
  const EndpointId other_space = server_->create(PortSpace::udp);
  EXPECT_EQ(server_->run(command::Bind{other_space, bound}), 0);
  service_->close_channel(client_->number());
  EXPECT_EQ(server_->run(command::Bind{second, bound}), 0);
}

// Requests for an IPv4 address also find a listener at the same address in IPv6's form.
TEST_F(ConnectionServiceTest, NobodyListensAtAnothersAddressInAnotherForm) {
  SocketAddress any = loopback(7000);
  any.address = {};
  server_->listen(any);
  server_->listen(loopback(7001));
  for (const std::uint16_t port : {std::uint16_t{7000}, std::uint16_t{7001}}) {
    SocketAddress mapped = SocketAddress::of(Gid::from_ipv4(0x7F00'0001), port);
    mapped.family = AF_INET6;
    EXPECT_EQ(client_->run(command::Bind{client_->create(), mapped}), EADDRINUSE);
    SocketAddress longer = loopback(port);
    longer.address[7] = std::byte{1};  // IPv4 uses the first four bytes
    EXPECT_EQ(client_->run(command::Bind{client_->create(), longer}), EADDRINUSE);
  }
}

TEST_F(ConnectionServiceTest, SharersOfAPortListenOnce) {
  const EndpointId ids[] = {client_->create(), client_->create()};
  const int yes = 1;
  const auto* bytes = reinterpret_cast<const std::byte*>(&yes);
  const std::vector<std::byte> value(bytes, bytes + sizeof(yes));
  for (const EndpointId id : ids) {
    ASSERT_EQ(client_->run(command::SetOption{id, 0, 1, value}), 0);
    ASSERT_EQ(client_->run(command::Bind{id, loopback(7000)}), 0);
  }
  EXPECT_EQ(client_->run(command::Listen{ids[0], 0}), 0);
  EXPECT_EQ(client_->run(command::Listen{ids[1], 0}), EADDRINUSE);
  EXPECT_EQ(client_->run(command::SetOption{ids[0], 0, 1, {}}), EINVAL) << "too short";
  EXPECT_EQ(client_->run(command::SetOption{ids[0], 9, 1, value}), ENOSYS);
}

// One of each command that names an endpoint.
std::vector<ConnectionCommand> commands_for(EndpointId id) {
  return {command::Bind{id, loopback(0)},
          command::Listen{id, 0},
          command::ResolveAddress{id, {}, loopback(1)},
          command::ResolveRoute{{id}},
          command::Query{{id}},
          command::Connect{id, rc, {}},
          command::Accept{id, rc, {}},
          command::Establish{{id}},
          command::Reject{id, 0, {}},
          command::NotifyEstablished{{id}},
          command::Disconnect{{id}},
          command::Destroy{id, 0},
          command::SetOption{id, 0, 0, {std::byte{1}}},
          command::GetQpAttributes{id},
          command::JoinMulticast{id, loopback(0)},
          command::LeaveMulticast{id, loopback(0)},
          command::Hold{{id}},
          command::Migrate{id, 1, {}},
          command::Report{id, ConnectionEventType::user, 0, 0}};
}

TEST_F(ConnectionServiceTest, AnIdThatIsNotTheProgramsIsInvalid) {
  const EndpointId others = server_->create();
  const EndpointId gone = client_->create();
  ASSERT_EQ(client_->run(command::Destroy{gone, 0}), 0);
  // Create and GiveBack name no endpoint.
  ASSERT_EQ(commands_for({}).size() + 2, std::variant_size_v<ConnectionCommand>);
  for (const EndpointId id : {EndpointId{}, others, gone, EndpointId{others.value + 1000}}) {
    for (const ConnectionCommand& command : commands_for(id)) {
      EXPECT_EQ(client_->run(command), EINVAL) << command.index();
    }
  }
  EXPECT_EQ(server_->run(command::Query{{others}}), 0) << "it is as it was";
}

TEST_F(ConnectionServiceTest, CommandsOutOfOrderAreInvalid) {
  const EndpointId idle = client_->create();
  for (const ConnectionCommand& command : std::initializer_list<ConnectionCommand>{
           command::ResolveRoute{{idle}}, command::Connect{idle, rc, {}},
           command::Accept{idle, rc, {}}, command::Establish{{idle}}, command::Reject{idle, 0, {}},
           command::NotifyEstablished{{idle}}, command::Disconnect{{idle}},
           command::GetQpAttributes{idle}, command::JoinMulticast{idle, loopback(0)},
           command::LeaveMulticast{idle, loopback(0)},
           command::Report{idle, ConnectionEventType::established, 0, 0}}) {
    EXPECT_EQ(client_->run(command), EINVAL) << command.index();
  }
  const EndpointId listener = server_->listen(loopback(7000));
  EXPECT_EQ(server_->run(command::ResolveAddress{listener, {}, loopback(1)}), EINVAL);
  EXPECT_EQ(server_->run(command::Connect{listener, rc, {}}), EINVAL);
  EXPECT_EQ(server_->run(command::Accept{listener, rc, {}}), EINVAL);
  EXPECT_EQ(server_->run(command::Listen{listener, 3}), 0) << "another backlog";

  const Pair pair = connect(7000);
  EXPECT_EQ(client_->run(command::Connect{pair.client, rc, {}}), EINVAL);
  EXPECT_EQ(client_->run(command::Establish{{pair.client}}), EINVAL);
  EXPECT_EQ(server_->run(command::Accept{pair.server, rc, {}}), EINVAL);
  EXPECT_EQ(server_->run(command::Establish{{pair.server}}), EINVAL) << "it is the passive side";
  EXPECT_EQ(server_->run(command::Reject{pair.server, 0, {}}), EINVAL);
  EXPECT_TRUE(client_->is_silent());
  EXPECT_TRUE(server_->is_silent());
}

TEST_F(ConnectionServiceTest, NumbersWithoutMeaningAreRefused) {
  EXPECT_EQ(client_->run(command::Create{static_cast<PortSpace>(7), rc}), EPROTONOSUPPORT);
  const EndpointId id = client_->resolve(loopback(1));
  const std::vector<std::byte> long_data(300);
  EXPECT_EQ(client_->run(command::Connect{id, rc, {.private_data = long_data}}), EINVAL);
  SocketAddress odd = loopback(1);
  odd.family = AF_UNIX;
  EXPECT_EQ(client_->run(command::Bind{client_->create(), odd}), EAFNOSUPPORT);
  EXPECT_EQ(client_->run(command::Bind{client_->create(), SocketAddress::of({}, 7)}), ENODEV)
      << "GIDs are addresses on InfiniBand alone";
}

TEST_F(ConnectionServiceTest, AHeldChannelGetsItsEventsInOrderLater) {
  const EndpointId id = client_->create();
  const auto report = [&](std::uint64_t argument) {
    EXPECT_EQ(client_->run(command::Report{id, ConnectionEventType::user, 0, argument}), 0);
  };
  report(1);
  const auto first = client_->take<event::Reported>();
  ASSERT_EQ(client_->run(command::Hold{{id}}), 0);
  report(2);
  EXPECT_TRUE(client_->is_silent());
  ASSERT_EQ(client_->run(command::GiveBack{true, {first}}), 0);
  EXPECT_TRUE(client_->is_silent()) << "more follow";
  ASSERT_EQ(client_->run(command::GiveBack{}), 0);
  EXPECT_EQ(client_->take<event::Reported>().argument, 1u);
  EXPECT_EQ(client_->take<event::Reported>().argument, 2u);
}

TEST_F(ConnectionServiceTest, WhatAProgramGivesBackIsItsOwn) {
  const EndpointId others = server_->listen(loopback(7000));
  const EndpointId own = client_->create();
  // No request names a listener that is gone: the other program's endpoint must not go with it.
  ASSERT_EQ(
      client_->run(command::GiveBack{false, {event::ConnectRequest{others, {}, {}, {}, {}, {}}}}),
      0);
  EXPECT_EQ(server_->run(command::Query{{others}}), 0);
  EXPECT_EQ(service_->listener_count(), 1u);
  // Events that the agent never sent are not delivered.
  ASSERT_EQ(
      client_->run(command::GiveBack{false, {event::Established{own}, event::Established{others}}}),
      0);
  EXPECT_TRUE(client_->is_silent());
  EXPECT_TRUE(server_->is_silent());
  const std::vector<ConnectionEvent> many(100, event::Established{own});
  int error = 0;
  for (int i = 0; i < 100 && error == 0; ++i) error = client_->run(command::GiveBack{true, many});
  EXPECT_EQ(error, ENOBUFS);
}

// A program that does not read gives back a request that it invented. The request waits then, and
// names an endpoint of another program.
TEST_F(ConnectionServiceTest, ARequestThatAProgramInventsHarmsNobody) {
  const EndpointId others = server_->listen(loopback(7000));
  const EndpointId own = client_->listen(loopback(7001));
  for (int i = 0; i < 2'000; ++i) {
    ASSERT_EQ(client_->run(command::Report{own, ConnectionEventType::user, 0, 0}), 0);
  }
  const event::ConnectRequest invented{others, own, {}, {}, {}, {}};
  ASSERT_EQ(client_->run(command::GiveBack{false, {invented}}), 0);
  ASSERT_EQ(client_->run(command::Destroy{own, 0}), 0);
  EXPECT_EQ(server_->run(command::Query{{others}}), 0);
  EXPECT_EQ(service_->listener_count(), 1u);
}

// Each of these commands answers with an event, which waits for a program that does not read.
TEST_F(ConnectionServiceTest, CommandsOfAProgramThatDoesNotReadAreBounded) {
  const auto runs_until_refused = [this](const ConnectionCommand& command) {
    for (int runs = 0; runs < 10'000; ++runs) {
      if (const int error = client_->run(command); error != 0) return error;
    }
    return 0;
  };
  const EndpointId id = client_->create(PortSpace::udp);
  EXPECT_EQ(runs_until_refused(command::ResolveAddress{id, {}, loopback(7000)}), ENOBUFS);
  SocketAddress group = loopback(0);
  group.address[0] = std::byte{239};
  EXPECT_EQ(client_->run(command::JoinMulticast{id, group}), ENOBUFS);
  EXPECT_EQ(client_->run(command::Report{id, ConnectionEventType::user, 0, 0}), ENOBUFS);
}

// What a program gives back comes from it, whatever the agent has sent to it.
TEST_F(ConnectionServiceTest, WhatAProgramGivesBackIsBounded) {
  const EndpointId id = client_->create();
  const event::Reported reported{ConnectionEventType::user, id, 0, 0};
  for (int i = 0; i < 12'000; ++i) {
    ASSERT_EQ(client_->run(command::Report{id, reported.type, 0, 0}), 0);
    ASSERT_TRUE(client_->next());
  }
  event::Unreachable large{id, 0, std::vector<std::byte>(2'048)};
  EXPECT_EQ(client_->run(command::GiveBack{false, {large}}), ENOBUFS);
  EXPECT_EQ(client_->run(command::GiveBack{true, {large}}), ENOBUFS);
  const std::vector<ConnectionEvent> many(4'000, reported);
  int taken = 0;
  while (client_->run(command::GiveBack{false, many}) == 0) ASSERT_LT(++taken, 4);
  EXPECT_EQ(taken, 2);
  EXPECT_EQ(client_->run(command::Report{id, reported.type, 0, 0}), ENOBUFS);
}

// A program takes the same requests again and again, and says that it has taken none. One event is
// always unread, so the agent cannot see that it has taken all.
TEST_F(ConnectionServiceTest, ARequestThatIsGivenBackCountsOnce) {
  server_->hide_what_it_took();
  const EndpointId listener = server_->listen(loopback(7000), 3);
  std::vector<ConnectionEvent> requests;
  for (const std::uint32_t qp_number : {0x111u, 0x112u}) {
    client_->connect(loopback(7000), qp_number);
    requests.emplace_back(server_->take<event::ConnectRequest>());
  }
  const auto is_request = [](const ConnectionEvent& event) {
    return std::holds_alternative<event::ConnectRequest>(event);
  };
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(server_->run(command::GiveBack{false, std::exchange(requests, {})}), 0);
    ASSERT_EQ(server_->run(command::Report{listener, ConnectionEventType::user, 0, 0}), 0);
    while (requests.size() < 2) {
      const auto event = server_->next();
      ASSERT_TRUE(event);
      if (is_request(*event)) requests.push_back(*event);
    }
  }
  client_->connect(loopback(7000), 0x113);
  EXPECT_TRUE(client_->is_silent());
  server_->take<event::Reported>();
  EXPECT_TRUE(server_->next(50)) << "there was room for a third request";
}

// A request goes back to the channel that sent it, while the endpoint that it made is in another.
TEST_F(ConnectionServiceTest, ARequestOutlivesItsChannelByNothing) {
  server_->hide_what_it_took();
  auto second = std::make_unique<End>(*service_, 200);
  const EndpointId listener = server_->listen(loopback(7000), 2);
  client_->connect(loopback(7000), 0x111);
  const auto request = server_->take<event::ConnectRequest>();
  ASSERT_EQ(server_->run(command::Migrate{request.endpoint, second->number(), {}}), 0);
  const EndpointId other = server_->create();
  ASSERT_EQ(server_->run(command::Migrate{other, second->number(), {request}}), 0);
  ASSERT_TRUE(server_->next()) << "the request came back";
  ASSERT_EQ(server_->run(command::Migrate{listener, second->number(), {}}), 0);
  service_->close_channel(server_->number());
  EXPECT_EQ(second->run(command::Destroy{request.endpoint, 0}), 0);
  client_->take<event::Rejected>();
  // It does not count with the listener any more.
  client_->connect(loopback(7000), 0x112);
  client_->connect(loopback(7000), 0x113);
  second->take<event::ConnectRequest>();
  second->take<event::ConnectRequest>();
}

// The request waits in one channel while the endpoint that it will announce moves to another.
TEST_F(ConnectionServiceTest, AnEndpointMovesBeforeItsRequestIsSent) {
  server_->hide_what_it_took();
  auto second = std::make_unique<End>(*service_, 200);
  const EndpointId listener = server_->listen(loopback(7000), 4);
  client_->connect(loopback(7000), 0x111);
  const auto first = server_->take<event::ConnectRequest>();
  ASSERT_EQ(server_->run(command::Hold{{listener}}), 0);
  client_->connect(loopback(7000), 0x112);
  EXPECT_TRUE(server_->is_silent());
  const EndpointId next{first.endpoint.value + 1};
  const int moved = server_->run(command::Migrate{next, second->number(), {}});
  ASSERT_EQ(server_->run(command::GiveBack{false, {first}}), 0);
  while (server_->next(50)) {
  }
  service_->close_channel(server_->number());
  EXPECT_EQ(second->run(command::Destroy{next, 0}), moved);
}

TEST_F(ConnectionServiceTest, EventsOfAUserWhoIsLimitedAreBoundedInAllChannels) {
  std::vector<std::unique_ptr<End>> ends;
  std::size_t reported = 0;
  int error = 0;
  for (int i = 0; i < 20 && error == 0; ++i) {
    ends.push_back(std::make_unique<End>(
        *service_, ConnectionService::Owner{static_cast<pid_t>(i), 1'000, true}));
    const EndpointId id = ends.back()->create();
    for (int k = 0; k < 4'096 && error == 0; ++k) {
      error = ends.back()->run(command::Report{id, ConnectionEventType::user, 0, 0});
      reported += error == 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(error, ENOBUFS);
  EXPECT_GE(reported, 65'536u);
  End joining(*service_, {98, 1'000, true});
  const EndpointId datagrams = joining.create(PortSpace::udp);
  EXPECT_EQ(joining.run(command::Bind{datagrams, loopback(0)}), 0);
  SocketAddress group = loopback(0);
  group.address[0] = std::byte{239};
  EXPECT_EQ(joining.run(command::JoinMulticast{datagrams, group}), ENOBUFS);
  End another(*service_, {99, 1'001, true});
  EXPECT_EQ(another.run(command::Report{another.create(), ConnectionEventType::user, 0, 0}), 0);
}

TEST_F(ConnectionServiceTest, AnEndpointJoinsABoundedNumberOfGroups) {
  const EndpointId id = client_->create(PortSpace::udp);
  ASSERT_EQ(client_->run(command::ResolveAddress{id, {}, loopback(7000)}), 0);
  client_->take<event::AddressResolved>();
  SocketAddress group = loopback(0);
  group.address[0] = std::byte{239};
  int joined = 0;
  while (joined < 3'000 && client_->run(command::JoinMulticast{id, group}) == 0) {
    client_->take<event::MulticastJoined>();
    ++joined;
  }
  EXPECT_EQ(joined, 1'024);
  ASSERT_EQ(client_->run(command::LeaveMulticast{id, group}), 0);
  EXPECT_EQ(client_->run(command::JoinMulticast{id, group}), 0);
}

TEST_F(ConnectionServiceTest, AUserWhoIsLimitedJoinsABoundedNumberOfGroups) {
  End limited(*service_, {1, 1'000, true});
  SocketAddress group = loopback(0);
  group.address[0] = std::byte{239};
  EndpointId last{};
  int joined = 0;
  for (int endpoint = 0; endpoint < 17; ++endpoint) {
    last = limited.create(PortSpace::udp);
    ASSERT_EQ(limited.run(command::ResolveAddress{last, {}, loopback(7000)}), 0);
    limited.take<event::AddressResolved>();
    for (int i = 0; i < 1'024 && limited.run(command::JoinMulticast{last, group}) == 0; ++i) {
      limited.take<event::MulticastJoined>();
      ++joined;
    }
  }
  EXPECT_EQ(joined, 16'384);
  EXPECT_EQ(limited.run(command::JoinMulticast{last, group}), ENOBUFS);
  End another(*service_, {2, 1'001, true});
  const EndpointId others = another.create(PortSpace::udp);
  ASSERT_EQ(another.run(command::ResolveAddress{others, {}, loopback(7000)}), 0);
  another.take<event::AddressResolved>();
  EXPECT_EQ(another.run(command::JoinMulticast{others, group}), 0);
}

TEST_F(ConnectionServiceTest, MigratesOnlyBetweenChannelsOfOneProcess) {
  End sibling(*service_, 100);
  const EndpointId id = client_->create();
  EXPECT_EQ(client_->run(command::Migrate{id, server_->number(), {}}), EINVAL);
  EXPECT_EQ(client_->run(command::Migrate{id, 12345, {}}), EINVAL);
  EXPECT_EQ(client_->run(command::Migrate{id, sibling.number(), {}}), 0);
  EXPECT_EQ(client_->run(command::Query{{id}}), EINVAL);
  EXPECT_EQ(sibling.run(command::Query{{id}}), 0);
}

// A process of another container may have the same number, and one that ended had it before.
TEST_F(ConnectionServiceTest, MigratesOnlyBetweenChannelsOfOneUser) {
  End own(*service_, {7, 1'000, true});
  End of_another_user(*service_, {7, 1'001, true});
  const EndpointId id = own.create();
  EXPECT_EQ(own.run(command::Migrate{id, of_another_user.number(), {}}), EINVAL);
  End second(*service_, {7, 1'000, true});
  EXPECT_EQ(own.run(command::Migrate{id, second.number(), {}}), 0);
}

// In the agent's user namespace, several users may have the number 65534. Their processes have the
// number 0 if the agent has a process namespace of its own.
TEST_F(ConnectionServiceTest, MigratesNothingOfUsersWithoutANumber) {
  const auto said = in_user_namespace(few_users, [&] {
    std::string errors;
    for (const uid_t user : {uid_t{65'534}, uid_t{1'000}}) {
      End own(*service_, {0, user, true});
      End second(*service_, {0, user, true});
      errors += std::to_string(own.run(command::Migrate{own.create(), second.number(), {}})) + " ";
    }
    return errors;
  });
  if (!said) GTEST_SKIP() << "no such user namespaces here";
  EXPECT_EQ(*said, std::to_string(EINVAL) + " 0 ");
}

TEST_F(ConnectionServiceTest, AUserWhoIsLimitedLeavesPortsToOthers) {
  End limited(*service_, {1, 1'000, true});
  End same_user(*service_, {2, 1'000, true});
  End another(*service_, {3, 1'001, true});
  std::vector<EndpointId> bound;
  for (;;) {
    const EndpointId id = limited.create();
    if (limited.run(command::Bind{id, loopback(0)}) != 0) break;
    bound.push_back(id);
  }
  EXPECT_EQ(bound.size(), 14'116u) << "half of the ephemeral ports";
  EXPECT_EQ(same_user.run(command::Bind{same_user.create(), loopback(0)}), EADDRNOTAVAIL);
  EXPECT_EQ(another.run(command::Bind{another.create(), loopback(0)}), 0);
  limited.run(command::Destroy{bound.front(), 0});
  EXPECT_EQ(same_user.run(command::Bind{same_user.create(), loopback(0)}), 0);
}

TEST_F(ConnectionServiceTest, AUserWhoIsLimitedLeavesConnectionsToOthers) {
  End limited(*service_, {1, 1'000, true});
  End same_user(*service_, {2, 1'000, true});
  End another(*service_, {3, 1'001, true});
  End trusted(*service_, {4, 0, false});
  for (int i = 0; i < 8'192; ++i) limited.create();
  for (int i = 0; i < 8'192; ++i) same_user.create();
  EXPECT_EQ(limited.run(command::Create{PortSpace::tcp, rc}), ENOMEM);
  EXPECT_EQ(same_user.run(command::Create{PortSpace::tcp, rc}), ENOMEM);
  EXPECT_EQ(another.run(command::Create{PortSpace::tcp, rc}), 0);
  EXPECT_EQ(trusted.run(command::Create{PortSpace::tcp, rc}), 0);
}

TEST_F(ConnectionServiceTest, UsersWhoAreLimitedLeaveConnectionsToTheAgentsOwn) {
  std::vector<std::unique_ptr<End>> limited;
  int made = 0;
  for (int i = 0; i < 4; ++i) {
    limited.push_back(
        std::make_unique<End>(*service_, ConnectionService::Owner{10 + i, 1'000u + i, true}));
    for (int n = 0; n < 8'192; ++n)
      made += limited[i]->run(command::Create{PortSpace::tcp, rc}) == 0;
  }
  EXPECT_EQ(made, 24'576) << "three quarters of what peers may ask for";
  End trusted(*service_, {4, 0, false});
  EXPECT_EQ(trusted.run(command::Create{PortSpace::tcp, rc}), 0);
}

TEST_F(ConnectionServiceTest, ADestroyedListenerTakesItsRequestsAlong) {
  const EndpointId listener = server_->listen(loopback(7000));
  ASSERT_EQ(server_->run(command::Hold{{listener}}), 0);
  client_->connect(loopback(7000));
  ASSERT_TRUE(server_->is_silent());
  ASSERT_EQ(server_->run(command::Destroy{listener, 0}), 0);
  client_->take<event::Rejected>();
}

// A host that is not this one: 127.0.0.2, which no device here has. Its messages to 127.0.0.1 are
// delivered as those of any other host.
class OtherHost {
 public:
  explicit OtherHost(std::uint16_t port) : manager_(management::cm::Manager::Settings{}) {
    auto bound = bind_udp(0, PortUse::exclusive);
    socket_ = std::move(*bound);
    port_.emplace(socket_.get(), port);
  }
  // Sends a REQ for that port whose private data name these addresses.
  void connect(std::uint16_t port, std::uint32_t source, std::uint32_t destination) {
    wire::cm::IpHello hello;
    wire::cm::IpHello::IpVersion::set(hello.ip_version, 4);
    for (std::size_t i = 0; i < 4; ++i) {
      hello.source[12 + i] = static_cast<std::byte>(source >> (24 - 8 * i));
      hello.destination[12 + i] = static_cast<std::byte>(destination >> (24 - 8 * i));
    }
    management::cm::Request request;
    request.route = {Gid::from_ipv4(0x7F00'0002), Gid::from_ipv4(0x7F00'0001), 0};
    request.service_id = wire::cm::ip_service_id(static_cast<std::uint16_t>(PortSpace::tcp), port);
    request.qp = QpNumber{++qps_};
    request.path_mtu = 3;
    request.private_data = management::cm::PrivateData(std::as_bytes(std::span(&hello, 1)));
    manager_.connect(Time::seconds(1), request);
    while (const auto* out = manager_.next_outgoing()) {
      wire::IpUdp ip;
      ip.source = out->route.local;
      ip.destination = out->route.remote;
      port_->send(ip, 0, out->bytes, false);
      manager_.pop_outgoing();
    }
  }

 private:
  management::cm::Manager manager_;
  UniqueFd socket_;
  std::optional<ManagementPort> port_;
  std::uint32_t qps_ = 0x100;
};

TEST_F(ConnectionServiceTest, ARequestIsForTheAddressToWhichItCame) {
  SocketAddress any = loopback(7000);
  any.address = {};
  server_->listen(any);
  OtherHost other(port_of(socket_.get()));
  constexpr std::uint32_t own = 0x7F00'0001, others = 0x7F00'0002, third = 0x7F00'0003;
  other.connect(7000, others, third);  // it names a loopback address to which it was not sent
  other.connect(7000, own, own);       // it names a source that is not its own
  other.connect(7000, third, own);
  EXPECT_TRUE(server_->is_silent());
  other.connect(7000, others, own);
  const auto request = server_->take<event::ConnectRequest>();
  EXPECT_EQ(request.known.destination.gid(), Gid::from_ipv4(others));
}

TEST_F(ConnectionServiceTest, EventsWaitForAProgramThatDoesNotRead) {
  const EndpointId id = client_->create();
  std::uint64_t sent = 0;
  std::vector<std::pair<int, ConnectionService::ChannelNumber>> blocked;
  while (blocked.empty() && sent < 4'000) {
    ASSERT_EQ(client_->run(command::Report{id, ConnectionEventType::user, 0, sent++}), 0);
    blocked = service_->take_blocked();
  }
  ASSERT_EQ(blocked.size(), 1u);
  EXPECT_EQ(blocked[0].second, client_->number());
  EXPECT_TRUE(service_->take_blocked().empty()) << "it is told once";
  for (std::uint64_t i = 0; i < sent; ++i) {
    ASSERT_EQ(client_->take<event::Reported>().argument, i);
    service_->flush(client_->number());
  }
  EXPECT_TRUE(client_->is_silent());
}

// Frames are sent with the agent's rights. An address may have RoCE v1 alone.
TEST_F(ConnectionServiceTest, AUserWhoIsLimitedResolvesNoAddressOfRoceV1) {
  for (const bool is_limited : {true, false}) {
    End end(*service_, {300, 1'000, is_limited}, RoceVersions::v1);
    const EndpointId id = end.create();
    EXPECT_EQ(end.run(command::ResolveAddress{id, {}, loopback(7)}), 0);
    const auto event = end.next();
    ASSERT_TRUE(event);
    const auto* error = std::get_if<event::AddressError>(&*event);
    EXPECT_EQ(error != nullptr ? error->status : 0, is_limited ? -EPERM : 0);
  }
}

}  // namespace
}  // namespace tulle::live
