#include "rdma/optional/tcp/connection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "rdma/optional/tcp/pair_test.h"

namespace tulle::transport::tcp {
namespace {

using testing::first_a;
using testing::Pair;

constexpr std::uint32_t mss = 1'000;

Settings settings() {
  Settings settings;
  settings.mss_bytes = mss;
  settings.receive_buffer_bytes = 200'000;
  settings.send_buffer_bytes = 400'000;
  return settings;
}

constexpr Time soon = Time::seconds(300);

std::uint64_t arrived(const Pair::End& end) {
  return static_cast<std::uint64_t>(std::count(end.got.begin(), end.got.end(), true));
}

// Loses the data segments from `a` with these numbers, counted from 1.
Pair::Path loses(std::vector<std::uint64_t> numbers) {
  auto count = std::make_shared<std::uint64_t>(0);
  return [numbers = std::move(numbers), count](bool from_a, const Segment& segment, std::uint64_t) {
    Pair::Fate fate;
    if (!from_a || segment.bytes == 0) return fate;
    ++*count;
    if (std::find(numbers.begin(), numbers.end(), *count) != numbers.end()) fate.copies = 0;
    return fate;
  };
}

TEST(TcpConnection, ABulkIsCutIntoFullSegmentsAndArrivesInOrder) {
  Pair pair(settings());
  pair.a.connection.append(100 * mss + 1);
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), 100u * mss + 1);
  EXPECT_EQ(pair.a.connection.acknowledged(), 100u * mss + 1);
  ASSERT_EQ(pair.a.sent.size(), 101u);
  EXPECT_EQ(pair.a.sent[0].header.sequence, first_a);
  EXPECT_EQ(pair.a.sent[99].bytes, mss);
  EXPECT_FALSE(pair.a.sent[99].header.psh);
  EXPECT_EQ(pair.a.sent[100].bytes, 1u);
  EXPECT_TRUE(pair.a.sent[100].header.psh);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 0u);
  EXPECT_EQ(pair.a.counters.ack_timeouts, 0u);
}

TEST(TcpConnection, TheFirstRoundTripHasTenSegmentsAndTheNextTwenty) {
  Settings with = settings();
  with.quick_acknowledgements = 1'000;
  Pair pair(with);
  pair.per_segment = Time::zero();
  pair.a.connection.append(100 * mss);
  pair.run(Time::microseconds(39));
  EXPECT_EQ(pair.a.sent.size(), 10u);
  pair.run(Time::microseconds(79));
  EXPECT_EQ(pair.a.sent.size(), 30u);
}

TEST(TcpConnection, OneLossIsRepairedInARoundTripWithoutATimeOut) {
  Pair pair(settings());
  pair.path = loses({30});
  pair.a.connection.append(200 * mss);
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), 200u * mss);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 1u);
  EXPECT_EQ(pair.a.counters.fast_recoveries, 1u);
  EXPECT_EQ(pair.a.counters.ack_timeouts, 0u);
  EXPECT_LT(pair.now, Time::milliseconds(60));
}

// RFC 8985 §2: the loss of a retransmission is found without a time-out.
TEST(TcpConnection, ARepetitionThatIsLostIsSentAgain) {
  Pair pair(settings());
  auto losses = std::make_shared<int>(0);
  pair.path = [losses](bool from_a, const Segment& segment, std::uint64_t) {
    Pair::Fate fate;
    if (from_a && segment.offset == 29 * mss && (*losses)++ < 2) fate.copies = 0;
    return fate;
  };
  pair.a.connection.append(200 * mss);
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), 200u * mss);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 2u);
  EXPECT_EQ(pair.a.counters.ack_timeouts, 0u);
}

// RFC 8985 §6.2 step 4: once segments were seen to overtake each other, one counts as lost when it
// is a quarter of the least round trip later than one that was sent after it.
TEST(TcpConnection, AfterReorderingALossIsFoundAQuarterOfARoundTripLater) {
  Pair pair(settings());
  pair.per_segment = Time::zero();
  std::vector<Time> sent;
  pair.path = [&](bool from_a, const Segment& segment, std::uint64_t) {
    Pair::Fate fate;
    if (!from_a || segment.bytes == 0) return fate;
    if (segment.offset == 1 * mss) fate.late = Time::microseconds(5);
    if (segment.offset == 3 * mss && sent.empty()) fate.copies = 0;
    if (segment.offset == 3 * mss) sent.push_back(pair.now);
    return fate;
  };
  pair.a.connection.append(3 * mss);
  pair.run(soon);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 0u);
  pair.a.connection.append(5 * mss);
  pair.run(soon);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1] - sent[0], Time::microseconds(40 + 10));
  EXPECT_EQ(pair.b.connection.in_order(), 8u * mss);
}

