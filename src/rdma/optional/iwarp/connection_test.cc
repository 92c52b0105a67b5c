#include "rdma/optional/iwarp/connection.h"

#include <gtest/gtest.h>

#include <deque>

#include "rdma/optional/iwarp/protocol_test.h"

namespace tulle::transport::iwarp {
namespace {

using testing::iova;
using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendOpcode;
using Done = std::vector<std::pair<std::uint64_t, CompletionStatus>>;

struct Segment {
  wire::Tcp tcp;
  Bytes payload;
};

testing::Options numbered(std::uint32_t number, std::uint32_t peer) {
  testing::Options options;
  options.number = QpNumber(number);
  options.peer = QpNumber(peer);
  return options;
}

// Two queue pairs, between which the test carries the segments.
struct Pair {
  Pair() {
    for (End* end : {&one, &other}) {
      end->settings.acknowledgement_delay = Time::zero();
      end->connect();
    }
  }
  static std::deque<Segment> pull(End& from) {
    std::deque<Segment> out;
    for (OutgoingPacket packet; from.qp->pull(from.now, packet).packet;) {
      Segment segment{packet.tcp, {}};
      for (std::uint8_t i = 0; i < packet.piece_count; ++i) {
        segment.payload.insert(segment.payload.end(), packet.pieces[i].begin(),
                               packet.pieces[i].end());
      }
      EXPECT_EQ(segment.payload.size(), packet.payload_bytes);
      out.push_back(segment);
    }
    return out;
  }
  static void give(End& to, const Segment& segment) {
    wire::IpUdp ip;
    ip.source = testing::peer_gid;
    to.qp->handle_segment(
        to.now, segment.tcp,
        {segment.payload.data(), static_cast<std::uint32_t>(segment.payload.size())}, ip);
  }
  static void give(End& to, const std::deque<Segment>& segments) {
    for (const Segment& segment : segments) give(to, segment);
  }
  // Runs until neither end has anything to send.
  void talk() {
    for (bool moved = true; moved;) {
      const auto there = pull(one), back = pull(other);
      give(other, there);
      give(one, back);
      moved = !there.empty() || !back.empty();
    }
  }
  static Done done(End& end) {
    Done out;
    for (const auto& completion : end.completions()) {
      out.emplace_back(completion.wr_id, completion.status);
    }
    return out;
  }
  static verbs::SendRequest write_to(const End& to, std::uint64_t offset) {
    verbs::SendRequest write;
    write.opcode = SendOpcode::write;
    write.rkey = to.region.rkey();
    write.remote_address = iova + offset;
    return write;
  }

