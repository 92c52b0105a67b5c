// Tests requests for a service whose listener has just gone.

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "management/cm/manager.h"

namespace tulle::management::cm {
namespace {

using Kind = Event::Kind;
using wire::cm::Reason;
using wire::cm::ServiceStatus;

constexpr std::uint64_t service = 0x1'0106'4855;
const Gid address_a = Gid::from_ipv4(0x0A00'0001);
const Gid address_b = Gid::from_ipv4(0x0A00'0002);

// Manager `a` asks. Manager `b` listened until now.
class ServicesTest : public ::testing::Test {
 protected:
  ServicesTest() : a(settings(0xA)), b(settings(0xB)) {
    b.listen(now, service);
    leave(service);
  }
  void leave(std::uint64_t id) {
    b.stop_listening(id);
    b.expect_listener(now, id);
  }

  static Manager::Settings settings(std::uint64_t guid) {
    Manager::Settings settings;
    settings.ca_guid = guid;
    settings.random = RandomSource{guid};
    settings.return_window = window;
    settings.return_patience = patience;
    settings.held_max = 4;
    return settings;
  }
  ConnectionId connect(std::uint32_t qp = 0x11, std::uint64_t service_id = service) {
    Request request;
    request.route = {address_a, address_b, 0};
    request.service_id = service_id;
    request.qp = QpNumber{qp};
    request.path_mtu = 3;
    return a.connect(now, request);
  }
  ConnectionId ask() {
    ServiceQuestion question;
    question.route = {address_a, address_b, 0};
    question.service_id = service;
    return a.ask_service(now, question);
  }
  std::vector<Outgoing> take(Manager& from) {
    std::vector<Outgoing> out;
    while (const Outgoing* next = from.next_outgoing()) {
      out.push_back(*next);
      from.pop_outgoing();
    }
    return out;
  }
  void deliver(Manager& to, const std::vector<Outgoing>& messages) {
    for (const Outgoing& out : messages) {
      EXPECT_TRUE(to.handle(now, {out.route.remote, out.route.local, 0}, out.bytes));
    }
  }
  void ask_b() { deliver(b, take(a)); }
  void answer_a() { deliver(a, take(b)); }
  void advance_by(Time span) {
    now += span;
    b.advance(now);
  }
  std::optional<Kind> next(Manager& manager) {
    const auto event = manager.pull_event();
    if (!event) return std::nullopt;
    last = *event;
    return event->kind;
  }
  void expect_nothing_waits() {
    EXPECT_TRUE(b.next_deadline().is_never());
    EXPECT_EQ(b.unfinished_count(), 0u);
  }

  static constexpr Time window = Time::seconds(5);
  static constexpr Time patience = Time::seconds(1);
  Time now = Time::seconds(1);
  Manager a, b;
  Event last;
};

TEST_F(ServicesTest, ARequestWaitsForTheNextListener) {
  const ConnectionId asked = connect();
  advance_by(window - Time::nanoseconds(1));
  ask_b();
  EXPECT_EQ(b.next_outgoing(), nullptr);
  EXPECT_FALSE(next(b));
  EXPECT_EQ(b.unfinished_count(), 1u);
  EXPECT_EQ(b.next_deadline(), now + patience);
  advance_by(patience - Time::nanoseconds(1));
  b.listen(now, service);
  EXPECT_EQ(next(b), Kind::request);
  EXPECT_EQ(last.request.qp, QpNumber{0x11});
  EXPECT_FALSE(next(b));
  EXPECT_TRUE(b.accept(now, last.id, {}));
  answer_a();
  EXPECT_EQ(next(a), Kind::reply);
  EXPECT_EQ(last.id, asked);
  EXPECT_EQ(b.counters().held, 1u);
  EXPECT_EQ(b.counters().received, 1u);
}

// Services at other addresses have the same ID: a stranger's neither returns for this one, nor
// takes its place.
TEST_F(ServicesTest, AnotherAddressIsAnotherService) {
  const Gid other = Gid::from_ipv4(0x0A00'0003);
  b.listen(now, service);
  b.stop_listening(service);
  b.expect_listener(now, service, 1, address_b);
  b.expect_listener(now, service, 2, other);
  b.listen(now, service, other);
  b.stop_listening(service);
  connect();
  ask_b();
  EXPECT_EQ(b.counters().held, 1u);
  b.listen(now, service, other);
  EXPECT_FALSE(next(b));
  b.listen(now, service, address_b);
  EXPECT_EQ(next(b), Kind::request);
}

TEST_F(ServicesTest, ARequestForAnotherAddressDoesNotWait) {
  b.listen(now, service);
  b.stop_listening(service);
  b.expect_listener(now, service, 1, Gid::from_ipv4(0x0A00'0003));
  connect();
  ask_b();
  EXPECT_EQ(b.counters().held, 0u);
}

TEST_F(ServicesTest, AQuestionWaitsToo) {
  ask();
  ask_b();
  EXPECT_EQ(b.next_outgoing(), nullptr);
  b.listen(now, service);
  EXPECT_EQ(next(b), Kind::service_question);
  EXPECT_TRUE(b.answer_service(now, last.id, {}));
  answer_a();
  EXPECT_EQ(next(a), Kind::service_answer);
}

TEST_F(ServicesTest, NobodyComesBack) {
  connect();
  ask();
  ask_b();
  advance_by(patience - Time::nanoseconds(1));
  EXPECT_EQ(b.next_outgoing(), nullptr);
  advance_by(Time::nanoseconds(1));
  expect_nothing_waits();
  answer_a();
  EXPECT_EQ(next(a), Kind::rejected);
  EXPECT_EQ(last.reason, Reason::invalid_service_id);
  EXPECT_EQ(next(a), Kind::service_answer);
  EXPECT_EQ(last.answer.status, ServiceStatus::unsupported_service);
  connect();
  ask_b();
  EXPECT_EQ(take(b).size(), 1u);  // later requests are refused too
  expect_nothing_waits();
}

TEST_F(ServicesTest, WhoComesTooLateIsRefusedAtOnce) {
  advance_by(window);
  connect();
  ask_b();
  answer_a();
  EXPECT_EQ(next(a), Kind::rejected);
  EXPECT_EQ(last.reason, Reason::invalid_service_id);
  EXPECT_EQ(b.counters().held, 0u);
  expect_nothing_waits();
}

TEST_F(ServicesTest, AServiceThatSomebodyElseOffersHoldsNothing) {
  b.listen(now, service);
  b.listen(now, service);
  leave(service);
  connect();
  ask_b();
  EXPECT_EQ(next(b), Kind::request);
  EXPECT_EQ(b.counters().held, 0u);
}

TEST_F(ServicesTest, AServiceThatNobodyExpects) {
  b.listen(now, service);
  b.stop_listening(service);
  connect();
  ask_b();
  answer_a();
  EXPECT_EQ(next(a), Kind::rejected);
  expect_nothing_waits();
}

TEST_F(ServicesTest, ARepeatedRequestIsHeldOnce) {
  connect();
  const auto messages = take(a);
  deliver(b, messages);
  deliver(b, messages);
  EXPECT_EQ(b.counters().duplicates, 1u);
  EXPECT_EQ(b.unfinished_count(), 1u);
  b.listen(now, service);
  EXPECT_EQ(next(b), Kind::request);
  EXPECT_FALSE(next(b));
  expect_nothing_waits();
}

TEST_F(ServicesTest, WhoGivesUpWaitsNoMore) {
  const ConnectionId asked = connect();
  connect(0x12);
  ask_b();
  a.release(now, asked);
  ask_b();
  EXPECT_EQ(b.unfinished_count(), 1u);
  b.listen(now, service);
  EXPECT_EQ(next(b), Kind::request);
  EXPECT_EQ(last.request.qp, QpNumber{0x12});
  EXPECT_FALSE(next(b));
}

TEST_F(ServicesTest, OnlySoManyWait) {
  for (std::uint32_t i = 0; i < 6; ++i) connect(i);
  ask_b();
  EXPECT_EQ(take(b).size(), 2u);
  EXPECT_EQ(b.counters().held, 4u);
  b.listen(now, service);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(next(b), Kind::request);
    EXPECT_EQ(last.request.qp, QpNumber{i});
  }
  EXPECT_FALSE(next(b));
}

// An owner who expects many makes room, and others' services are expected as before.
TEST_F(ServicesTest, TheOwnerWhoExpectsMostMakesRoom) {
  constexpr std::uint32_t stranger = 1'000, other = 1'001;
  const auto is_held = [&](std::uint64_t id) {
    const std::uint64_t before = b.counters().held;
    connect(0x11, id);
    ask_b();
    return b.counters().held == before + 1;
  };
  b.expect_listener(now, service + 100, other);
  for (std::uint64_t i = 1; i < 50; ++i) b.expect_listener(now, service + i, stranger);
  b.expect_listener(now, service + 101, other);
  EXPECT_TRUE(is_held(service + 100));
  EXPECT_TRUE(is_held(service + 101));
  EXPECT_TRUE(is_held(service + 49));
  EXPECT_FALSE(is_held(service + 1));
}

TEST_F(ServicesTest, OnlySoManyServicesAreExpected) {
  for (std::uint64_t other = service + 1; other < service + 6; ++other) {
    b.expect_listener(now, other);
  }
  const auto is_held = [&](std::uint64_t id) {
    const std::uint64_t before = b.counters().held;
    connect(0x11, id);
    ask_b();
    return b.counters().held == before + 1;
  };
  EXPECT_TRUE(is_held(service + 5));
  EXPECT_TRUE(is_held(service + 3));
  EXPECT_FALSE(is_held(service + 1)) << "the first one made room";
  // Expectations that are over make room.
  advance_by(window);
  b.expect_listener(now, service + 6);
  EXPECT_TRUE(is_held(service + 6));
}

}  // namespace
}  // namespace tulle::management::cm
