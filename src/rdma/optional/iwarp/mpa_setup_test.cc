#include "rdma/optional/iwarp/mpa_setup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "rdma/wire/tcp_streams_test.h"

namespace tulle::transport::iwarp {
namespace {

namespace mpa = wire::mpa;
using Bytes = std::vector<std::byte>;
using Role = MpaSetup::Role;
using State = MpaSetup::State;
using wire::rdmap::Opcode;

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes sent(const MpaSetup& setup) { return {setup.to_send().begin(), setup.to_send().end()}; }

// Carries a request and its reply.
void talk(MpaSetup& initiator, MpaSetup& responder) {
  const Bytes request = sent(initiator);
  EXPECT_EQ(responder.receive(request), request.size());
  const Bytes reply = sent(responder);
  EXPECT_EQ(initiator.receive(reply), reply.size());
}

TEST(IwarpSetup, BothEndsAgree) {
  const Bytes hello = bytes_of("hello"), world = bytes_of("world");
  for (const bool enhanced : {true, false}) {
    for (const auto& [one, other] :
         {std::pair{true, false}, std::pair{false, true}, std::pair{false, false}}) {
      MpaSetup initiator(Role::initiator,
                         {.crc = one, .enhanced = enhanced, .private_data = hello});
      MpaSetup responder(Role::responder, {.crc = other, .private_data = world});
      talk(initiator, responder);
      ASSERT_EQ(initiator.state(), State::established);
      ASSERT_EQ(responder.state(), State::established);
      EXPECT_EQ(initiator.outcome().crc, one || other);
      EXPECT_EQ(responder.outcome().crc, one || other);
      EXPECT_FALSE(initiator.outcome().ready || responder.outcome().ready);
      EXPECT_TRUE(std::equal(hello.begin(), hello.end(), responder.peer_private_data().begin(),
                             responder.peer_private_data().end()));
      EXPECT_TRUE(std::equal(world.begin(), world.end(), initiator.peer_private_data().begin(),
                             initiator.peer_private_data().end()));
    }
  }
}

TEST(IwarpSetup, NoMoreReadsThanTheOtherEndTakes) {
  MpaSetup initiator(Role::initiator, {.inbound_reads = 3, .outbound_reads = 30});
  MpaSetup responder(Role::responder, {.inbound_reads = 20, .outbound_reads = 10});
  talk(initiator, responder);
  EXPECT_EQ(initiator.outcome().inbound_reads, 3u);
  EXPECT_EQ(initiator.outcome().outbound_reads, 20u);
  EXPECT_EQ(responder.outcome().inbound_reads, 20u);
  EXPECT_EQ(responder.outcome().outbound_reads, 3u);
}

TEST(IwarpSetup, AResponderThatWantsMoreReadsIsRefused) {
  MpaSetup initiator(Role::initiator, {.inbound_reads = 3});
  mpa::StartFrame reply{true, {.enhanced = true}, 2, mpa::enhanced_setup_bytes};
  Bytes bytes(mpa::start_frame_bytes + mpa::enhanced_setup_bytes);
  mpa::encode(reply, std::span(bytes).first<mpa::start_frame_bytes>());
  mpa::EnhancedSetup setup;
  setup.outbound_reads = 4;
  mpa::encode(setup, std::span(bytes).last<mpa::enhanced_setup_bytes>());
  initiator.receive(bytes);
  EXPECT_EQ(initiator.state(), State::refused);
  EXPECT_EQ(initiator.error(), wire::rdmap::error::insufficient_reads);
}

TEST(IwarpSetup, ReadyIsSaidInAWayThatBothKnow) {
  struct Case {
    bool write, read, other_write, other_read;
    std::optional<Opcode> ready;
  };
  for (const Case& c : {Case{true, true, true, true, Opcode::write},
                        Case{false, true, true, true, Opcode::read_request},
                        Case{true, true, false, true, Opcode::read_request},
                        Case{true, false, false, true, std::nullopt}}) {
    MpaSetup initiator(Role::initiator,
                       {.peer_to_peer = true, .ready_by_write = c.write, .ready_by_read = c.read});
    MpaSetup responder(Role::responder,
                       {.ready_by_write = c.other_write, .ready_by_read = c.other_read});
    talk(initiator, responder);
    EXPECT_EQ(initiator.state(), c.ready ? State::established : State::refused);
    EXPECT_EQ(responder.state(), initiator.state());
    if (!c.ready) continue;
    EXPECT_EQ(initiator.outcome().ready, c.ready);
    EXPECT_EQ(responder.outcome().ready, c.ready);
  }
}

Bytes written(const mpa::StartFrame& frame) {
  Bytes bytes(mpa::start_frame_bytes);
  mpa::encode(frame, std::span(bytes).first<mpa::start_frame_bytes>());
  return bytes;
}

template <typename Change>
Bytes request_with(Change change) {
  mpa::StartFrame frame{false, {}, 1, 0};
  change(frame);
  return written(frame);
}

TEST(IwarpSetup, WhatIsNoRequestIsRefused) {
  const auto error_of = [](const Bytes& bytes) {
    MpaSetup responder(Role::responder, {});
    responder.receive(bytes);
    EXPECT_EQ(responder.state(), State::refused);
    return responder.error();
  };
  const auto invalid = wire::rdmap::error::invalid_start_frame;
  EXPECT_EQ(error_of(Bytes(20, std::byte{'x'})), invalid);
  EXPECT_EQ(error_of(request_with([](auto& f) { f.is_reply = true; })), invalid);
  EXPECT_EQ(error_of(request_with([](auto& f) { f.revision = 3; })), invalid);
  EXPECT_EQ(error_of(request_with([](auto& f) { f.flags.enhanced = true; })), invalid);
  EXPECT_EQ(error_of(request_with([](auto& f) { f.private_data_bytes = 513; })), invalid);
  EXPECT_EQ(error_of(request_with([](auto& f) { f.flags.markers = true; })),
            wire::rdmap::error::marker_and_length);
}

TEST(IwarpSetup, WhoAsksForMarkersIsToldNo) {
  MpaSetup responder(Role::responder, {});
  responder.receive(request_with([](auto& f) { f.flags.markers = true; }));
  const Bytes reply = sent(responder);
  MpaSetup initiator(Role::initiator, {});
  initiator.receive(reply);
  EXPECT_EQ(initiator.state(), State::refused);
  EXPECT_FALSE(initiator.error().has_value());
}

// With the offers that siw's frames show, these ends must send what siw sent. They must also accept
// it, byte by byte since a stream may come so, and up to where the FPDUs begin.
void speak_as(const wire::IwarpConnection& connection) {
  const std::array<std::span<const std::byte>, 2> streams = {connection.request.bytes,
                                                             connection.reply.bytes};
  std::array<MpaSetup::Offer, 2> offers;
  std::array<std::size_t, 2> lengths{};
  for (int i = 0; i < 2; ++i) {
    const auto frame = mpa::decode_start(streams[i].first<mpa::start_frame_bytes>());
    ASSERT_TRUE(frame.has_value());
    lengths[i] = mpa::start_frame_bytes + frame->private_data_bytes;
    const auto data = streams[i].first(lengths[i]).subspan(mpa::start_frame_bytes);
    const auto setup = mpa::decode_enhanced(data.first<mpa::enhanced_setup_bytes>());
    offers[i] = {frame->flags.crc,    true,
                 setup.inbound_reads, setup.outbound_reads,
                 setup.peer_to_peer,  setup.ready_by_write,
                 setup.ready_by_read, data.subspan(mpa::enhanced_setup_bytes)};
  }
  MpaSetup initiator(Role::initiator, offers[0]);
  MpaSetup responder(Role::responder, offers[1]);
  const auto same = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  EXPECT_TRUE(same(initiator.to_send(), streams[0].first(lengths[0])));
  for (std::size_t i = 0; responder.state() == State::waits; ++i) {
    ASSERT_EQ(responder.receive(streams[0].subspan(i, 1)), 1u);
  }
  EXPECT_TRUE(same(responder.to_send(), streams[1].first(lengths[1])));
  EXPECT_EQ(initiator.receive(streams[1]), lengths[1]) << "FPDUs are left where they are";
  EXPECT_EQ(initiator.state(), State::established);
  EXPECT_EQ(responder.state(), State::established);
  EXPECT_EQ(initiator.outcome().ready, responder.outcome().ready);
}

TEST(IwarpSetup, SpeaksAsLinuxDoes) {
  int connections = 0;
  for (const auto& file : wire::iwarp_captures()) {
    SCOPED_TRACE(file.filename());
    for (const auto& connection : wire::iwarp_connections_of(file)) {
      speak_as(connection);
      ++connections;
    }
  }
  EXPECT_GE(connections, 19);
}

}  // namespace
}  // namespace tulle::transport::iwarp
