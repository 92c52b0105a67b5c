// The connection managers of two hosts of a subnet with a manager of its own, in one process.

#include "live/fabric/host_connections.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "fabric/subnet_managers.h"
#include "live/fabric/host_networks.h"
#include "live/message/socket.h"

namespace tulle::live {
namespace {

constexpr ConnectionQpType rc = ConnectionQpType::rc;

Time& clock_of_test() {
  static Time now = Time::seconds(1);
  return now;
}
Time now() { return clock_of_test(); }

SocketAddress ipv4(std::array<std::uint8_t, 4> bytes, std::uint16_t port) {
  SocketAddress out;
  out.family = AF_INET;
  out.port = port;
  for (std::size_t i = 0; i < bytes.size(); ++i) out.address[i] = std::byte{bytes[i]};
  return out;
}
SocketAddress address_of(std::uint32_t host, std::uint16_t port) {
  return ipv4(host_address_bytes(host), port);
}

class HostConnectionsTest : public testing::Test {
 protected:
  struct Program {
    HostConnections* host = nullptr;
    ConnectionService::ChannelNumber channel = 0;
    UniqueFd events;
  };

  void start(bool has_manager = true) {
    subnet_.emplace(now(), *fabric::single_switch({hosts, {}}));
    if (has_manager) managers_.emplace(now(), *subnet_, management::subnet::ManagerSettings{});
    services_.emplace(*subnet_, managers_ ? &*managers_ : nullptr);
    for (std::uint32_t host = 0; host < hosts; ++host) {
      administrations_.push_back(
          std::make_unique<HostAdministration>(host, own | asks | host, now, *subnet_, *services_));
      connections_.push_back(std::make_unique<HostConnections>(
          host, own | host, now, *subnet_, *services_, *administrations_.back()));
      programs_.push_back({connections_.back().get(), 0, {}});
      auto events = connections_.back()->service().open_channel(
          {100, 0, false}, {.name = "tulle0", .interfaces = {}}, programs_.back().channel);
      ASSERT_TRUE(events);
      programs_.back().events = std::move(*events);
    }
    settle();
  }
  void settle() {
    bool has_sent = true;
    while (has_sent) {
      services_->progress(now(), [this](const HostServices::Delivery& delivery) {
        const std::uint32_t host = delivery.client & ~(own | asks);
        if ((delivery.client & asks) != 0) return administrations_[host]->take(delivery);
        connections_[host]->take(delivery);
      });
      has_sent = false;
      for (auto& each : connections_) has_sent = each->progress() || has_sent;
    }
  }
  void pass(Time span) {
    const Time end = now() + span;
    while (now() < end) {
      clock_of_test() = now() + Time::milliseconds(100);
      settle();
    }
  }

