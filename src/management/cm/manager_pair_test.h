#pragma once

// Two connection managers, for tests that carry the messages between them.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "management/cm/manager.h"

namespace tulle::management::cm::testing {

using Kind = Event::Kind;
using wire::cm::Attribute;
using wire::cm::Reason;

inline constexpr std::uint64_t service = 0x1'0106'1C06;
inline const Gid address_a = Gid::from_ipv4(0x0A00'0001);
inline const Gid address_b = Gid::from_ipv4(0x0A00'0002);

inline std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline Attribute attribute_of(const Outgoing& out) {
  wire::MadHeader header;
  std::memcpy(&header, out.bytes.data(), sizeof(header));
  return static_cast<Attribute>(std::uint16_t{header.attribute_id});
}

template <typename Message>
Message message_of(const Outgoing& out) {
  wire::cm::Mad<Message> mad;
  std::memcpy(&mad, out.bytes.data(), sizeof(mad));
  EXPECT_EQ(attribute_of(out), Message::attribute);
  return mad.message;
}

// Two managers. The test carries the messages between them.
class ManagerPair : public ::testing::Test {
 protected:
  ManagerPair() : a(settings(0xA)), b(settings(0xB)) { b.listen(now, service); }

  static Manager::Settings settings(std::uint64_t guid) {
    Manager::Settings settings;
    settings.ca_guid = guid;
    settings.random = RandomSource{guid};
    settings.retries_max = 3;
    return settings;
  }
  static Request request(std::uint32_t qp = 0x11) {
    Request request;
    request.route = {address_a, address_b, 0};
    request.service_id = service;
    request.qp = QpNumber{qp};
    request.starting_psn = Psn{100};
    request.responder_resources = 3;
    request.initiator_depth = 5;
    request.retry_count = 7;
    request.rnr_retry_count = 6;
    request.path_mtu = 3;
    request.packet_lifetime = 16;
    request.ack_timeout = 17;
    request.private_data = PrivateData(bytes_of("question"));
    return request;
  }
  static Reply reply(std::uint32_t qp = 0x22) {
    Reply reply;
    reply.qp = QpNumber{qp};
    reply.starting_psn = Psn{200};
    reply.responder_resources = 2;
    reply.initiator_depth = 1;
    reply.rnr_retry_count = 4;
    reply.target_ack_delay = 15;
    reply.private_data = PrivateData(bytes_of("answer"));
    return reply;
  }

  // Takes all messages that a manager has to send, without delivering them.
  static std::vector<Outgoing> take(Manager& from) {
    std::vector<Outgoing> out;
    while (const Outgoing* next = from.next_outgoing()) {
      out.push_back(*next);
      from.pop_outgoing();
    }
    return out;
  }
  Outgoing only(Manager& from) {
    const auto out = take(from);
    EXPECT_EQ(out.size(), 1u);
    return out.empty() ? Outgoing{} : out.front();
  }
  void deliver(Manager& to, const Outgoing& out) {
    EXPECT_TRUE(to.handle(now, {out.route.remote, out.route.local, 0}, out.bytes));
  }
  void exchange() {
    for (bool more = true; more;) {
      more = false;
      for (const Outgoing& out : take(a)) more = true, deliver(b, out);
      for (const Outgoing& out : take(b)) more = true, deliver(a, out);
    }
  }
  Event event_of(Manager& manager, Kind kind) {
    const auto event = manager.pull_event();
    EXPECT_TRUE(event.has_value());
    if (!event) return {};
    EXPECT_EQ(event->kind, kind);
    return *event;
  }
  void expect_silence() {
    EXPECT_FALSE(a.pull_event());
    EXPECT_FALSE(b.pull_event());
  }
  void advance_by(Time span) {
    now += span;
    a.advance(now);
    b.advance(now);
  }
  void expect_empty() {
    EXPECT_EQ(a.connection_count(), 0u);
    EXPECT_EQ(b.connection_count(), 0u);
    EXPECT_EQ(a.index_size(), 0u);
    EXPECT_EQ(b.index_size(), 0u);
    EXPECT_TRUE(a.next_deadline().is_never());
    EXPECT_TRUE(b.next_deadline().is_never());
  }
  void connect() {
    asked = a.connect(now, request());
    exchange();
    answered = event_of(b, Kind::request).id;
    ASSERT_TRUE(b.accept(now, answered, reply()));
    exchange();
    event_of(a, Kind::reply);
    ASSERT_TRUE(a.establish(now, asked, {}));
    exchange();
    event_of(b, Kind::established);
  }

  Time now = Time::seconds(1);
  Manager a, b;
  ConnectionId asked, answered;
  const Time long_enough = Time::seconds(100);
};

}  // namespace tulle::management::cm::testing
