// Tests of messages that do not come from a connection's peer, and of many requests.

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "management/cm/manager.h"

namespace tulle::management::cm {
namespace {

using Kind = Event::Kind;

constexpr std::uint64_t service = 0x1'0106'1C06;
const Gid address_a = Gid::from_ipv4(0x0A00'0001);
const Gid address_b = Gid::from_ipv4(0x0A00'0002);
const Gid second_address_b = Gid::from_ipv4(0x0A00'0003);
const Gid stranger = Gid::from_ipv4(0x0A00'0063);

// Two managers. The test carries the messages between them, and forges some.
class ManagerStrangersTest : public ::testing::Test {
 protected:
  ManagerStrangersTest() : a(settings(0xA)), b(settings(0xB)) { b.listen(now, service); }

  static Manager::Settings settings(std::uint64_t guid) {
    Manager::Settings settings;
    settings.ca_guid = guid;
    settings.random = RandomSource{guid};
    settings.connections_max = 24;
    settings.requested_max = 8;
    return settings;
  }
  static Request request(std::uint32_t qp) {
    Request request;
    request.route = {address_a, address_b, 0};
    request.service_id = service;
    request.qp = QpNumber{qp};
    request.path_mtu = 3;
    return request;
  }
  static Reply reply(std::uint32_t qp) {
    Reply reply;
    reply.qp = QpNumber{qp};
    return reply;
  }
  Outgoing only(Manager& from) {
    EXPECT_NE(from.next_outgoing(), nullptr);
    const Outgoing out = from.next_outgoing() != nullptr ? *from.next_outgoing() : Outgoing{};
    if (from.next_outgoing() != nullptr) from.pop_outgoing();
    EXPECT_EQ(from.next_outgoing(), nullptr);
    return out;
  }
  void deliver(Manager& to, const Outgoing& out, const Gid& from) {
    to.handle(now, {out.route.remote, from, 0}, out.bytes);
  }
  // Carries all messages, with each manager's own address as their source.
  void exchange() {
    for (bool more = true; more;) {
      more = false;
      while (const Outgoing* next = a.next_outgoing()) {
        const Outgoing out = *next;
        a.pop_outgoing();
        more = true;
        deliver(b, out, out.route.local);
      }
      while (const Outgoing* next = b.next_outgoing()) {
        const Outgoing out = *next;
        b.pop_outgoing();
        more = true;
        deliver(a, out, out.route.local);
      }
    }
  }
  // Takes the next event, which must be of this kind.
  Event event_of(Manager& manager, Kind kind) {
    const auto event = manager.pull_event();
    EXPECT_TRUE(event.has_value());
    if (!event) return {};
    EXPECT_EQ(event->kind, kind);
    return *event;
  }
  // Carries a REQ, and returns the REP that answers it.
  Outgoing ask() {
    asked = a.connect(now, request(0x11));
    deliver(b, only(a), address_a);
    answered = event_of(b, Kind::request).id;
    EXPECT_TRUE(b.accept(now, answered, reply(0x22)));
    return only(b);
  }
  void establish() {
    deliver(a, ask(), address_b);
    event_of(a, Kind::reply);
    EXPECT_TRUE(a.establish(now, asked, {}));
    exchange();
    event_of(b, Kind::established);
  }
  void end() {
    a.release(now, asked);
    exchange();
    b.release(now, answered);
    for (int i = 0; i < 200; ++i) {
      now += Time::seconds(10);
      a.advance(now);
      b.advance(now);
      exchange();
      while (a.pull_event() || b.pull_event()) {
      }
    }
    EXPECT_EQ(a.connection_count(), 0u);
    EXPECT_EQ(b.connection_count(), 0u);
    EXPECT_EQ(a.index_size(), 0u);
    EXPECT_EQ(b.index_size(), 0u);
  }
  // Changes the transaction ID of a message, so that it proves nothing.
  static Outgoing with_another_transaction(Outgoing out) {
    wire::MadHeader header;
    std::memcpy(&header, out.bytes.data(), sizeof(header));
    header.transaction_id = header.transaction_id + 1;
    std::memcpy(out.bytes.data(), &header, sizeof(header));
    return out;
  }

  Time now = Time::seconds(1);
  Manager a, b;
  ConnectionId asked, answered;
};

// A host with two addresses answers from the other one. A request from that address, of the same
// queue pair, then finds the connection, also when it is over.
TEST_F(ManagerStrangersTest, APeerMayAnswerFromAnotherAddress) {
  const Outgoing answer = ask();
  deliver(a, answer, second_address_b);
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  exchange();
  event_of(b, Kind::established);
  // The peer goes on with that address: here with the disconnection.
  ASSERT_TRUE(b.disconnect(now, answered, {}));
  Outgoing wish = only(b);
  wire::MadHeader header;
  std::memcpy(&header, wish.bytes.data(), sizeof(header));
  header.transaction_id = 0x5555;  // a new transaction, which proves nothing
  std::memcpy(wish.bytes.data(), &header, sizeof(header));
  deliver(a, wish, second_address_b);
  event_of(a, Kind::disconnect_request);
  end();

  Manager other(settings(0xB));
  a.listen(now, service);
  Request again = request(0x22);
  again.route = {second_address_b, address_a, 0};
  other.connect(now, again);
  deliver(a, only(other), second_address_b);
  event_of(a, Kind::request);
}

TEST_F(ManagerStrangersTest, ARequestFromTheAddressOfAnEarlierAnswerFindsNothingDangling) {
  deliver(a, ask(), second_address_b);
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.reject(now, asked, wire::cm::Reason::consumer, {}));
  for (int i = 0; i < 200; ++i) a.advance(now += Time::seconds(10));
  ASSERT_EQ(a.connection_count(), 0u);
  EXPECT_EQ(a.index_size(), 0u);
  while (a.next_outgoing() != nullptr) a.pop_outgoing();

  Manager other(settings(0xB));
  a.listen(now, service);
  for (const Gid& from : {address_b, second_address_b}) {
    Request again = request(0x22);
    again.route = {from, address_a, 0};
    other.connect(now, again);
    deliver(a, only(other), from);
    event_of(a, Kind::request);
  }
}

TEST_F(ManagerStrangersTest, AStrangersAnswerIsNoAnswer) {
  const Outgoing answer = ask();
  deliver(a, with_another_transaction(answer), stranger);
  EXPECT_FALSE(a.pull_event());
  EXPECT_EQ(a.counters().unknown, 1u);
  while (a.next_outgoing() != nullptr) a.pop_outgoing();  // a REJ to the stranger
  deliver(a, answer, address_b);
  event_of(a, Kind::reply);
}

TEST_F(ManagerStrangersTest, AStrangerEndsNoConnection) {
  establish();
  ASSERT_TRUE(b.disconnect(now, answered, {}));
  const Outgoing disconnect = only(b);
  deliver(a, with_another_transaction(disconnect), stranger);
  EXPECT_FALSE(a.pull_event());
  while (a.next_outgoing() != nullptr) a.pop_outgoing();

  wire::cm::Reject reject;
  reject.local_id = answered.value;
  reject.remote_id = asked.value;
  const wire::cm::Mad<wire::cm::Reject> mad{wire::cm::header_of(wire::cm::Reject::attribute, 1),
                                            reject};
  Outgoing forged;
  forged.route = {stranger, address_a, 0};
  std::memcpy(forged.bytes.data(), &mad, sizeof(mad));
  deliver(a, forged, stranger);
  EXPECT_FALSE(a.pull_event());
  deliver(a, forged, address_b);
  event_of(a, Kind::rejected);
}

// The IDs of a stream that somebody can continue would let a stranger name other connections.
TEST_F(ManagerStrangersTest, IdsDoNotFollowFromOneAnother) {
  std::set<std::uint32_t> differences;
  ConnectionId last;
  for (std::uint32_t qp = 0; qp < 24; ++qp) {
    const ConnectionId id = a.connect(now, request(qp));
    differences.insert(id.value ^ last.value);
    last = id;
  }
  EXPECT_EQ(differences.size(), 24u);
  for (const std::uint32_t difference : differences) EXPECT_GT(difference, 0xFFFFu);
}

// Requests fill no more than their part, and the program of this host connects all the same.
TEST_F(ManagerStrangersTest, ManyRequestsLeaveRoomForTheHostsOwn) {
  Manager crowd([] {
    auto many = settings(0xC);
    many.connections_max = 1'000;
    return many;
  }());
  std::size_t unreachable = 0;
  for (std::uint32_t qp = 1; qp <= 500; ++qp) {
    Request next = request(qp);
    next.route.local = stranger;
    crowd.connect(now, next);
    deliver(b, only(crowd), stranger);
    while (const auto event = b.pull_event()) {
      if (event->kind == Kind::unreachable) ++unreachable;
      if (event->kind != Kind::request) continue;
      EXPECT_TRUE(b.accept(now, event->id, reply(qp)));
    }
    while (b.next_outgoing() != nullptr) b.pop_outgoing();
    EXPECT_LE(b.connection_count(), 8u);
  }
  EXPECT_EQ(unreachable, 492u) << "the oldest one goes each time";
  for (std::uint32_t qp = 0; qp < 16; ++qp) {
    EXPECT_NE(b.connect(now, request(0x1000 + qp)), ConnectionId{});
  }
  EXPECT_EQ(b.connect(now, request(0x2000)), ConnectionId{});
  while (b.next_outgoing() != nullptr) b.pop_outgoing();
  // An honest peer is answered among them, in the place of the oldest request.
  asked = a.connect(now, request(0x11));
  deliver(b, only(a), address_a);
  event_of(b, Kind::unreachable);
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply(0x22)));
  deliver(a, only(b), address_b);
  event_of(a, Kind::reply);
}

// A forger could otherwise have this host send much more to somebody than it sends itself.
TEST_F(ManagerStrangersTest, PeersThatConfirmNothingGetLittleThatTheyDoNotAskFor) {
  Manager crowd([] {
    auto many = settings(0xC);
    many.connections_max = many.requested_max = 1'000;
    return many;
  }());
  Manager victim([] {
    auto many = settings(0xD);
    many.connections_max = many.requested_max = 1'000;
    return many;
  }());
  victim.listen(now, service);
  constexpr std::uint32_t requests = 400;
  std::vector<ConnectionId> accepted;
  accepted.reserve(requests);
  for (std::uint32_t i = 1; i <= requests; ++i) {
    const Gid from = Gid::from_ipv4(0x0B00'0000 + i);
    Request next = request(i);
    next.route.local = from;
    crowd.connect(now, next);
    deliver(victim, only(crowd), from);
    accepted.push_back(event_of(victim, Kind::request).id);
    ASSERT_TRUE(victim.accept(now, accepted.back(), reply(i)));
    only(victim);
  }
  // Some are given up by the program, the others by the manager, after many repetitions.
  for (std::uint32_t i = 0; i < requests / 2; ++i) victim.release(now, accepted[i]);
  const Time began = now;
  std::uint32_t sent = 0;
  std::uint32_t unreachable = 0;
  while (victim.connection_count() > 0) {
    while (victim.next_outgoing() != nullptr) {
      victim.pop_outgoing();
      ++sent;
    }
    while (const auto event = victim.pull_event()) unreachable += event->kind == Kind::unreachable;
    now += Time::milliseconds(500);
    victim.advance(now);
    ASSERT_LT(now, began + Time::seconds(10'000));
  }
  const auto seconds = static_cast<std::uint32_t>((now - began).to_nanoseconds() / 1'000'000'000);
  EXPECT_EQ(unreachable, requests / 2);
  EXPECT_GE(sent, UnaskedMessages::at_once_max);
  EXPECT_LE(sent, UnaskedMessages::at_once_max + seconds);

  // A host that has confirmed one connection is told of others as often as is needed.
  victim.listen(now, service);
  asked = a.connect(now, request(0x11));
  deliver(victim, only(a), address_a);
  answered = event_of(victim, Kind::request).id;
  ASSERT_TRUE(victim.accept(now, answered, reply(0x22)));
  deliver(a, only(victim), address_b);
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  deliver(victim, only(a), address_a);
  event_of(victim, Kind::established);
  a.connect(now, request(0x12));
  deliver(victim, only(a), address_a);
  ASSERT_TRUE(victim.accept(now, event_of(victim, Kind::request).id, reply(0x23)));
  only(victim);
  for (int i = 0; i < 15; ++i) {
    now += Time::seconds(5);
    victim.advance(now);
    only(victim);
  }
}

// Requests that wait for a program are not given up, since the program knows of them.
TEST_F(ManagerStrangersTest, RequestsThatWaitForAProgramStay) {
  Manager crowd([] {
    auto many = settings(0xC);
    many.connections_max = 1'000;
    return many;
  }());
  for (std::uint32_t qp = 1; qp <= 20; ++qp) {
    Request next = request(qp);
    next.route.local = stranger;
    crowd.connect(now, next);
    deliver(b, only(crowd), stranger);
  }
  std::size_t requests = 0;
  while (const auto event = b.pull_event()) {
    EXPECT_EQ(event->kind, Kind::request);
    ++requests;
  }
  EXPECT_EQ(requests, 8u);
}

// A stranger chooses how long its records last, and fills the host's clock with connections that
// never end. What only remembers old messages must still make room, for requests and for programs.
TEST_F(ManagerStrangersTest, OldRecordsMakeRoomBehindAnyNumberOfBusyOnes) {
  constexpr std::uint32_t busy = 80, refused = 40;
  Manager::Settings wide = settings(0xC);
  wide.connections_max = wide.requested_max = busy + refused;
  Manager host(wide);
  host.listen(now, service);
  wide.ca_guid = 0xD;
  wide.connections_max = 1'000;
  Manager peer(wide);
  const auto carry = [&](Manager& from, Manager& to, const Gid& source) {
    while (const Outgoing* next = from.next_outgoing()) {
      const Outgoing out = *next;
      from.pop_outgoing();
      deliver(to, out, source);
    }
  };
  const auto exchange_both = [&] {
    carry(peer, host, address_a);
    carry(host, peer, address_b);
  };
  for (std::uint32_t i = 0; i < busy; ++i) {
    const ConnectionId own = peer.connect(now, request(0x1000 + i));
    exchange_both();
    ASSERT_TRUE(host.accept(now, event_of(host, Kind::request).id, reply(0x2000 + i)));
    exchange_both();
    event_of(peer, Kind::reply);
    ASSERT_TRUE(peer.establish(now, own, {}));
    exchange_both();
    event_of(host, Kind::established);
  }
  for (std::uint32_t i = 0; i < refused; ++i) {
    Request lasting = request(0x3000 + i);
    lasting.ack_timeout = 31;
    peer.connect(now, lasting);
    exchange_both();
    ASSERT_TRUE(host.reject(now, event_of(host, Kind::request).id, wire::cm::Reason::consumer, {}));
    exchange_both();
    event_of(peer, Kind::rejected);
  }
  // The host asks the peer, which seems to have forgotten its connections, and gets no answer.
  for (std::uint32_t i = 0; i < busy; ++i) {
    peer.connect(now, request(0x1000 + i));
    carry(peer, host, address_a);
  }
  while (host.next_outgoing() != nullptr) host.pop_outgoing();
  ASSERT_EQ(host.connection_count(), busy + refused);
  for (std::uint32_t i = 0; i < refused / 2; ++i) {
    while (peer.next_outgoing() != nullptr) peer.pop_outgoing();
    peer.connect(now, request(0x5000 + i));
    deliver(host, only(peer), stranger);
    event_of(host, Kind::request);
    ASSERT_NE(host.connect(now, request(0x6000 + i)), ConnectionId{}) << i;
  }
}

// The peer chooses the lifetime of its packets.
TEST_F(ManagerStrangersTest, TimeWaitIsBounded) {
  Request lasting = request(0x11);
  lasting.ack_timeout = 31;
  asked = a.connect(now, lasting);
  exchange();
  answered = event_of(b, Kind::request).id;
  ASSERT_TRUE(b.accept(now, answered, reply(0x22)));
  exchange();
  event_of(a, Kind::reply);
  ASSERT_TRUE(a.establish(now, asked, {}));
  exchange();
  event_of(b, Kind::established);
  b.release(now, answered);
  exchange();
  event_of(a, Kind::disconnect_request);
  a.release(now, asked);
  exchange();
  ASSERT_EQ(b.connection_count(), 1u);
  now += Time::seconds(9);
  b.advance(now);
  EXPECT_EQ(b.connection_count(), 0u);
}

}  // namespace
}  // namespace tulle::management::cm
