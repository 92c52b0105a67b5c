#include "live/path/memory/packet_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace tulle::live {
namespace {

struct Memory {
  alignas(PacketRing::line_bytes) std::byte bytes[PacketRing::ring_bytes];
};

class PacketRingTest : public testing::Test {
 protected:
  // Writes a record whose bytes all have that value. Returns false if the ring is full.
  bool write(std::size_t bytes, int value, std::uint32_t marks = 0) {
    std::byte* const room = writer_.reserve(bytes);
    if (room == nullptr) return false;
    std::memset(room, value, bytes);
    writer_.publish(bytes, marks);
    return true;
  }
  void expect(std::size_t bytes, int value) {
    const auto record = reader_.take();
    ASSERT_TRUE(record);
    ASSERT_EQ(record->content.size(), bytes);
    for (const std::byte byte : record->content) ASSERT_EQ(byte, static_cast<std::byte>(value));
  }
  // A word of the ring, as another process could write it.
  std::uint32_t& word_at(std::size_t at) {
    return *reinterpret_cast<std::uint32_t*>(memory_->bytes + at);
  }

  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  RingProgress progress_;
  RingWriter writer_{memory_->bytes, progress_};
  RingReader reader_{memory_->bytes, progress_};
};

TEST_F(PacketRingTest, RecordsComeInOrderAndWhole) {
  EXPECT_FALSE(reader_.take());
  EXPECT_FALSE(reader_.has_more());
  ASSERT_TRUE(write(1, 1));
  ASSERT_TRUE(write(0, 2));
  ASSERT_TRUE(write(5'000, 3, PacketRing::has_path));
  EXPECT_TRUE(reader_.has_more());
  expect(1, 1);
  expect(0, 2);
  const auto last = reader_.take();
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->has_path);
  EXPECT_EQ(last->content.size(), 5'000u);
  EXPECT_FALSE(reader_.take());
  EXPECT_FALSE(reader_.is_broken());
}

TEST_F(PacketRingTest, ARecordThatWasReservedAndNotPublishedIsNotThere) {
  ASSERT_NE(writer_.reserve(100), nullptr);
  EXPECT_FALSE(reader_.take());
  ASSERT_TRUE(write(10, 4));
  expect(10, 4);
}

TEST_F(PacketRingTest, AFullRingTakesNothingUntilTheReaderHasTold) {
  int written = 0;
  while (write(4'000, written)) ++written;
  EXPECT_GT(written * 4'000u, PacketRing::ring_bytes * 9 / 10);
  for (int i = 0; i < 4; ++i) expect(4'000, i);
  EXPECT_FALSE(write(4'000, written)) << "the reader has not told";
  reader_.tell();
  EXPECT_TRUE(write(4'000, written));
  for (int i = 4; i <= written; ++i) expect(4'000, i);
  EXPECT_FALSE(reader_.take());
}

// Records of any length at any place, among them those that end with the ring and those that do not
// fit before its end.
TEST_F(PacketRingTest, RecordsOfAnyLengthGoRoundAndRound) {
  std::mt19937 random(7);
  std::vector<std::pair<std::size_t, int>> waiting;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t length =
        random() % 8 == 0 ? random() % (PacketRing::content_bytes_max + 1) : random() % 200;
    if (write(length, i)) {
      waiting.emplace_back(length, i);
      bytes += length;
    }
    while (!waiting.empty() && random() % 3 != 0) {
      ASSERT_NO_FATAL_FAILURE(expect(waiting.front().first, waiting.front().second));
      waiting.erase(waiting.begin());
      if (random() % 2 == 0) reader_.tell();
    }
  }
  EXPECT_GT(bytes, 20 * PacketRing::ring_bytes);
}

TEST_F(PacketRingTest, TwoThreadsNeedNothingElse) {
  constexpr std::uint32_t records = 200'000;
  std::thread writing([&] {
    std::mt19937 random(3);
    for (std::uint32_t i = 0; i < records;) {
      const std::size_t bytes = sizeof i + random() % 300;
      std::byte* room = nullptr;
      while ((room = writer_.reserve(bytes)) == nullptr) std::this_thread::yield();
      std::memcpy(room, &i, sizeof i);
      writer_.publish(bytes);
      ++i;
    }
  });
  for (std::uint32_t expected = 0; expected < records;) {
    const auto record = reader_.take();
    if (!record) {
      reader_.tell();
      std::this_thread::yield();
      continue;
    }
    std::uint32_t number = 0;
    std::memcpy(&number, record->content.data(), sizeof number);
    ASSERT_EQ(number, expected);
    ++expected;
  }
  writing.join();
}

// A process that dies while it writes a record leaves it unfinished.
TEST_F(PacketRingTest, AWriterThatDiesInARecordLeavesWhatCameBefore) {
  ASSERT_TRUE(write(64, 1));
  std::memset(writer_.reserve(1'000), 0x55, 1'000);
  expect(64, 1);
  EXPECT_FALSE(reader_.take());
  EXPECT_FALSE(reader_.is_broken());
}

TEST_F(PacketRingTest, AReaderBelievesNoLengthThatLeavesTheRing) {
  constexpr std::uint32_t record = PacketRing::is_record;
  constexpr std::uint32_t too_long = PacketRing::content_bytes_max + 1;
  constexpr std::uint32_t skip = PacketRing::is_skip;
  for (const std::uint32_t word : {record | too_long, record | PacketRing::length_mask, 1u,
                                   0xFFFF'FFFFu, record | skip, skip | 1u, skip}) {
    RingReader reader(memory_->bytes, progress_);
    word_at(0) = word;
    EXPECT_FALSE(reader.take()) << word;
    EXPECT_TRUE(reader.is_broken()) << word;
    word_at(0) = record | 8;
    EXPECT_FALSE(reader.take()) << "it reads nothing more";
    EXPECT_FALSE(reader.has_more());
  }
  // A record near the ring's end that would reach beyond it.
  RingReader reader(memory_->bytes, progress_);
  word_at(0) = 0;
  const std::size_t last = PacketRing::ring_bytes - PacketRing::line_bytes;
  RingWriter writer(memory_->bytes, progress_);
  for (std::size_t at = 0; at < last;) {
    const std::size_t bytes = std::min(last - at, std::size_t{8'192}) - PacketRing::word_bytes;
    ASSERT_NE(writer.reserve(bytes), nullptr);
    writer.publish(bytes);
    ASSERT_TRUE(reader.take());
    at += PacketRing::record_bytes(bytes);
  }
  word_at(last) = record | (PacketRing::line_bytes - PacketRing::word_bytes + 1);
  EXPECT_FALSE(reader.take());
  EXPECT_TRUE(reader.is_broken());
}

TEST_F(PacketRingTest, AReaderThatTellsNonsenseGetsNothingMoreThanFits) {
  while (write(4'000, 1)) continue;
  for (const std::uint64_t told :
       {std::uint64_t{1} << 40, ~std::uint64_t{0}, std::uint64_t{PacketRing::ring_bytes + 1}}) {
    progress_.taken = told;
    EXPECT_FALSE(write(4'000, 1)) << told;
  }
}

}  // namespace
}  // namespace tulle::live