// Lost segments behind the last one that arrived are found when retransmissions sent later arrive,
// since RACK goes by time.
TEST(TcpConnection, ManyLossesInOneWindowWithItsTail) {
  Pair pair(settings());
  pair.a.connection.append(59 * mss);
  pair.run(soon);
  auto seen = std::make_shared<std::vector<bool>>(200);
  pair.path = [seen](bool from_a, const Segment& segment, std::uint64_t) {
    Pair::Fate fate;
    const auto number = static_cast<std::size_t>(segment.offset / mss);
    if (!from_a || segment.bytes == 0 || (*seen)[number]) return fate;
    (*seen)[number] = true;
    const bool lost = (number > 60 && number < 70 && number % 2 == 0) || number >= 70;
    fate.copies = lost ? 0 : 1;
    return fate;
  };
  pair.a.connection.append(30 * mss);
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), 89u * mss);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 23u);
  EXPECT_EQ(pair.a.counters.fast_recoveries, 1u) << "they are of one window";
  EXPECT_EQ(pair.a.counters.ack_timeouts, 0u);
}

// RFC 8985 §7.
TEST(TcpConnection, ALostTailIsProbedFor) {
  Pair pair(settings());
  pair.path = loses({20});
  pair.a.connection.append(20 * mss);
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), 20u * mss);
  EXPECT_EQ(pair.a.counters.tail_probes, 1u);
  EXPECT_EQ(pair.a.counters.ack_timeouts, 0u);
  EXPECT_LT(pair.now, Time::milliseconds(60)) << "not the time-out's 200 ms";

  Settings without = settings();
  without.tail_loss_probe = false;
  Pair other(without);
  other.path = loses({20});
  other.a.connection.append(20 * mss);
  other.run(soon);
  EXPECT_EQ(other.b.connection.in_order(), 20u * mss);
  EXPECT_EQ(other.a.counters.ack_timeouts, 1u);
  EXPECT_GE(other.now, Time::milliseconds(200));
}

// RFC 6298 §5.5 to §5.7.
TEST(TcpConnection, TimeOutsBackOffAndGiveUp) {
  Settings with = settings();
  with.retries_max = 3;
  with.tail_loss_probe = false;
  Pair pair(with);
  std::vector<Time> times;
  pair.path = [&](bool from_a, const Segment& segment, std::uint64_t) {
    if (from_a && segment.bytes > 0) times.push_back(pair.now);
    return Pair::Fate{0, {}, false};
  };
  pair.a.connection.append(mss);
  pair.run(soon);
  EXPECT_TRUE(pair.a.connection.failed());
  ASSERT_EQ(times.size(), 4u);
  EXPECT_EQ(times[1], Time::seconds(1));
  EXPECT_EQ(times[2], Time::seconds(3));
  EXPECT_EQ(times[3], Time::seconds(7));
  EXPECT_TRUE(pair.a.connection.next_deadline().is_never());
}

TEST(TcpConnection, RecordsAreNeverSplitOrMerged) {
  Pair pair(settings(), Connection::Kind::records);
  Random random(4);
  std::vector<std::pair<Offset, std::uint32_t>> records;
  Offset end = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const auto bytes = static_cast<std::uint32_t>(1 + random.below(mss));
    ASSERT_TRUE(pair.a.connection.append_record(bytes, i));
    records.emplace_back(end, bytes);
    end += bytes;
  }
  pair.path = [&](bool, const Segment&, std::uint64_t) {
    return Pair::Fate{random.below(100) < 5 ? 0 : 1, {}, false};
  };
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), end);
  EXPECT_GT(pair.a.counters.retransmitted_packets, 0u);
  for (const Segment& segment : pair.a.sent) {
    if (segment.bytes == 0) continue;
    ASSERT_LT(segment.tag, records.size());
    EXPECT_EQ(segment.offset, records[segment.tag].first);
    EXPECT_EQ(segment.bytes, records[segment.tag].second);
  }
}