  ConnectionReply ask(std::uint32_t host, ConnectionCommand command) {
    Program& program = programs_[host];
    auto reply = program.host->service().execute(program.channel, {0, std::move(command)});
    settle();
    return reply;
  }
  int run(std::uint32_t host, ConnectionCommand command) {
    const ConnectionReply reply = ask(host, std::move(command));
    const auto* failed = std::get_if<reply::Failed>(&reply);
    return failed != nullptr ? failed->error : 0;
  }
  EndpointId create(std::uint32_t host, PortSpace space = PortSpace::tcp) {
    return std::get<reply::Created>(ask(host, command::Create{space, rc})).endpoint;
  }
  EndpointId listen(std::uint32_t host, const SocketAddress& at) {
    const EndpointId id = create(host);
    EXPECT_EQ(run(host, command::Bind{id, at}), 0);
    EXPECT_EQ(run(host, command::Listen{id, 5}), 0);
    return id;
  }
  // Each connection has a queue pair of its own: another one of the same would be a stale one.
  void connect(std::uint32_t host, const SocketAddress& to, ConnectionParameters parameters = {}) {
    parameters.qp_number = ++last_qp_;
    const EndpointId id = create(host);
    ASSERT_EQ(run(host, command::ResolveAddress{id, {}, to}), 0);
    take<event::AddressResolved>(host);
    ASSERT_EQ(run(host, command::ResolveRoute{{id}}), 0);
    take<event::RouteResolved>(host);
    ASSERT_EQ(run(host, command::Connect{id, rc, parameters}), 0);
  }
  // Takes the next event, which must be of this type.
  template <typename Event>
  Event take(std::uint32_t host) {
    auto message = receive_message(programs_[host].events.get());
    EventMessage event;
    if (!message || !decode(message->bytes, event)) {
      ADD_FAILURE() << "no event";
      return {};
    }
    const Event* found = std::get_if<Event>(&event.event);
    if (found == nullptr) {
      ADD_FAILURE() << "another event: " << static_cast<int>(type_of(event.event));
      return {};
    }
    return *found;
  }
  // Sends a request of host 2 for the port 7000 of host 0 with these addresses of IP in it.
  void forge(std::uint8_t version, const Gid& source, const Gid& destination) {
    wire::cm::IpHello hello;
    wire::cm::IpHello::IpVersion::set(hello.ip_version, version);
    std::memcpy(hello.source.data(), source.bytes.data(), hello.source.size());
    std::memcpy(hello.destination.data(), destination.bytes.data(), hello.destination.size());
    management::cm::Manager::Settings settings;
    settings.ca_guid = ++last_forger_;  // so that the next request is none that has come before
    management::cm::Manager forger(settings);
    management::cm::Request request;
    request.service_id = wire::cm::ip_service_id(static_cast<std::uint16_t>(PortSpace::tcp), 7000);
    request.qp = QpNumber{0x77};
    request.path_mtu = 5;
    request.lids = {lid(2), lid(0), 0};
    request.private_data = management::cm::PrivateData(std::as_bytes(std::span(&hello, 1)));
    forger.connect(now(), request);
    management::Packet packet;
    packet.source = Lid(lid(2));
    packet.destination = Lid(lid(0));
    packet.source_qp = packet.destination_qp = wire::general_services_qp;
    packet.qkey = wire::general_services_qkey;
    packet.mad = forger.next_outgoing()->bytes;
    subnet_->send(now(), 2, 1, packet);
    settle();
  }
  bool has_event(std::uint32_t host) {
    pollfd entry{programs_[host].events.get(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }
  std::uint16_t lid(std::uint32_t host) const { return services_->port_of(host).lid; }

  static constexpr std::uint32_t hosts = 3;
  static constexpr std::uint32_t own = 1u << 31;
  static constexpr std::uint32_t asks = 1u << 30;  // a client that asks administration
  std::optional<fabric::Subnet> subnet_;
  std::optional<fabric::SubnetManagers> managers_;
  std::optional<HostServices> services_;
  std::vector<std::unique_ptr<HostAdministration>> administrations_;
  std::vector<std::unique_ptr<HostConnections>> connections_;
  std::vector<Program> programs_;
  std::uint32_t last_qp_ = 0x100;
  std::uint64_t last_forger_ = 0;
};

TEST_F(HostConnectionsTest, ConnectsByTheLidsOfAPathRecord) {
  start();
  const EndpointId listener = create(0);
  ASSERT_EQ(run(0, command::Bind{listener, address_of(0, 7000)}), 0);
  ASSERT_EQ(run(0, command::Listen{listener, 1}), 0);

  const EndpointId client = create(2);
  ASSERT_EQ(run(2, command::ResolveAddress{client, {}, address_of(0, 7000)}), 0);
  const auto resolved = take<event::AddressResolved>(2);
  EXPECT_EQ(resolved.known.source.address, address_of(2, 0).address);
  EXPECT_EQ(resolved.known.device, "tulle0");
  ASSERT_EQ(run(2, command::ResolveRoute{{client}}), 0);
  const auto route = take<event::RouteResolved>(2);
  EXPECT_EQ(route.known.path.lid, lid(0));
  EXPECT_EQ(route.known.path.source_lid, lid(2));
  EXPECT_FALSE(route.known.path.is_global);
  EXPECT_EQ(route.known.path_mtu_bytes, 4'096);

  ConnectionParameters parameters;
  parameters.qp_number = 0x123;
  ASSERT_EQ(run(2, command::Connect{client, rc, parameters}), 0);
  const auto request = take<event::ConnectRequest>(0);
  EXPECT_EQ(request.parameters.qp_number, 0x123u);
  EXPECT_EQ(request.known.path.lid, lid(2)) << "the way back is in the request";
  parameters.qp_number = 0x456;
  ASSERT_EQ(run(0, command::Accept{request.endpoint, rc, parameters}), 0);
  const auto response = take<event::ConnectResponse>(2);
  const QpAttributes& receiving = response.attributes.ready_to_receive;
  EXPECT_EQ(receiving.path.lid, lid(0));
  EXPECT_FALSE(receiving.path.is_global);
  EXPECT_EQ(receiving.destination_qp, 0x456u);
  ASSERT_EQ(run(2, command::Establish{{client}}), 0);
  EXPECT_EQ(take<event::Established>(0).endpoint, request.endpoint);
  ASSERT_EQ(run(2, command::Disconnect{{client}}), 0);
  EXPECT_EQ(take<event::Disconnected>(0).endpoint, request.endpoint);
}

// A program that writes its own management datagrams may say anything in them.
TEST_F(HostConnectionsTest, ARequestFromAnotherAddressIsRefused) {
  start();
  const EndpointId listener = create(0);
  ASSERT_EQ(run(0, command::Bind{listener, address_of(0, 7000)}), 0);
  ASSERT_EQ(run(0, command::Listen{listener, 5}), 0);
  const Gid own = address_of(0, 0).gid();
  forge(4, address_of(1, 0).gid(), own);
  EXPECT_FALSE(has_event(0));
  forge(4, address_of(2, 0).gid(), own);
  EXPECT_EQ(take<event::ConnectRequest>(0).parameters.qp_number, 0x77u);
}

// What stands at the beginning of private data may look like addresses and be something else.
TEST_F(HostConnectionsTest, ARequestToNoAddressOfTheHostIsForWhoListensAtItsGid) {
  start();
  const Gid own = port_gid(*subnet_, 0);
  SocketAddress at = SocketAddress::of(own, 7000);
  at.family = AF_INET6;
  listen(0, at);
  const EndpointId by_gid = listen(0, SocketAddress::of({}, 7000));
  for (const std::uint8_t bits : {std::uint8_t{1}, std::uint8_t{5}}) {
    Gid other = own;
    other.bytes[13] ^= bits;
    forge(6, port_gid(*subnet_, 2), other);
    EXPECT_EQ(take<event::ConnectRequest>(0).listener, by_gid);
  }
}

// AF_IB: no address of IP is said, so that private data has all of its room.
TEST_F(HostConnectionsTest, GidsAreAddresses) {
  start();
  const Gid there = port_gid(*subnet_, 0);
  const EndpointId listener = listen(0, SocketAddress::of(there, 7000));
  ConnectionParameters parameters;
  parameters.private_data.assign(92, std::byte{7});
  connect(2, SocketAddress::of(there, 7000), parameters);
  const auto request = take<event::ConnectRequest>(0);
  EXPECT_EQ(request.listener, listener);
  const std::vector<std::byte>& data = request.parameters.private_data;
  EXPECT_TRUE(std::ranges::equal(std::span(data).first(92), parameters.private_data));
  EXPECT_EQ(request.known.source, SocketAddress::of(there, 7000));
  EXPECT_EQ(request.known.destination, SocketAddress::of(port_gid(*subnet_, 2), 0));
  EXPECT_EQ(request.known.path.lid, lid(2));

  const EndpointId other = create(0);
  EXPECT_EQ(run(0, command::Bind{other, SocketAddress::of(port_gid(*subnet_, 1), 7001)}),
            EADDRNOTAVAIL);
}

// Whoever listens at an address of IP takes what names it, and whoever listens at a GID the rest.
TEST_F(HostConnectionsTest, ListenersAtGidsAndAtAddressesOfIp) {
  start();
  const Gid there = port_gid(*subnet_, 0);
  const EndpointId by_ip = listen(0, address_of(0, 7000));
  connect(2, SocketAddress::of(there, 7000));
  take<event::Rejected>(2);
  const EndpointId by_gid = listen(0, SocketAddress::of({}, 7000));
  connect(2, SocketAddress::of(there, 7000));
  EXPECT_EQ(take<event::ConnectRequest>(0).listener, by_gid);
  connect(2, address_of(0, 7000));
  EXPECT_EQ(take<event::ConnectRequest>(0).listener, by_ip);
  // A request that names addresses of IP at which nobody listens.
  listen(0, SocketAddress::of(there, 7002));
  connect(2, address_of(0, 7002));
  EXPECT_GE(take<event::ConnectRequest>(0).parameters.private_data.size(),
            sizeof(wire::cm::IpHello));
}

TEST_F(HostConnectionsTest, DatagramsHaveAWayBack) {
  start();
  const EndpointId listener = create(1, PortSpace::udp);
  ASSERT_EQ(run(1, command::Bind{listener, address_of(1, 7000)}), 0);
  ASSERT_EQ(run(1, command::Listen{listener, 1}), 0);
  const EndpointId client = create(2, PortSpace::udp);
  ASSERT_EQ(run(2, command::ResolveAddress{client, {}, address_of(1, 7000)}), 0);
  ASSERT_EQ(run(2, command::ResolveRoute{{client}}), 0);
  ASSERT_EQ(run(2, command::Connect{client, ConnectionQpType::ud, {}}), 0);
  const auto request = take<event::ConnectRequest>(1);
  EXPECT_TRUE(request.is_datagram);
  EXPECT_EQ(request.known.path.lid, lid(2));
}

TEST_F(HostConnectionsTest, OnOneHost) {
  start();
  const EndpointId listener = create(1);
  ASSERT_EQ(run(1, command::Bind{listener, ipv4({127, 0, 0, 1}, 7000)}), 0);
  ASSERT_EQ(run(1, command::Listen{listener, 1}), 0);
  const EndpointId client = create(1);
  ASSERT_EQ(run(1, command::ResolveAddress{client, {}, ipv4({127, 0, 0, 1}, 7000)}), 0);
  take<event::AddressResolved>(1);
  ASSERT_EQ(run(1, command::ResolveRoute{{client}}), 0);
  EXPECT_EQ(take<event::RouteResolved>(1).known.path.lid, lid(1));
  ASSERT_EQ(run(1, command::Connect{client, rc, {}}), 0);
  EXPECT_EQ(take<event::ConnectRequest>(1).listener, listener);
}

TEST_F(HostConnectionsTest, AddressesThatNobodyHas) {
  start();
  const EndpointId client = create(0);
  for (const SocketAddress& nobody : {address_of(hosts, 7000), ipv4({192, 0, 2, 1}, 7000),
                                      ipv4({10, 2, 0, 1}, 7000), ipv4({10, 0, 0, 0}, 7000)}) {
    ASSERT_EQ(run(0, command::ResolveAddress{client, {}, nobody}), 0);
    EXPECT_EQ(take<event::AddressError>(0).status, -ENETUNREACH);
  }
  const EndpointId other = create(0);
  EXPECT_EQ(run(0, command::Bind{other, address_of(1, 7000)}), EADDRNOTAVAIL) << "another host's";
}

// The addresses of IP over InfiniBand are the hosts', too.
TEST_F(HostConnectionsTest, AddressesOfBothNetworks) {
  start();
  const EndpointId client = create(0);
  const SocketAddress there = ipv4(infiniband_address_bytes(1), 7000);
  ASSERT_EQ(run(0, command::ResolveAddress{client, {}, there}), 0);
  const auto resolved = take<event::AddressResolved>(0);
  EXPECT_EQ(resolved.known.source.address, ipv4(infiniband_address_bytes(0), 0).address);
  // A listener at one of a host's addresses hears requests to the other.
  const EndpointId listener = create(1);
  ASSERT_EQ(run(1, command::Bind{listener, there}), 0);
  ASSERT_EQ(run(1, command::Listen{listener, 1}), 0);
  const EndpointId other = create(0);
  ASSERT_EQ(run(0, command::ResolveAddress{other, {}, address_of(1, 7000)}), 0);
  take<event::AddressResolved>(0);
  ASSERT_EQ(run(0, command::ResolveRoute{{other}}), 0);
  take<event::RouteResolved>(0);
  ASSERT_EQ(run(0, command::Connect{other, rc, {}}), 0);
  take<event::ConnectRequest>(1);
}

// A program may name hosts by addresses of IPv4 that are mapped into IPv6.
TEST_F(HostConnectionsTest, MappedAddressesHaveMappedSources) {
  start();
  const auto mapped = [](std::array<std::uint8_t, 4> bytes, std::uint16_t port) {
    SocketAddress out;
    out.family = AF_INET6;
    out.port = port;
    out.address[10] = out.address[11] = std::byte{0xFF};
    for (std::size_t i = 0; i < bytes.size(); ++i) out.address[12 + i] = std::byte{bytes[i]};
    return out;
  };
  for (const auto bytes_of : {host_address_bytes, infiniband_address_bytes}) {
    const EndpointId client = create(2);
    ASSERT_EQ(run(2, command::ResolveAddress{client, {}, mapped(bytes_of(0), 7000)}), 0);
    const auto resolved = take<event::AddressResolved>(2);
    EXPECT_EQ(resolved.known.source.family, AF_INET6);
    EXPECT_EQ(resolved.known.source.address, mapped(bytes_of(2), 0).address);
  }
}

TEST_F(HostConnectionsTest, WithoutAManagerThereIsNoRoute) {
  start(false);
  const EndpointId client = create(0);
  ASSERT_EQ(run(0, command::ResolveAddress{client, {}, address_of(1, 7000)}), 0);
  take<event::AddressResolved>(0);
  ASSERT_EQ(run(0, command::ResolveRoute{{client}}), 0);
  EXPECT_EQ(take<event::RouteError>(0).status, -ENETUNREACH);
}

TEST_F(HostConnectionsTest, ARouteToAHostThatHasBeenCutOff) {
  start();
  subnet_->set_cut(now(), 1, true);  // the cable of h1
  pass(Time::seconds(15));
  const EndpointId client = create(0);
  ASSERT_EQ(run(0, command::ResolveAddress{client, {}, address_of(1, 7000)}), 0);
  take<event::AddressResolved>(0);
  ASSERT_EQ(run(0, command::ResolveRoute{{client}}), 0);
  EXPECT_EQ(take<event::RouteError>(0).status, -EHOSTUNREACH);
}

TEST_F(HostConnectionsTest, AManagerThatDoesNotAnswerIsAskedThreeTimes) {
  start();
  subnet_->set_cut(now(), 0, true);  // of the host that asks
  const EndpointId client = create(0);
  ASSERT_EQ(run(0, command::ResolveAddress{client, {}, address_of(1, 7000)}), 0);
  take<event::AddressResolved>(0);
  ASSERT_EQ(run(0, command::ResolveRoute{{client}}), 0);
  pass(Time::milliseconds(2'500));
  EXPECT_FALSE(has_event(0));
  pass(Time::seconds(1));
  EXPECT_EQ(take<event::RouteError>(0).status, -ETIMEDOUT);
}

TEST_F(HostConnectionsTest, AnAnswerToAnEndpointThatHasGoneIsDropped) {
  start();
  const EndpointId client = create(0);
  ASSERT_EQ(run(0, command::ResolveAddress{client, {}, address_of(1, 7000)}), 0);
  Program& program = programs_[0];
  ConnectionService& service = program.host->service();
  service.execute(program.channel, {0, command::ResolveRoute{{client}}});
  service.execute(program.channel, {1, command::Destroy{{}, 0}});
  command::Destroy destroy;
  destroy.endpoint = client;
  service.execute(program.channel, {1, destroy});
  settle();
  take<event::AddressResolved>(0);
  EXPECT_FALSE(has_event(0));
}

// The switch's table shows who is a member.
TEST_F(HostConnectionsTest, GroupsAreJoinedAndLeftWithTheirLastMember) {
  start();
  const SocketAddress group = ipv4({239, 1, 2, 3}, 0);
  std::vector<EndpointId> members;
  Lid group_lid;
  for (int i = 0; i < 2; ++i) {
    members.push_back(create(1, PortSpace::udp));
    ASSERT_EQ(run(1, command::Bind{members.back(), address_of(1, 0)}), 0);
    ASSERT_EQ(run(1, command::JoinMulticast{members.back(), group}), 0);
    const auto joined = take<event::MulticastJoined>(1);
    ASSERT_EQ(joined.status, 0);
    EXPECT_EQ(joined.address, group.gid());
    EXPECT_TRUE(joined.path.is_global);
    EXPECT_EQ(joined.path.destination.bytes[0], 0xFF);
    EXPECT_EQ(joined.path.destination.bytes[3], 0x01) << "the port space's signature";
    EXPECT_EQ(joined.path.destination.bytes[15], 3);
    group_lid = Lid(joined.path.lid);
  }
  const auto& node = subnet_->node(hosts);  // the switch
  const auto is_member = [&] { return node.forwards_multicast(group_lid, 2); };
  EXPECT_TRUE(is_member());
  ASSERT_EQ(run(1, command::LeaveMulticast{members[0], group}), 0);
  EXPECT_TRUE(is_member()) << "another endpoint is a member";
  connections_[1]->service().close_channel(programs_[1].channel);
  settle();
  EXPECT_FALSE(is_member());
}

// With the signature 0xFF10A01B, a program gives a group's GID as an address of IPv6. Any other
// address stands for a group of IP.
TEST_F(HostConnectionsTest, GroupsThatAreGivenByTheirGid) {
  start();
  const auto joined_at = [&](std::uint8_t last_of_signature) {
    SocketAddress group;
    group.family = AF_INET6;
    const std::array<std::uint8_t, 4> begin = {0xFF, 0x12, 0xA0, last_of_signature};
    for (std::size_t i = 0; i < begin.size(); ++i) group.address[i] = std::byte{begin[i]};
    group.address[15] = std::byte{7};
    const EndpointId member = create(1, PortSpace::udp);
    EXPECT_EQ(run(1, command::Bind{member, address_of(1, 0)}), 0);
    EXPECT_EQ(run(1, command::JoinMulticast{member, group}), 0);
    const auto joined = take<event::MulticastJoined>(1);
    EXPECT_EQ(joined.status, 0);
    return joined.path.destination == group.gid();
  };
  EXPECT_TRUE(joined_at(0x1B));
  EXPECT_FALSE(joined_at(0x1A));
}

TEST_F(HostConnectionsTest, AJoinThatFailedDoesNotCount) {
  start();
  const SocketAddress group = ipv4({239, 1, 2, 3}, 0);
  const EndpointId member = create(1, PortSpace::udp);
  ASSERT_EQ(run(1, command::Bind{member, address_of(1, 0)}), 0);
  subnet_->set_cut(now(), 1, true);
  ASSERT_EQ(run(1, command::JoinMulticast{member, group}), 0);
  pass(Time::seconds(4));
  EXPECT_EQ(take<event::MulticastJoined>(1).status, -ETIMEDOUT);
  subnet_->set_cut(now(), 1, false);
  pass(Time::seconds(15));
  ASSERT_EQ(run(1, command::JoinMulticast{member, group}), 0);
  const auto joined = take<event::MulticastJoined>(1);
  ASSERT_EQ(joined.status, 0);
  const auto& node = subnet_->node(hosts);  // the switch
  EXPECT_TRUE(node.forwards_multicast(Lid(joined.path.lid), 2));
  ASSERT_EQ(run(1, command::LeaveMulticast{member, group}), 0);
  EXPECT_FALSE(node.forwards_multicast(Lid(joined.path.lid), 2));
}

TEST_F(HostConnectionsTest, AGroupWithoutAManager) {
  start(false);
  const EndpointId member = create(1, PortSpace::udp);
  ASSERT_EQ(run(1, command::Bind{member, address_of(1, 0)}), 0);
  ASSERT_EQ(run(1, command::JoinMulticast{member, ipv4({239, 1, 2, 3}, 0)}), 0);
  EXPECT_EQ(take<event::MulticastJoined>(1).status, -ENETUNREACH);
}

}  // namespace
}  // namespace tulle::live