  End one{numbered(0x55, 0x77)};
  End other{numbered(0x77, 0x55)};
};

TEST(IwarpConnection, EachFpduIsASegment) {
  Pair pair;
  pair.other.post_receive(2'000);
  pair.one.post(SendOpcode::send, 700);
  const auto segments = Pair::pull(pair.one);
  ASSERT_EQ(segments.size(), 3u);
  for (const Segment& segment : segments) {
    const auto length = std::to_integer<std::uint32_t>(segment.payload[0]) << 8 |
                        std::to_integer<std::uint32_t>(segment.payload[1]);
    EXPECT_EQ(segment.payload.size(), mpa::fpdu_bytes(length));
  }
  Pair::give(pair.other, segments);
  EXPECT_EQ(Pair::done(pair.other), (Done{{1'000, CompletionStatus::success}}));
  EXPECT_EQ(Pair::done(pair.one), Done{});
  pair.talk();
  EXPECT_EQ(Pair::done(pair.one), (Done{{0, CompletionStatus::success}}));
}

TEST(IwarpConnection, WhatComesEarlyWaits) {
  Pair pair;
  pair.other.post_receive(2'000);
  pair.one.post(SendOpcode::send, 700);
  const auto segments = Pair::pull(pair.one);
  ASSERT_EQ(segments.size(), 3u);
  for (const int i : {2, 1, 2}) Pair::give(pair.other, segments[i]);
  EXPECT_EQ(Pair::done(pair.other), Done{});
  Pair::give(pair.other, segments[0]);
  EXPECT_EQ(Pair::done(pair.other), (Done{{1'000, CompletionStatus::success}}));
  EXPECT_TRUE(std::equal(pair.one.memory.begin(), pair.one.memory.begin() + 700,
                         pair.other.memory.begin() + 8'192));
  Pair::give(pair.other, segments);  // late copies
  pair.talk();
  EXPECT_EQ(Pair::done(pair.one), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(Pair::done(pair.other), Done{});
}

TEST(IwarpConnection, ReadsCross) {
  Pair pair;
  for (std::size_t i = 0; i < 600; ++i) pair.other.memory[i] = std::byte{7};
  verbs::SendRequest read = Pair::write_to(pair.other, 0);
  read.opcode = SendOpcode::read;
  pair.one.post(read, 600);
  pair.talk();
  EXPECT_EQ(Pair::done(pair.one), (Done{{0, CompletionStatus::success}}));
  EXPECT_EQ(pair.one.memory[599], std::byte{7});
}

// The TERMINATE comes with the acknowledgement of the request that it is about, and is handled
// first.
TEST(IwarpConnection, AWriteThatIsRefusedFails) {
  Pair pair;
  verbs::SendRequest bad = Pair::write_to(pair.other, 0);
  bad.rkey.value ^= 0xFF00;
  pair.one.post(bad, 8);
  pair.one.post(Pair::write_to(pair.other, 100), 8);
  pair.talk();
  EXPECT_EQ(Pair::done(pair.one),
            (Done{{0, CompletionStatus::remote_access_error}, {1, CompletionStatus::flushed}}))
      << "nothing behind it is placed, nor thought done";
  EXPECT_EQ(pair.other.memory[100], testing::Host::pattern(100));
  EXPECT_EQ(pair.one.qp->state(), QpState::error);
  EXPECT_EQ(pair.other.qp->state(), QpState::error);
  EXPECT_EQ(pair.other.raised(), (std::vector{verbs::EventType::qp_access_error}));
  EXPECT_EQ(pair.one.raised(), (std::vector{verbs::EventType::qp_fatal}));
  EXPECT_FALSE(pair.one.qp->agenda().work || pair.other.qp->agenda().work);
}

TEST(IwarpConnection, NothingBehindAnErrorIsAcknowledged) {
  Pair pair;
  verbs::SendRequest bad = Pair::write_to(pair.other, 0);
  bad.rkey.value ^= 0xFF00;
  pair.one.post(bad, 8);
  Pair::give(pair.other, Pair::pull(pair.one));
  EXPECT_FALSE(Pair::pull(pair.other).empty()) << "a TERMINATE, which is lost";
  pair.one.post(Pair::write_to(pair.other, 100), 8);
  Pair::give(pair.other, Pair::pull(pair.one));
  Pair::give(pair.one, Pair::pull(pair.other));
  for (const auto& [wr_id, status] : Pair::done(pair.one)) {
    EXPECT_FALSE(wr_id == 1 && status == CompletionStatus::success) << "it was never placed";
  }
  // The TERMINATE is sent again.
  pair.other.pass(Time::seconds(2));
  pair.talk();
  EXPECT_EQ(pair.one.qp->state(), QpState::error);
  const Done last = Pair::done(pair.one);
  ASSERT_FALSE(last.empty());
  EXPECT_EQ(last.back(), (Done::value_type{1, CompletionStatus::flushed}));
}

TEST(IwarpConnection, WhoIsEndedEndsThePeer) {
  Pair pair;
  pair.other.post_receive(8);
  pair.one.post(SendOpcode::send, 8);
  pair.one.post_receive(8);
  pair.other.must(pair.other.step({}, QpState::error));
  const auto reset = Pair::pull(pair.other);
  ASSERT_EQ(reset.size(), 1u);
  EXPECT_TRUE(reset[0].tcp.rst);
  EXPECT_TRUE(Pair::pull(pair.other).empty());
  const auto sent = Pair::pull(pair.one);
  Pair::give(pair.one, reset);
  EXPECT_EQ(Pair::done(pair.one), (Done{{0, CompletionStatus::retry_exceeded_error},
                                        {1'000, CompletionStatus::flushed}}));
  Pair::give(pair.other, sent);
  EXPECT_EQ(Pair::pull(pair.other).size(), 1u) << "should the first have been lost";
  EXPECT_TRUE(Pair::pull(pair.one).empty());
}

TEST(IwarpConnection, AnAnswerOutlivesItsKey) {
  Pair pair;
  verbs::MemoryWindow window;
  window.pd = &pair.other.pd;
  window.type = verbs::WindowType::type2;
  pair.other.environment.keys.add(window);
  verbs::SendRequest bind;
  bind.opcode = SendOpcode::bind_window;
  bind.window = &window;
  bind.window_region = &pair.other.region;
  bind.window_address = iova;
  bind.window_length = 64;
  bind.window_access = verbs::Access::remote_read;
  bind.window_rkey = RemoteKey{window.key + 1};
  pair.other.post(bind, 0);
  EXPECT_TRUE(Pair::pull(pair.other).empty());
  verbs::SendRequest read;
  read.opcode = SendOpcode::read;
  read.rkey = bind.window_rkey;
  read.remote_address = iova;
  pair.one.post(read, 8);
  Pair::give(pair.other, Pair::pull(pair.one));
  const auto answer = Pair::pull(pair.other);
  ASSERT_EQ(answer.size(), 1u);
  verbs::SendRequest invalidate;
  invalidate.opcode = SendOpcode::local_invalidate;
  invalidate.invalidate_rkey = bind.window_rkey;
  pair.other.post(invalidate, 0);
  Pair::pull(pair.other);
  ASSERT_EQ(window.region, nullptr);
  // The acknowledgement of the answer is lost, and the answer is sent again.
  pair.other.pass(Time::seconds(2));
  const auto again = Pair::pull(pair.other);
  ASSERT_FALSE(again.empty());
  EXPECT_FALSE(again[0].tcp.rst);
  EXPECT_EQ(again[0].payload, answer[0].payload);
}

TEST(IwarpConnection, NobodyAnswers) {
  Pair pair;
  pair.one.post(SendOpcode::send, 8);
  for (int i = 0; i < 100 && pair.one.qp->state() != QpState::error; ++i) {
    Pair::pull(pair.one);
    pair.one.now = std::max(pair.one.now, pair.one.qp->agenda().deadline);
    pair.one.qp->handle_deadline(pair.one.now);
  }
  EXPECT_EQ(Pair::done(pair.one), (Done{{0, CompletionStatus::retry_exceeded_error}}));
  EXPECT_EQ(pair.one.raised(), (std::vector{verbs::EventType::qp_fatal}));
}

}  // namespace
}  // namespace tulle::transport::iwarp
