#include "live/path/packets/capture_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/random.h"

namespace tulle::live {
namespace {

struct Ends {
  CaptureRing writer;
  CaptureRing reader;
};

Ends make(std::uint32_t bytes) {
  auto writer = CaptureRing::create(bytes);
  EXPECT_TRUE(writer);
  auto reader = CaptureRing::map(UniqueFd(fcntl(writer->fd(), F_DUPFD_CLOEXEC, 0)));
  EXPECT_TRUE(reader);
  return {std::move(*writer), std::move(*reader)};
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random.next());
  return out;
}

TEST(CaptureRing, FramesComeOutAsTheyWentIn) {
  Ends ring = make(1 << 20);
  const std::vector<std::byte> bytes = pattern(3'000, 1);
  const std::span<const std::byte> whole = bytes;
  const std::array<std::span<const std::byte>, 3> pieces = {whole.first(28), whole.subspan(28, 1),
                                                            whole.subspan(29)};
  EXPECT_TRUE(ring.writer.write({42, 3'000, true}, pieces, 0));
  EXPECT_TRUE(ring.writer.write({43, 3'000, false}, pieces, 100));
  CapturedFrame frame;
  std::vector<std::byte> out;
  ASSERT_TRUE(ring.reader.read(frame, out));
  EXPECT_EQ(frame.unix_nanoseconds, 42);
  EXPECT_TRUE(frame.outbound);
  EXPECT_EQ(out, bytes);
  ASSERT_TRUE(ring.reader.read(frame, out));
  EXPECT_EQ(frame.original_bytes, 3'000u);
  EXPECT_FALSE(frame.outbound);
  EXPECT_EQ(out, std::vector(bytes.begin(), bytes.begin() + 100));
  EXPECT_FALSE(ring.reader.read(frame, out));
}

TEST(CaptureRing, AFullRingDropsAndCounts) {
  Ends ring = make(1 << 20);
  const std::vector<std::byte> bytes(4'000);
  const std::span<const std::byte> piece = bytes;
  std::uint64_t kept = 0;
  while (ring.writer.write({0, 4'000, true}, {&piece, 1}, 0)) ++kept;
  EXPECT_FALSE(ring.writer.has_room(bytes.size()));
  EXPECT_GT(kept, 250u);
  EXPECT_EQ(ring.reader.dropped(), 1u);
  CapturedFrame frame;
  std::vector<std::byte> out;
  EXPECT_TRUE(ring.reader.read(frame, out));
  EXPECT_TRUE(ring.writer.write({0, 4'000, true}, {&piece, 1}, 0));
}

TEST(CaptureRing, TwoThreadsManyTimesRound) {
  constexpr std::uint64_t seed = 20'260'102;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Ends ring = make(1 << 20);
  constexpr int frames = 20'000;
  std::thread writer([&] {
    Random random(seed);
    for (int i = 0; i < frames;) {
      const std::size_t size = 64 + i % 4'000;
      const std::vector<std::byte> bytes = pattern(size, static_cast<std::uint64_t>(i));
      const std::span<const std::byte> whole = bytes;
      const std::size_t cut = random.below(size);
      const std::array<std::span<const std::byte>, 2> pieces = {whole.first(cut),
                                                                whole.subspan(cut)};
      if (ring.writer.write({i, static_cast<std::uint32_t>(size), i % 2 == 0}, pieces, 0)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  CapturedFrame frame;
  std::vector<std::byte> out;
  for (int i = 0; i < frames;) {
    if (!ring.reader.read(frame, out)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(frame.unix_nanoseconds, i);
    ASSERT_EQ(out, pattern(64 + i % 4'000, static_cast<std::uint64_t>(i)));
    ++i;
  }
  writer.join();
}

TEST(CaptureRing, AWildWriterIsSurvived) {
  constexpr std::uint64_t seed = 20'260'103;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Ends ring = make(1 << 20);
  void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, ring.writer.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  Random random(seed);
  CapturedFrame frame;
  std::vector<std::byte> out;
  for (int i = 0; i < 20'000; ++i) {
    auto* words = static_cast<std::uint64_t*>(memory);
    words[random.below(32)] = random.next() >> random.below(64);
    words[512 + random.below(4'096)] = random.next();
    static_cast<void>(ring.reader.read(frame, out));
    ASSERT_LE(out.size(), 16u * 1'024);
  }
  munmap(memory, 1 << 20);
}

// The writer is another process, and may belong to another user.
TEST(CaptureRing, AWriterThatClaimsMoreThanTheRingHoldsEndsTheReading) {
  Ends ring = make(1 << 20);
  void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, ring.writer.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* words = static_cast<std::uint64_t*>(memory);
  words[0] = std::uint64_t{1} << 40;  // bytes written: a ring of zeros is a ring of empty frames
  CapturedFrame frame;
  std::vector<std::byte> out;
  int frames = 0;
  while (frames < 100'000 && ring.reader.read(frame, out)) ++frames;
  EXPECT_EQ(frames, 0);
  // The ring is of use again.
  ASSERT_TRUE(ring.writer.write({1, 2, true}, {}, 0));
  EXPECT_TRUE(ring.reader.read(frame, out));
  EXPECT_TRUE(frame.outbound);
  munmap(memory, 1 << 20);
}

TEST(CaptureRing, ADirectionIsAlwaysInOrOut) {
  Ends ring = make(1 << 20);
  void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, ring.writer.fd(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  CapturedFrame frame;
  std::vector<std::byte> out;
  for (const unsigned value : {0u, 1u, 2u, 254u, 255u}) {
    const std::uint64_t at = *static_cast<std::uint64_t*>(memory);
    ASSERT_TRUE(ring.writer.write({1, 2, false}, {}, 0));
    static_cast<unsigned char*>(memory)[4096 + at + 12] = static_cast<unsigned char>(value);
    ASSERT_TRUE(ring.reader.read(frame, out));
    unsigned char stored = 0;
    std::memcpy(&stored, &frame.outbound, 1);
    EXPECT_EQ(stored, value == 0 ? 0 : 1) << value;
  }
  munmap(memory, 1 << 20);
}

TEST(CaptureRing, OtherFilesAreNotRings) {
  UniqueFd fd(memfd_create("no-ring", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), 4096 + 12'345), 0);
  EXPECT_FALSE(CaptureRing::map(std::move(fd)));
}

}  // namespace
}  // namespace tulle::live
