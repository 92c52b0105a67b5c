#include "shim/rsockets/protocol/stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "shim/rsockets/protocol/stream_pair_test.h"

namespace tulle::rsockets {
namespace {

SocketSizes small_sizes() {
  SocketSizes sizes;
  sizes.receive_buffer_bytes = 8192;
  sizes.send_buffer_bytes = 8192;
  sizes.send_queue = 20;
  sizes.receive_queue = 16;
  sizes.maps = 2;
  return sizes;
}

std::string random_text(std::size_t bytes, std::mt19937& random) {
  std::string text(bytes, '\0');
  for (char& each : text) each = static_cast<char>('a' + random() % 26);
  return text;
}

std::span<const std::byte> bytes_of(const ConnectionData& data) {
  return std::as_bytes(std::span(&data, 1));
}

class StreamTest : public testing::Test {
 protected:
  StreamPair pair_{small_sizes()};
  StreamSide& a_ = pair_.a;
  StreamSide& b_ = pair_.b;
};

TEST(StreamHandshake, SaysWhatThePeerMayWrite) {
  const StreamSide side(small_sizes(), 7);
  const ConnectionData data = side.protocol.own_data();
  EXPECT_EQ(data.version, 1);
  EXPECT_EQ(data.flags, flag_maps);
  EXPECT_EQ(data.credits, 16);
  EXPECT_EQ(from_scaled(data.scaled_maps), 2u);
  EXPECT_EQ(data.targets.address, side.exposed[1].address());
  EXPECT_EQ(data.targets.key, 8u);
  EXPECT_EQ(data.targets.bytes, target_entries);
  EXPECT_EQ(data.buffer.address, side.exposed[0].address());
  EXPECT_EQ(data.buffer.key, 7u);
  EXPECT_EQ(data.buffer.bytes, 4096u) << "half of the buffer";
}

TEST(StreamHandshake, RefusesOtherProtocols) {
  StreamSide side(small_sizes(), 7);
  const ConnectionData good = side.protocol.own_data();
  EXPECT_EQ(side.protocol.open({}), ENOTSUP);
  EXPECT_EQ(side.protocol.open(bytes_of(good).first(sizeof good - 1)), ENOTSUP);
  ConnectionData bad = good;
  bad.version = 2;
  EXPECT_EQ(side.protocol.open(bytes_of(bad)), ENOTSUP);
  bad = good;
  bad.targets.bytes = 0;  // nowhere to say where there is room
  EXPECT_EQ(side.protocol.open(bytes_of(bad)), ENOTSUP);
  EXPECT_FALSE(side.protocol.is_connected());
  EXPECT_EQ(side.protocol.open(bytes_of(good)), 0);
  EXPECT_TRUE(side.protocol.is_connected());
  EXPECT_TRUE(side.protocol.is_readable());
  EXPECT_TRUE(side.protocol.is_writable());
}

TEST(StreamHandshake, APeerOfTheOtherByteOrderGetsItsOwn) {
  StreamSide side(small_sizes(), 7);
  ConnectionData data = side.protocol.own_data();
  data.flags ^= flag_big_endian;
  data.targets = {0x1000, 9, 3};
  ASSERT_EQ(side.protocol.open(bytes_of(data)), 0);
  const auto credits = side.protocol.next_credits();
  ASSERT_TRUE(credits);
  EXPECT_EQ(credits->address, 0x1000 + sizeof(TargetEntry)) << "the second entry of the list";
  EXPECT_EQ(credits->key, 9u);
  TargetEntry entry;
  ASSERT_EQ(credits->bytes.size(), sizeof entry);
  std::memcpy(&entry, credits->bytes.data(), sizeof entry);
  EXPECT_EQ(entry.address, __builtin_bswap64(side.exposed[0].address() + 4096));
  EXPECT_EQ(entry.key, __builtin_bswap32(7));
  EXPECT_EQ(entry.bytes, __builtin_bswap32(4096));
}

TEST_F(StreamTest, ABytePassesAndIsReadOnce) {
  EXPECT_EQ(a_.write("x"), 1u);
  EXPECT_FALSE(b_.protocol.has_data());
  pair_.settle();
  EXPECT_TRUE(b_.protocol.has_data());
  EXPECT_EQ(b_.read(8, true), "x");
  EXPECT_EQ(b_.read(), "x");
  EXPECT_FALSE(b_.protocol.has_data());
  EXPECT_TRUE(a_.protocol.all_sent());
}

TEST_F(StreamTest, AMessageIsReadInParts) {
  a_.write("first");
  a_.write("second");
  pair_.settle();
  EXPECT_EQ(b_.read(3), "fir");
  EXPECT_EQ(b_.read(6, true), "stseco");
  EXPECT_EQ(b_.read(4), "stse");
  EXPECT_EQ(b_.read(), "cond");
}

// Both rings wrap hundreds of times, with pieces of any size and readers of any pace.
TEST_F(StreamTest, WhatIsSentIsRead) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    StreamPair pair(small_sizes());
    std::mt19937 random(seed);
    const std::string text = random_text(200'000, random);
    std::size_t sent = 0;
    std::string read;
    for (int rounds = 0; read.size() < text.size(); ++rounds) {
      ASSERT_LT(rounds, 100'000) << "the stream stands still";
      const std::size_t piece_max = 1 + random() % 3000;
      sent += pair.a.write(std::string_view(text).substr(sent, random() % 6000), piece_max);
      for (auto left = random() % 5; left > 0 && !pair.a.posted.empty(); --left) {
        StreamPair::carry_one(pair.a, pair.b);
      }
      if (random() % 4 == 0) pair.settle();
      read += pair.b.read(random() % 5000);
    }
    ASSERT_EQ(read, text);
    ASSERT_TRUE(pair.b.protocol.is_connected());
  }
}

TEST_F(StreamTest, MessagesStopWhereCreditsEnd) {
  const std::string text(64, 'x');
  EXPECT_EQ(a_.write(text, 1), 16u) << "as many as the peer has receives";
  pair_.carry();
  EXPECT_FALSE(a_.protocol.can_send());
  // Credits for the half that is free from the start come at once, and allow no message more.
  pair_.settle();
  EXPECT_FALSE(a_.protocol.can_send());
  EXPECT_EQ(b_.read(7).size(), 7u);
  pair_.settle();
  EXPECT_FALSE(a_.protocol.can_send()) << "credits wait until half of the messages are read";
  EXPECT_EQ(b_.read(1).size(), 1u);
  pair_.settle();
  EXPECT_EQ(a_.write(text, 1), 8u);
  EXPECT_FALSE(a_.protocol.can_send());
}

TEST_F(StreamTest, CountsOfMessagesWrap) {
  for (int i = 0; i < 70'000; ++i) {
    ASSERT_EQ(a_.write("x"), 1u) << i;
    pair_.settle();
    ASSERT_EQ(b_.read(), "x") << i;
  }
}

TEST_F(StreamTest, DataStopsWhereTheBufferEnds) {
  const std::string text(20'000, 'x');
  EXPECT_EQ(a_.write(text), 4096u) << "the half that is known";
  pair_.settle();
  EXPECT_EQ(a_.write(text), 4096u) << "the other half";
  pair_.settle();
  EXPECT_EQ(a_.write(text), 0u);
  EXPECT_EQ(b_.read(4095).size(), 4095u);
  pair_.settle();
  EXPECT_EQ(a_.write(text), 0u) << "a half is offered when all of it is read";
  EXPECT_EQ(b_.read(1).size(), 1u);
  pair_.settle();
  EXPECT_EQ(a_.write(text), 4096u);
}

TEST_F(StreamTest, AReaderKnowsThatNothingMoreComesUntilItReads) {
  const std::string text(20'000, 'x');
  EXPECT_FALSE(b_.protocol.is_full());
  for (int i = 0; i < 3; ++i) {
    a_.write(text);
    pair_.settle();
    EXPECT_EQ(b_.protocol.is_full(), !a_.protocol.can_send()) << i;
  }
  EXPECT_TRUE(b_.protocol.is_full());
  EXPECT_EQ(b_.protocol.waiting_bytes(), 8192u);
  EXPECT_EQ(b_.read(8192, true).size(), 8192u);
  EXPECT_TRUE(b_.protocol.is_full()) << "peeked";
  EXPECT_EQ(b_.read(4096).size(), 4096u);
  EXPECT_FALSE(b_.protocol.is_full()) << "an offer is due";
  pair_.settle();
  EXPECT_FALSE(b_.protocol.is_full());
  EXPECT_EQ(a_.write(text), 4096u);
}

TEST_F(StreamTest, AReaderKnowsThatThePeerHasNoCredits) {
  EXPECT_EQ(a_.write(std::string(64, 'x'), 1), 16u);
  pair_.settle();
  EXPECT_TRUE(b_.protocol.is_full());
  EXPECT_EQ(b_.read(7).size(), 7u);
  EXPECT_TRUE(b_.protocol.is_full());
  EXPECT_EQ(b_.read(1).size(), 1u);
  EXPECT_FALSE(b_.protocol.is_full());
  EXPECT_EQ(b_.protocol.waiting_bytes(), 8u);
}

TEST_F(StreamTest, WhatIsSkippedIsRead) {
  EXPECT_EQ(a_.write("discarded"), 9u);
  pair_.settle();
  EXPECT_EQ(b_.protocol.skip(100, 0, true), 9u);
  EXPECT_EQ(b_.protocol.skip(7, 0, false), 7u);
  EXPECT_EQ(b_.protocol.waiting_bytes(), 2u);
  EXPECT_EQ(b_.read(), "ed");
  EXPECT_EQ(b_.protocol.skip(7, 0, false), 0u);
}

TEST_F(StreamTest, DataStopsWhereTheRingEnds) {
  SocketSizes sizes = small_sizes();
  sizes.receive_buffer_bytes = 64 << 10;
  StreamPair pair(sizes);
  const std::string text(20'000, 'x');
  EXPECT_EQ(pair.a.write(text, 3000), 8192u) << "3,000, 3,000, and 2,192 to the ring's end";
  StreamPair::carry_one(pair.a, pair.b);
  EXPECT_EQ(pair.a.write(text), 3000u) << "the place of the first";
}

TEST_F(StreamTest, DataStopsWhereTheSendQueueEnds) {
  SocketSizes sizes = small_sizes();
  sizes.receive_queue = 100;
  StreamPair pair(sizes);
  const std::string text(64, 'x');
  EXPECT_EQ(pair.a.write(text, 1), 16u) << "20 less those that are kept for control messages";
  EXPECT_TRUE(pair.a.protocol.can_control());
  StreamPair::carry_one(pair.a, pair.b);
  EXPECT_EQ(pair.a.write(text, 1), 1u);
}

TEST_F(StreamTest, FourControlMessagesAreUnderWay) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(a_.protocol.can_control());
    const StreamWrite write = a_.protocol.write_control(Control::keep_alive);
    EXPECT_FALSE(write.has_immediate) << "the peer's program does not see it";
    a_.post(write);
  }
  EXPECT_FALSE(a_.protocol.can_control());
  EXPECT_FALSE(a_.protocol.next_credits()) << "they are due, and wait";
  StreamPair::carry_one(a_, b_);
  EXPECT_TRUE(a_.protocol.next_credits());
}

TEST_F(StreamTest, HalfIsShut) {
  a_.write("last");
  const auto said = a_.protocol.shut(SHUT_WR);
  ASSERT_EQ(said, Control::shutdown);
  a_.post(a_.protocol.write_control(*said));
  EXPECT_FALSE(a_.protocol.is_writable());
  pair_.settle();
  EXPECT_TRUE(b_.protocol.is_connected());
  EXPECT_FALSE(b_.protocol.is_readable());
  EXPECT_EQ(b_.read(), "last") << "what came before is there";
  EXPECT_EQ(b_.write("answer"), 6u);
  pair_.settle();
  EXPECT_EQ(a_.read(), "answer");

  const auto answer = b_.protocol.shut(SHUT_WR);
  ASSERT_EQ(answer, Control::disconnect) << "neither direction is left";
  b_.post(b_.protocol.write_control(*answer));
  pair_.settle();
  for (const StreamSide* side : {&a_, &b_}) {
    EXPECT_TRUE(side->protocol.is_disconnected());
    EXPECT_EQ(side->protocol.error(), 0);
  }
}

TEST_F(StreamTest, BothSidesShutTheirHalvesAtOnce) {
  for (StreamSide* side : {&a_, &b_}) {
    side->post(side->protocol.write_control(side->protocol.shut(SHUT_WR).value()));
  }
  pair_.settle();
  EXPECT_TRUE(a_.protocol.is_disconnected());
  EXPECT_TRUE(b_.protocol.is_disconnected());
}

TEST_F(StreamTest, ShuttingTheReadersSideTellsThePeerNothing) {
  EXPECT_EQ(a_.protocol.shut(SHUT_RD), std::nullopt);
  EXPECT_FALSE(a_.protocol.is_readable());
  EXPECT_TRUE(a_.protocol.is_connected());
  EXPECT_EQ(a_.protocol.shut(SHUT_WR), Control::disconnect);
}

TEST_F(StreamTest, AllIsShut) {
  a_.write("last");
  a_.post(a_.protocol.write_control(a_.protocol.shut(SHUT_RDWR).value()));
  pair_.settle();
  EXPECT_TRUE(a_.protocol.is_disconnected());
  EXPECT_TRUE(b_.protocol.is_disconnected());
  EXPECT_EQ(b_.read(), "last");
  EXPECT_FALSE(b_.protocol.is_writable());
  EXPECT_EQ(b_.protocol.shut(SHUT_RDWR), std::nullopt) << "the peer is gone";
}

TEST_F(StreamTest, AWriteThatFailsBreaksTheStream) {
  a_.write("lost");
  a_.protocol.handle_sent(a_.posted.front().write.work_id, false);
  EXPECT_TRUE(a_.protocol.is_broken());
  EXPECT_FALSE(a_.protocol.is_writable());
  EXPECT_EQ(a_.protocol.take_error(), EIO);
  EXPECT_EQ(a_.protocol.take_error(), 0);
  a_.protocol.disconnect(0);
  EXPECT_TRUE(a_.protocol.is_broken()) << "it ended already";
}

class StreamMapsTest : public StreamTest {
 protected:
  StreamMapsTest() { b_.exposed.push_back({memory_, 0x300}); }

  void map(std::uint64_t offset) {
    b_.protocol.maps().add(
        offset, {b_.exposed[2].address(), 0x300, static_cast<std::uint32_t>(memory_.size())}, true);
  }
  void tell() {
    while (b_.protocol.maps().has_news()) b_.post(b_.protocol.write_map().value());
    pair_.settle();
  }
  std::size_t write(std::string_view text, std::uint64_t offset) {
    const auto write = a_.protocol.write_mapped(std::as_bytes(std::span(text)), offset);
    if (!write) return 0;
    a_.post(*write);
    return write->bytes.size();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(100);
};

TEST_F(StreamMapsTest, ThePeerWritesWhereItWants) {
  map(5000);
  EXPECT_EQ(write("early", 5000), 0u) << "the peer does not know yet";
  tell();
  EXPECT_EQ(write("hello", 5010), 5u);
  EXPECT_EQ(write("end", 5098), 2u) << "only as far as memory is mapped";
  EXPECT_EQ(write("x", 4999), 0u);
  EXPECT_EQ(write("x", 5100), 0u);
  pair_.settle();
  EXPECT_EQ(std::memcmp(memory_.data() + 10, "hello", 5), 0);
  EXPECT_EQ(std::memcmp(memory_.data() + 98, "en", 2), 0);
  EXPECT_FALSE(b_.protocol.has_data());
  EXPECT_TRUE(a_.protocol.all_sent());
}

TEST_F(StreamMapsTest, ThePeerHasSoManyEntries) {
  StreamMaps& maps = b_.protocol.maps();
  map(0);
  EXPECT_TRUE(maps.has_room());
  maps.add(0, {0x1000, 0x400, 10}, false);
  EXPECT_TRUE(maps.has_room()) << "the peer has no entry for a map that it may not write";
  maps.add(1000, {0x2000, 0x500, 10}, true);
  EXPECT_FALSE(maps.has_room());
  tell();
  maps.remove(0x300);
  EXPECT_TRUE(maps.has_room());
  map(3000);
  tell();
  EXPECT_EQ(write("x", 0), 0u) << "its entry is the new map's";
  EXPECT_EQ(write("x", 3000), 1u);
}

TEST_F(StreamMapsTest, AMapTakesACreditAndGivesItBack) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(b_.protocol.can_send()) << i;
    map(static_cast<std::uint64_t>(i) * 1000);
    tell();
    b_.protocol.maps().remove(0x300);
  }
}

TEST_F(StreamMapsTest, EntriesTravelInline) {
  SocketSizes sizes = small_sizes();
  sizes.inline_bytes = sizeof(MapEntry) - 1;
  StreamPair pair(sizes);
  pair.a.protocol.maps().add(0, {0x1000, 1, 10}, true);
  EXPECT_EQ(pair.a.protocol.write_map(), std::nullopt);
}

// A peer that breaks the protocol, with the stream and the memory that it breaks it at. Such a peer
// ends the stream and gets nothing of this side's memory.
class StreamPeerTest : public StreamTest {
 protected:
  void say(MessageType type, std::uint32_t value, std::size_t bytes = 0) {
    b_.protocol.handle_message(to_message(type, value), bytes);
  }
  // The peer wrote so many bytes, wherever that was.
  void say_data(std::uint32_t bytes) { say(MessageType::data, bytes, bytes); }
  void expect_broken() {
    EXPECT_TRUE(b_.protocol.is_broken());
    EXPECT_EQ(b_.protocol.error(), EPROTO);
    EXPECT_FALSE(b_.protocol.is_readable());
    EXPECT_FALSE(b_.protocol.is_writable());
  }
  // Nothing but the buffer is read, whatever the peer said.
  void expect_read(std::size_t bytes) {
    const std::string text = b_.read();
    EXPECT_EQ(text.size(), bytes);
    EXPECT_EQ(text.find(static_cast<char>(StreamSide::behind)), std::string::npos);
  }
};

TEST_F(StreamPeerTest, DataLongerThanAHalf) {
  say_data(4097);
  expect_broken();
  expect_read(0);
}

TEST_F(StreamPeerTest, DataBeyondTheHalfThatWasOffered) {
  say_data(4096);
  say_data(1);
  expect_broken();
  expect_read(4096);
}

TEST_F(StreamPeerTest, DataAcrossTheEndOfAHalf) {
  pair_.settle();  // both halves are offered
  say_data(4095);
  EXPECT_TRUE(b_.protocol.is_connected());
  say_data(2);
  expect_broken();
  expect_read(4095);
}

TEST_F(StreamPeerTest, DataAcrossTheEndOfTheBuffer) {
  pair_.settle();
  say_data(4095);
  say_data(4096);
  say_data(4096);
  expect_broken();
  expect_read(4095);
}

TEST_F(StreamPeerTest, DataInAHalfThatIsNotReadToItsEnd) {
  pair_.settle();
  say_data(4096);
  say_data(4096);
  EXPECT_EQ(b_.read(4095).size(), 4095u);
  pair_.settle();
  EXPECT_TRUE(b_.protocol.is_connected());
  say_data(1);
  expect_broken();
  expect_read(4097);
}

TEST_F(StreamPeerTest, DataThatItDidNotWrite) {
  say(MessageType::data, 10, 9);
  expect_broken();
  expect_read(0);
}

TEST_F(StreamPeerTest, MoreHalvesThanItHas) {
  const TargetEntry half = {0x1000, 1, 100};
  std::memcpy(b_.exposed[1].bytes.data() + sizeof half, &half, sizeof half);
  say(MessageType::credits, 16, sizeof half);
  EXPECT_TRUE(b_.protocol.is_connected());
  std::memcpy(b_.exposed[1].bytes.data(), &half, sizeof half);
  say(MessageType::credits, 16, sizeof half);
  expect_broken();
}

TEST_F(StreamPeerTest, CreditsThatWroteSomethingElse) {
  say(MessageType::credits, 16, sizeof(TargetEntry) - 1);
  expect_broken();
}

// The list counts when a message says so, and not before.
TEST_F(StreamPeerTest, AHalfThatNobodySpokeOf) {
  const TargetEntry half = {0x1000, 1, 100};
  std::memcpy(b_.exposed[1].bytes.data() + sizeof half, &half, sizeof half);
  const std::string text(5000, 'x');
  EXPECT_EQ(b_.write(text), 4096u);
  say(MessageType::credits, 16);
  EXPECT_EQ(b_.write(text), 0u);
  say(MessageType::credits, 16, sizeof half);
  EXPECT_EQ(b_.write(text), 100u);
}

TEST_F(StreamPeerTest, DataOfNoBytes) {
  say_data(0);
  expect_broken();
  EXPECT_FALSE(b_.protocol.has_data());
}

TEST_F(StreamPeerTest, MoreMessagesThanCredits) {
  for (int i = 0; i < 16; ++i) say_data(1);
  EXPECT_TRUE(b_.protocol.is_connected());
  say_data(1);
  expect_broken();
  expect_read(16);
}

TEST_F(StreamPeerTest, MoreMapsThanCredits) {
  for (int i = 0; i < 16; ++i) say(MessageType::map, 0, sizeof(MapEntry));
  EXPECT_TRUE(b_.protocol.is_connected());
  say(MessageType::map, 0, sizeof(MapEntry));
  expect_broken();
}

TEST_F(StreamPeerTest, AMapBehindTheList) {
  say(MessageType::map, 1, sizeof(MapEntry));
  EXPECT_TRUE(b_.protocol.is_connected());
  say(MessageType::map, 2, sizeof(MapEntry));
  expect_broken();
}

TEST_F(StreamPeerTest, MessagesOfNoKnownKind) {
  for (const std::uint32_t type : {1u, 2u, 3u, 5u}) {
    StreamPair pair(small_sizes());
    pair.b.protocol.handle_message(type << 29 | 1, 0);
    EXPECT_EQ(pair.b.protocol.error(), EPROTO) << type;
  }
  say(MessageType::control, 3);
  expect_broken();
}

TEST_F(StreamPeerTest, DataBehindItsOwnEnd) {
  say_data(3);
  say(MessageType::control, static_cast<std::uint32_t>(Control::shutdown));
  EXPECT_TRUE(b_.protocol.is_connected());
  say_data(1);
  expect_broken();
  expect_read(3);
}

TEST_F(StreamPeerTest, NothingCountsOnceTheStreamHasEnded) {
  say(MessageType::control, static_cast<std::uint32_t>(Control::disconnect));
  EXPECT_TRUE(b_.protocol.is_disconnected());
  say_data(3);
  EXPECT_FALSE(b_.protocol.has_data());
  EXPECT_EQ(b_.protocol.error(), 0);
}

TEST_F(StreamPeerTest, KeepingAliveMeansNothing) {
  for (int i = 0; i < 100; ++i) {
    say(MessageType::control, static_cast<std::uint32_t>(Control::keep_alive));
  }
  EXPECT_TRUE(b_.protocol.is_connected());
}

// The peer may write the lists at any time. What is sent then still comes from this side's ring.
TEST_F(StreamPeerTest, ListsThatChangeUnderway) {
  std::mt19937 random(1);
  const std::string text(3000, 'x');
  for (int i = 0; i < 10'000; ++i) {
    StreamPair pair(small_sizes());
    StreamSide& side = pair.b;
    for (int step = 0; step < 5; ++step) {
      for (std::byte& each : side.exposed[1].bytes) each = static_cast<std::byte>(random());
      if (side.protocol.is_writable() && side.protocol.can_send()) {
        const auto mapped =
            side.protocol.write_mapped(std::as_bytes(std::span(text)), random() % 1000);
        if (mapped) side.post(*mapped);
      }
      side.write(text, 1 + random() % 3000);
      while (!side.posted.empty()) {
        const StreamWrite& write = side.posted.front().write;
        const std::byte* end = write.bytes.data() + write.bytes.size();
        ASSERT_TRUE(write.is_inline || (write.bytes.data() >= side.send.data() &&
                                        end <= side.send.data() + side.send.size()));
        side.protocol.handle_sent(write.work_id, true);
        side.posted.pop_front();
      }
      side.protocol.handle_message(to_message(MessageType::map, random() % 2), sizeof(MapEntry));
      side.protocol.handle_message(
          to_message(MessageType::credits, static_cast<std::uint32_t>(random())),
          random() % 2 * sizeof(TargetEntry));
    }
  }
}

}  // namespace
}  // namespace tulle::rsockets