// RFC 9293 §3.8.6.3, after the first sixteen segments of a new connection.
TEST(TcpConnection, EverySecondSegmentIsAcknowledgedAndALastOneLater) {
  Settings with = settings();
  Pair pair(with);
  pair.a.connection.append(16 * mss);
  pair.run(soon);
  EXPECT_EQ(pair.b.sent.size(), 16u);
  pair.b.sent.clear();
  pair.b.reads = false;  // a reader that has everything would cause an acknowledgement
  pair.a.connection.append(11 * mss);
  const Time start = pair.now;
  pair.run(soon);
  EXPECT_EQ(pair.b.sent.size(), 6u);
  EXPECT_GE(pair.now - start, with.acknowledgement_delay);
  EXPECT_EQ(pair.a.connection.acknowledged(), 27u * mss);
}

TEST(TcpConnection, AReaderThatHasAllThatWasPushedHasItAcknowledged) {
  Settings with = settings();
  with.quick_acknowledgements = 0;
  Pair pair(with);
  pair.a.connection.append(mss);
  pair.run(Time::milliseconds(1));
  EXPECT_EQ(pair.a.connection.acknowledged(), mss);
}

TEST(TcpConnection, ASlowReaderClosesTheWindowAndOpensItAgain) {
  Pair pair(settings());
  pair.b.reads = false;
  pair.a.connection.append(500 * mss);
  pair.run(Time::seconds(1));
  const Offset filled = pair.b.connection.in_order();
  EXPECT_LE(filled, 200'000u);
  EXPECT_GT(filled, 198'000u);
  EXPECT_EQ(arrived(pair.b), filled);
  pair.b.reads = true;
  pair.b.connection.consumed(filled);
  pair.run(pair.now + Time::seconds(1));
  EXPECT_EQ(pair.b.connection.in_order(), 500u * mss);
}

// RFC 9293 §3.8.6.1.
TEST(TcpConnection, AWindowUpdateThatIsLostIsAskedFor) {
  Pair pair(settings());
  pair.b.reads = false;
  pair.a.connection.append(500 * mss);
  pair.run(Time::seconds(1));
  pair.path = [](bool, const Segment&, std::uint64_t) { return Pair::Fate{0, {}, false}; };
  pair.b.reads = true;
  pair.b.connection.consumed(pair.b.connection.in_order());
  pair.run(pair.now + Time::milliseconds(1));
  pair.path = [](bool, const Segment&, std::uint64_t) { return Pair::Fate{}; };
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), 500u * mss);
  EXPECT_FALSE(pair.a.connection.failed());
}

