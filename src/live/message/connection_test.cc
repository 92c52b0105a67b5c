#include "live/message/connection.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

namespace tulle::live {
namespace {

SocketAddress address(std::uint16_t port) {
  SocketAddress address;
  address.family = AF_INET;
  address.port = port;
  address.address[0] = std::byte{10};
  return address;
}

ConnectionParameters parameters() {
  ConnectionParameters p;
  p.private_data = {std::byte{1}, std::byte{2}, std::byte{3}};
  p.responder_resources = 1;
  p.initiator_depth = 2;
  p.flow_control = 3;
  p.retry_count = 4;
  p.rnr_retry_count = 5;
  p.srq = 6;
  p.qp_number = 0x123456;
  p.qkey = 7;
  return p;
}

ConnectionPath path() { return {Gid::from_ipv4(1), Gid::from_ipv4(2), 3, 64, 0x20, 0x12345}; }

EndpointStatus status() {
  EndpointStatus status;
  status.source = address(1);
  status.destination = address(2);
  status.has_device = status.has_path = true;
  status.device = "tulle0";
  status.port_number = 1;
  status.pkey = 0xFFFF;
  status.path_mtu_bytes = 4096;
  status.packet_lifetime = 16;
  status.path = path();
  return status;
}

QpAttributesOfStates attributes() {
  QpAttributesOfStates states;
  states.ready_to_send.sq_psn = 0x123456;
  QpAttributes& a = states.ready_to_receive;
  a.mask = qp_attribute::state | qp_attribute::path_mtu;
  a.state = 2;
  a.path = path();
  a.path_mtu_bytes = 1024;
  a.rq_psn = 0xABCDEF;
  a.rnr_retry = 7;
  return states;
}

const EndpointId one{0x1111};
const EndpointId two{0x2222};
const std::vector<std::byte> some_bytes{std::byte{9}, std::byte{8}};

// One of each alternative, in the variant's order.
std::vector<ConnectionEvent> events() {
  return {event::AddressResolved{one, status(), attributes()},
          event::AddressError{one, -ENETUNREACH},
          event::RouteResolved{one, status()},
          event::ConnectRequest{two, one, true, parameters(), status(), attributes()},
          event::ConnectResponse{one, parameters(), attributes()},
          event::Unreachable{one, -ETIMEDOUT, some_bytes},
          event::Rejected{one, 28, some_bytes},
          event::Established{one},
          event::DatagramEstablished{one, 0x777, 0x888, path(), some_bytes},
          event::Disconnected{one, -ETIMEDOUT},
          event::DeviceRemoval{one},
          event::MulticastJoined{one, 0xFFFFFF, 0x888, address(8).gid(), path(), -EHOSTUNREACH},
          event::TimewaitExit{one},
          event::Reported{ConnectionEventType::user, one, -7, 0x0123'4567'89AB'CDEF},
          event::RouteError{one, -ETIMEDOUT}};
}

std::vector<ConnectionReply> replies() {
  return {reply::Failed{EADDRINUSE}, reply::Done{}, reply::Created{one}, reply::Bound{address(5)},
          reply::Destroyed{true},    status(),      attributes()};
}

std::vector<ConnectionCommand> commands() {
  return {command::Create{PortSpace::udp, ConnectionQpType::ud},
          command::Bind{one, address(3)},
          command::Listen{one, 5},
          command::ResolveAddress{one, address(6), address(7)},
          command::ResolveRoute{{one}},
          command::Query{{one}},
          command::Connect{one, ConnectionQpType::rc, parameters()},
          command::Accept{one, ConnectionQpType::uc, parameters()},
          command::Establish{{one}},
          command::Reject{one, 24, some_bytes},
          command::NotifyEstablished{{one}},
          command::Disconnect{{one}},
          command::Destroy{one, 12},
          command::SetOption{one, 1, 2, some_bytes},
          command::GetQpAttributes{one},
          command::JoinMulticast{one, address(8)},
          command::LeaveMulticast{one, address(9)},
          command::Hold{{one}},
          command::GiveBack{true, events()},
          command::Migrate{one, 4, events()},
          command::Report{one, ConnectionEventType::user, -7, 0x0123'4567'89AB'CDEF}};
}

// The body of a message begins with its fields before the variant; `at` is the variant's position.
template <typename Message>
void expect_strict(const Message& message, std::size_t position, std::size_t at) {
  const std::vector<std::byte> whole = encode(message);
  ASSERT_EQ(whole[at], static_cast<std::byte>(position));
  Message back;
  ASSERT_TRUE(decode(whole, back));
  EXPECT_EQ(encode(back), whole);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(decode(std::span(whole).first(size), back)) << size;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back({});
  EXPECT_FALSE(decode(longer, back));
  std::vector<std::byte> unknown = whole;
  unknown[at] = std::byte{0xEE};
  EXPECT_FALSE(decode(unknown, back));
  std::vector<std::byte> older = whole;
  const std::uint16_t version = protocol_version - 1;
  std::memcpy(older.data() + offsetof(MessageHeader, version), &version, sizeof(version));
  EXPECT_FALSE(decode(older, back));
}

constexpr std::size_t body = sizeof(MessageHeader);

TEST(ConnectionMessages, EveryCommandRoundTripsAndNothingElseIsOne) {
  const auto all = commands();
  ASSERT_EQ(all.size(), std::variant_size_v<ConnectionCommand>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(all[i].index(), i);
    expect_strict(CommandMessage{0xCAFE, all[i]}, i, body + 4);
  }
}

TEST(ConnectionMessages, EveryReplyRoundTripsAndNothingElseIsOne) {
  const auto all = replies();
  ASSERT_EQ(all.size(), std::variant_size_v<ConnectionReply>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(all[i].index(), i);
    expect_strict(ReplyMessage{all[i]}, i, body);
  }
}

TEST(ConnectionMessages, EveryEventRoundTripsAndNothingElseIsOne) {
  const auto all = events();
  ASSERT_EQ(all.size(), std::variant_size_v<ConnectionEvent>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(all[i].index(), i);
    expect_strict(EventMessage{all[i]}, i, body);
  }
}

// A round trip alone would not notice a field that both directions forget.
TEST(ConnectionMessages, TheFieldsArrive) {
  CommandMessage message;
  ASSERT_TRUE(decode(encode(CommandMessage{3, command::Connect{one, {}, parameters()}}), message));
  EXPECT_EQ(message.events_taken, 3u);
  const auto& connect = std::get<command::Connect>(message.command);
  EXPECT_EQ(connect.endpoint, one);
  EXPECT_EQ(connect.parameters.private_data, parameters().private_data);
  EXPECT_EQ(connect.parameters.qp_number, 0x123456u);
  EXPECT_EQ(connect.parameters.qkey, 7u);

  ASSERT_TRUE(decode(encode(CommandMessage{3, command::Migrate{one, 4, events()}}), message));
  const auto& migrate = std::get<command::Migrate>(message.command);
  EXPECT_EQ(migrate.channel, 4u);
  ASSERT_EQ(migrate.events.size(), events().size());
  const auto& request = std::get<event::ConnectRequest>(migrate.events[3]);
  EXPECT_EQ(request.endpoint, two);
  EXPECT_EQ(request.listener, one);
  EXPECT_TRUE(request.is_datagram);
  EXPECT_EQ(request.known.device, "tulle0");
  EXPECT_EQ(request.known.path.flow_label, 0x12345u);

  ReplyMessage answer;
  ASSERT_TRUE(decode(encode(ReplyMessage{attributes()}), answer));
  const auto& states = std::get<QpAttributesOfStates>(answer.reply);
  EXPECT_EQ(states.init.mask, 0u);
  EXPECT_EQ(states.ready_to_receive.rq_psn, 0xABCDEFu);
  EXPECT_EQ(states.ready_to_send.sq_psn, 0x123456u);
  ASSERT_TRUE(decode(encode(ReplyMessage{reply::Failed{EADDRINUSE}}), answer));
  EXPECT_EQ(std::get<reply::Failed>(answer.reply).error, EADDRINUSE);
}

TEST(ConnectionMessages, OneKindIsNotAnother) {
  EventMessage event;
  ReplyMessage reply;
  CommandMessage command;
  EXPECT_FALSE(decode(encode(CommandMessage{}), event));
  EXPECT_FALSE(decode(encode(CommandMessage{}), reply));
  EXPECT_FALSE(decode(encode(EventMessage{}), command));
  EXPECT_FALSE(decode(encode(ChannelOpened{}), command));
}

TEST(ConnectionMessages, AFalseCountAllocatesNothing) {
  std::vector<std::byte> bytes = encode(CommandMessage{0, command::GiveBack{}});
  const std::uint32_t count = 0xFFFF'FFFF;
  std::memcpy(bytes.data() + bytes.size() - sizeof(count), &count, sizeof(count));
  bytes.resize(message_bytes_max, std::byte{0xFF});
  CommandMessage message;
  EXPECT_FALSE(decode(bytes, message));
  EXPECT_LT(std::get<command::GiveBack>(message.command).events.size(), 2u);
}

TEST(ConnectionMessages, ARequestCountsWithItsListener) {
  const auto all = events();
  for (const ConnectionEvent& event : all) {
    const bool is_request = std::holds_alternative<event::ConnectRequest>(event);
    EXPECT_EQ(counted_with(event), one);
    EXPECT_EQ(endpoint_of(event), is_request ? two : one);
  }
  EXPECT_EQ(type_of(all[8]), ConnectionEventType::established);
  EXPECT_EQ(type_of(all[13]), ConnectionEventType::user);
}

}  // namespace
}  // namespace tulle::live