// The window closed when there was nothing left to send, so nobody asked for it then.
TEST(TcpConnection, AClosedWindowIsAskedForOnceThereIsDataForIt) {
  Pair pair(settings());
  pair.b.reads = false;
  pair.a.connection.append(200'000);
  pair.run(Time::seconds(1));
  ASSERT_EQ(pair.a.connection.acknowledged(), 200'000u);
  pair.path = [](bool, const Segment&, std::uint64_t) { return Pair::Fate{0, {}, false}; };
  pair.b.reads = true;
  pair.b.connection.consumed(200'000);
  pair.run(pair.now + Time::milliseconds(1));  // the update is lost
  pair.path = [](bool, const Segment&, std::uint64_t) { return Pair::Fate{}; };
  pair.a.connection.append(10 * mss);
  pair.run(soon);
  EXPECT_EQ(pair.b.connection.in_order(), 200'000u + 10 * mss);
}

// RFC 8257 §3.2: each change of the mark causes an acknowledgement, and ECE is the mark of the
// acknowledged bytes.
TEST(TcpConnection, DctcpEchoesMarksExactly) {
  Settings with = settings();
  with.congestion_control = CongestionControl::dctcp;
  with.quick_acknowledgements = 0;
  Pair pair(with);
  std::uint64_t data = 0;
  pair.path = [&](bool from_a, const Segment& segment, std::uint64_t) {
    Pair::Fate fate;
    if (from_a && segment.bytes > 0) fate.marked = ++data % 5 == 0;
    return fate;
  };
  pair.a.connection.append(100 * mss);
  pair.run(soon);
  std::uint64_t marked = 0;
  wire::TcpSequence last = first_a;
  for (const Segment& segment : pair.b.sent) {
    const auto bytes = segment.header.acknowledgement.distance_from(last);
    if (segment.header.ece) marked += static_cast<std::uint64_t>(bytes);
    last = segment.header.acknowledgement;
  }
  EXPECT_EQ(marked, 20u * mss);
  EXPECT_TRUE(pair.a.sent[0].ecn_capable);
}

TEST(TcpConnection, WhoWaitsAsksWhetherThePeerIsThere) {
  Settings with = settings();
  with.keep_alive = Time::milliseconds(100);
  Pair pair(with);
  pair.a.connection.append(mss);
  pair.run(Time::milliseconds(1'000));
  EXPECT_TRUE(pair.a.connection.next_deadline().is_never()) << "it waits for nothing";
  const std::size_t before = pair.a.sent.size();

  pair.a.connection.expect(pair.now, true);
  pair.run(pair.now + Time::milliseconds(10'500));
  EXPECT_GT(pair.a.sent.size(), before + 100);
  EXPECT_LE(pair.a.sent.size(), before + 106);
  EXPECT_FALSE(pair.a.connection.failed()) << "the peer answers";
  EXPECT_EQ(pair.b.connection.in_order(), mss);

  pair.path = [](bool, const Segment&, std::uint64_t) { return Pair::Fate{0, {}, false}; };
  pair.run(pair.now + Time::milliseconds(100) * (with.retries_max + 2));
  EXPECT_TRUE(pair.a.connection.failed());
}

// RFC 3168 §6.1: the receiver sets ECE until CWR comes, and there is one decrease a window.
TEST(TcpConnection, ClassicEcnDecreasesOnceAWindow) {
  Settings with = settings();
  with.ecn = true;
  Pair pair(with);
  std::uint64_t data = 0;
  pair.path = [&](bool from_a, const Segment& segment, std::uint64_t) {
    Pair::Fate fate;
    if (from_a && segment.bytes > 0) fate.marked = ++data == 20 || data == 21;
    return fate;
  };
  pair.a.connection.append(300 * mss);
  pair.run(soon);
  const auto reductions = std::count_if(pair.a.sent.begin(), pair.a.sent.end(),
                                        [](const Segment& segment) { return segment.header.cwr; });
  EXPECT_EQ(reductions, 1);
  EXPECT_FALSE(pair.b.sent.back().header.ece);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 0u);
}

// Where data goes both ways, the echo of a mark comes with the peer's data.
TEST(TcpConnection, EcnDecreasesWhereTheEchoComesWithData) {
  Settings with = settings();
  with.ecn = true;
  Pair pair(with);
  std::uint64_t data = 0;
  pair.path = [&](bool from_a, const Segment& segment, std::uint64_t) {
    Pair::Fate fate;
    if (!from_a && segment.bytes == 0) fate.copies = 0;  // no acknowledgement comes alone
    if (from_a && segment.bytes > 0) fate.marked = ++data == 20;
    return fate;
  };
  pair.a.connection.append(100 * mss);
  pair.b.connection.append(300 * mss);
  pair.run(soon);
  const auto reductions = std::count_if(pair.a.sent.begin(), pair.a.sent.end(),
                                        [](const Segment& segment) { return segment.header.cwr; });
  EXPECT_EQ(reductions, 1);
}

TEST(TcpConnection, AnIdleConnectionStartsAgain) {
  Pair pair(settings());
  pair.a.connection.append(150 * mss);
  pair.run(soon);
  EXPECT_GT(pair.a.connection.window_bytes(), 50u * mss);
  pair.now += Time::seconds(10);
  pair.a.connection.append(mss);
  pair.run(soon);
  EXPECT_LE(pair.a.connection.window_bytes(), 12u * mss);
}

// One end that is given past, expected, future and malformed segments directly.
class OneEnd : public ::testing::Test {
 protected:
  static constexpr wire::TcpSequence peer_first{0xFFFF'FF00};
  wire::Tcp data(std::int64_t offset) const {
    wire::Tcp header;
    header.sequence = peer_first + static_cast<std::uint32_t>(offset);
    header.acknowledgement = wire::TcpSequence(50);
    header.ack = true;
    header.window = 0xFFFF;
    return header;
  }
  Arrival give(std::int64_t offset, std::uint32_t bytes) {
    return connection.handle_segment(Time::zero(), data(offset), bytes, false);
  }
  Segment answer() {
    Segment segment;
    EXPECT_TRUE(connection.pull_segment(Time::zero(), segment));
    return segment;
  }
  Counters counters;
  Connection connection{
      Connection::Kind::bytes, settings(), {1, 2, wire::TcpSequence(50), peer_first}, counters};
};

TEST_F(OneEnd, ExpectedPastAndFuture) {
  EXPECT_EQ(give(0, 500).bytes, 500u);
  EXPECT_EQ(answer().header.acknowledgement, peer_first + 500);
  // Past segments: one completely, one in part.
  EXPECT_EQ(give(0, 500).bytes, 0u);
  EXPECT_EQ(answer().header.acknowledgement, peer_first + 500);
  const Arrival part = give(400, 200);
  EXPECT_EQ(part.offset, 500u);
  EXPECT_EQ(part.skip, 100u);
  EXPECT_EQ(part.bytes, 100u);
  answer();
  // Future segments are kept and reported at once, the newest first.
  EXPECT_EQ(give(1'000, 100).bytes, 100u);
  EXPECT_EQ(give(2'000, 100).bytes, 100u);
  EXPECT_EQ(give(3'000, 100).bytes, 100u);
  const Segment sack = answer();
  EXPECT_EQ(sack.header.acknowledgement, peer_first + 600);
  ASSERT_EQ(sack.header.block_count, 2u);
  EXPECT_EQ(sack.header.blocks[0].first, peer_first + 3'000);
  EXPECT_EQ(sack.header.blocks[1].end, peer_first + 2'100);
  EXPECT_EQ(give(600, 400).bytes, 400u);
  EXPECT_EQ(connection.in_order(), 1'100u);
  EXPECT_EQ(answer().header.acknowledgement, peer_first + 1'100);
}

TEST_F(OneEnd, WhatIsBeyondTheWindowIsCutOff) {
  EXPECT_EQ(give(199'900, 500).bytes, 100u);
  EXPECT_EQ(give(200'000, 500).bytes, 0u);
  EXPECT_EQ(connection.in_order(), 0u);
}

TEST_F(OneEnd, MalformedIsDropped) {
  for (int i = 0; i < 4; ++i) {
    wire::Tcp header = data(0);
    header.syn = i == 0;
    header.fin = i == 1;
    header.rst = i == 2;
    header.ack = i != 3;
    EXPECT_EQ(connection.handle_segment(Time::zero(), header, 100, false).bytes, 0u);
  }
  EXPECT_EQ(counters.dropped_packets, 4u);
  EXPECT_FALSE(connection.has_work());
}

TEST_F(OneEnd, AcknowledgementsOfWhatWasNeverSentChangeNothing) {
  connection.append(2 * mss);
  answer();
  wire::Tcp header = data(0);
  header.acknowledgement = wire::TcpSequence(50 + mss + 1);
  static_cast<void>(connection.handle_segment(Time::zero(), header, 0, false));
  EXPECT_EQ(connection.acknowledged(), 0u);
  header.acknowledgement = wire::TcpSequence(49);
  static_cast<void>(connection.handle_segment(Time::zero(), header, 0, false));
  EXPECT_EQ(connection.acknowledged(), 0u);
  // These SACK blocks do not name bytes under way.
  header.acknowledgement = wire::TcpSequence(50);
  header.block_count = 2;
  header.blocks[0] = {wire::TcpSequence(60), wire::TcpSequence(55)};
  header.blocks[1] = {wire::TcpSequence(50), wire::TcpSequence(50 + 100 * mss)};
  static_cast<void>(connection.handle_segment(Time::zero(), header, 0, false));
  EXPECT_EQ(connection.flying_bytes(), mss);
}

// Whatever the network does, everything arrives, in order and once.
TEST(TcpConnection, Weather) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    Settings with = settings();
    with.congestion_control = seed % 2 == 0 ? CongestionControl::dctcp : CongestionControl::cubic;
    with.ecn = seed % 3 == 0;
    with.quick_acknowledgements = static_cast<std::uint32_t>(random.below(20));
    const auto kind = seed % 4 == 0 ? Connection::Kind::records : Connection::Kind::bytes;
    Pair pair(with, kind);
    const std::uint64_t drop = random.below(15), twice = random.below(10), late = random.below(20);
    pair.path = [&](bool, const Segment&, std::uint64_t) {
      Pair::Fate fate;
      if (random.below(100) < drop) fate.copies = 0;
      if (random.below(100) < twice) fate.copies = 2;
      if (random.below(100) < late) {
        fate.late = Time::microseconds(static_cast<std::int64_t>(random.below(100)));
      }
      fate.marked = random.below(10) == 0;
      return fate;
    };
    std::uint64_t ends[2] = {0, 0};
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < 2; ++i) {
        Connection& connection = i == 0 ? pair.a.connection : pair.b.connection;
        const std::uint64_t bytes =
            1 + random.below(kind == Connection::Kind::records ? mss : 60 * mss);
        if (kind == Connection::Kind::records) {
          ASSERT_TRUE(connection.append_record(static_cast<std::uint32_t>(bytes), 0));
        } else {
          connection.append(bytes);
        }
        ends[i] += bytes;
      }
      pair.run(pair.now + Time::milliseconds(static_cast<std::int64_t>(random.below(20))));
    }
    pair.run(pair.now + Time::seconds(600));
    ASSERT_EQ(pair.b.connection.in_order(), ends[0]);
    ASSERT_EQ(pair.a.connection.in_order(), ends[1]);
    ASSERT_EQ(pair.a.connection.acknowledged(), ends[0]);
    ASSERT_EQ(pair.b.connection.acknowledged(), ends[1]);
    ASSERT_EQ(arrived(pair.b), ends[0]);
    ASSERT_EQ(arrived(pair.a), ends[1]);
    EXPECT_TRUE(pair.a.connection.next_deadline().is_never());
  }
}

// RFC 9438 §4.2 and §4.1.2: K is the time after which the window is at its old maximum again.
TEST(TcpCongestion, CubicReturnsToItsMaximumInK) {
  for (const double x : {0.001, 0.5, 1.0, 27.0, 1e9}) {
    EXPECT_NEAR(cube_root(x) * cube_root(x) * cube_root(x), x, x * 1e-12);
  }
  Cubic cubic;
  const std::uint64_t reduced = cubic.reduce(1'000'000, mss);
  EXPECT_EQ(reduced, 700'000u);
  // K = cbrt(300 / 0.4) = 9.086 s.
  double window = static_cast<double>(reduced);
  const Time round_trip = Time::milliseconds(100);
  Time now;
  for (; now < Time::milliseconds(9'100); now += round_trip) {
    const auto before = static_cast<std::uint64_t>(window);
    window += cubic.increase(now, round_trip, before, mss, before);
  }
  EXPECT_NEAR(window, 1e6, 1e4);
}

// RFC 9438 §4.3: below its old maximum, CUBIC grows as fast as Reno would with CUBIC's decrease,
// which is by 3 * (1 - 0.7) / (1 + 0.7) segments a round trip, and by one segment above it.
TEST(TcpCongestion, CubicIsNoSlowerThanReno) {
  Cubic cubic;
  double window = static_cast<double>(cubic.reduce(20 * mss, mss));
  EXPECT_EQ(window, 14.0 * mss);
  const Time round_trip = Time::microseconds(100);  // cubic growth takes seconds
  Time now;
  const auto pass = [&](int round_trips) {
    for (int i = 0; i < round_trips; ++i, now += round_trip) {
      const auto before = static_cast<std::uint64_t>(window);
      window += cubic.increase(now, round_trip, before, mss, before);
    }
  };
  pass(10);
  EXPECT_NEAR(window, (14 + 10 * 0.9 / 1.7) * mss, 0.1 * mss);
  pass(2);
  EXPECT_GT(window, 20.0 * mss);
  const double above = window;
  pass(10);
  EXPECT_NEAR(window, above + 10 * mss, 0.1 * mss);
}

// RFC 8257 §3.3: alpha is a moving average of the share of marked bytes.
TEST(TcpCongestion, DctcpKeepsTheShareThatWasMarked) {
  Dctcp dctcp;
  EXPECT_EQ(dctcp.share_marked(), 1);
  std::uint64_t end = 0;
  for (int window = 0; window < 200; ++window) {
    for (int i = 0; i < 10; ++i) {
      end += mss;
      dctcp.acknowledged(mss, i < 3, end, end + (i == 9 ? 10 * mss : 0));
    }
  }
  EXPECT_NEAR(dctcp.share_marked(), 0.3, 0.03);
}

}  // namespace
}  // namespace tulle::transport::tcp
