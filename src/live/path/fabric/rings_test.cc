#include "live/path/fabric/rings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "live/bell.h"

namespace tulle::live {
namespace {

// Both ends of a pair of rings, in one process.
struct Ends {
  Ends() {
    auto memory = FabricRings::create_memory();
    EXPECT_TRUE(memory);
    for (Bell* bell : {&of_program, &of_fabric}) {
      auto made = create_bell();
      EXPECT_TRUE(made);
      *bell = std::move(*made);
    }
    auto first = FabricRings::map(UniqueFd(dup(memory->get())), std::move(of_fabric.button),
                                  FabricRings::End::program);
    auto second = FabricRings::map(std::move(*memory), std::move(of_program.button),
                                   FabricRings::End::fabric);
    EXPECT_TRUE(first && second);
    program = std::make_unique<FabricRings>(std::move(*first));
    fabric = std::make_unique<FabricRings>(std::move(*second));
  }

  Bell of_program;
  Bell of_fabric;
  std::unique_ptr<FabricRings> program;
  std::unique_ptr<FabricRings> fabric;
};

void write(FabricRings& rings, std::size_t bytes, int value) {
  std::byte* room = rings.reserve(bytes);
  ASSERT_NE(room, nullptr);
  std::memset(room, value, bytes);
  rings.publish(bytes);
  rings.ring_if_asleep();
}

// Returns the number of rings, and takes them.
int rings_at(const UniqueFd& bell) {
  int count = 0;
  std::byte some;
  while (recv(bell.get(), &some, sizeof some, MSG_DONTWAIT) >= 0) ++count;
  return count;
}

TEST(FabricRingsTest, CarryRecordsBothWays) {
  Ends ends;
  write(*ends.program, 100, 1);
  write(*ends.fabric, 4'000, 2);
  const auto at_fabric = ends.fabric->in().take();
  ASSERT_TRUE(at_fabric);
  EXPECT_EQ(at_fabric->content.size(), 100u);
  EXPECT_EQ(at_fabric->content[99], std::byte{1});
  const auto at_program = ends.program->in().take();
  ASSERT_TRUE(at_program);
  EXPECT_EQ(at_program->content.size(), 4'000u);
  EXPECT_FALSE(ends.fabric->in().take());
}

TEST(FabricRingsTest, ARecordThatIsPutBackComesAgain) {
  Ends ends;
  write(*ends.program, 100, 1);
  write(*ends.program, 200, 2);
  for (int i = 0; i < 3; ++i) {
    const auto record = ends.fabric->in().take();
    ASSERT_TRUE(record);
    EXPECT_EQ(record->content.size(), 100u);
    ends.fabric->in().put_back(*record);
  }
  EXPECT_TRUE(ends.fabric->in().take());
  EXPECT_EQ(ends.fabric->in().take()->content.size(), 200u);
}

TEST(FabricRingsTest, OnlyASleeperIsRung) {
  Ends ends;
  write(*ends.program, 10, 1);
  EXPECT_EQ(rings_at(ends.of_fabric.bell), 0);
  ends.fabric->fall_asleep();
  write(*ends.program, 10, 2);
  write(*ends.program, 10, 3);
  EXPECT_EQ(rings_at(ends.of_fabric.bell), 1) << "once for all that comes until it has looked";
  ends.fabric->fall_asleep();
  ends.fabric->stay_awake();
  write(*ends.program, 10, 4);
  EXPECT_EQ(rings_at(ends.of_fabric.bell), 0);
  EXPECT_EQ(rings_at(ends.of_program.bell), 0);
}

TEST(FabricRingsTest, WhoWaitsForRoomIsRung) {
  Ends ends;
  int written = 0;
  while (std::byte* room = ends.program->reserve(4'096)) {
    std::memset(room, 0, 4'096);
    ends.program->publish(4'096);
    ++written;
  }
  ends.program->wait_for_room();
  EXPECT_GT(written, 32);
  EXPECT_EQ(rings_at(ends.of_program.bell), 0);
  ASSERT_TRUE(ends.fabric->in().take());
  ends.fabric->tell();
  EXPECT_EQ(rings_at(ends.of_program.bell), 1);
  ASSERT_TRUE(ends.fabric->in().take());
  ends.fabric->tell();
  EXPECT_EQ(rings_at(ends.of_program.bell), 0) << "it was told";
  // An end that polls is not rung.
  while (ends.program->reserve(4'096) != nullptr) ends.program->publish(4'096);
  ASSERT_TRUE(ends.fabric->in().take());
  ends.fabric->tell();
  EXPECT_EQ(rings_at(ends.of_program.bell), 0);
}

// A lane that is full holds up no other, and the fabric reads those on which there was something.
TEST(FabricRingsTest, LanesHaveRingsOfTheirOwn) {
  Ends ends;
  EXPECT_EQ(ends.fabric->lanes_in_use(), 0u);
  while (ends.program->reserve(4'096, 2) != nullptr) ends.program->publish(4'096, 2);
  ASSERT_NE(ends.program->reserve(100, 5), nullptr);
  ends.program->publish(100, 5);
  EXPECT_EQ(ends.fabric->lanes_in_use(), 1u << 2 | 1u << 5);
  EXPECT_EQ(ends.fabric->in(5).take()->content.size(), 100u);
  EXPECT_FALSE(ends.fabric->in(5).take());
  EXPECT_FALSE(ends.fabric->in(0).take());
  EXPECT_EQ(ends.fabric->in(2).take()->content.size(), 4'096u);
}

TEST(FabricRingsTest, MemoryThatCouldShrinkIsRefused) {
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  auto good = FabricRings::create_memory();
  ASSERT_TRUE(good);
  ASSERT_EQ(ftruncate(memory.get(), lseek(good->get(), 0, SEEK_END)), 0);
  EXPECT_FALSE(FabricRings::map(std::move(memory), {}, FabricRings::End::program));
  EXPECT_FALSE(FabricRings::map(UniqueFd(memfd_create("short", MFD_CLOEXEC)), {},
                                FabricRings::End::program));
  EXPECT_NE(ftruncate(good->get(), 0), 0) << "its size is sealed";
}

TEST(FabricRingsTest, AButtonIsASocketOfThisMachine) {
  auto bell = create_bell();
  ASSERT_TRUE(bell);
  EXPECT_TRUE(is_button(bell->button.get()));
  std::array<int, 2> pipes{};
  ASSERT_EQ(pipe(pipes.data()), 0);
  const UniqueFd read_end(pipes[0]), write_end(pipes[1]);
  EXPECT_FALSE(is_button(write_end.get()));
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM, 0)), stream(socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_FALSE(is_button(udp.get()));
  EXPECT_FALSE(is_button(stream.get()));
  EXPECT_FALSE(is_button(-1));
}

TEST(FabricRingsTest, ABellThatNobodyReadsBlocksNobody) {
  Ends ends;
  for (int i = 0; i < 1'000; ++i) {
    ends.fabric->fall_asleep();
    write(*ends.program, 10, 1);
    ASSERT_TRUE(ends.fabric->in().take());
    ends.fabric->tell();
  }
  EXPECT_GT(rings_at(ends.of_fabric.bell), 0);
  ends.of_fabric.bell.reset();
  ends.fabric->fall_asleep();
  write(*ends.program, 10, 1);  // its bell is gone
}

// Writes records of random lengths, and sleeps at its bell while there is no room.
void write_all(FabricRings& rings, const UniqueFd& bell, int records, std::uint64_t seed,
               bool& was_woken) {
  Random random(seed);
  for (int i = 0; i < records; ++i) {
    const std::size_t bytes = 4 + random.below(4'300);
    std::byte* room = rings.reserve(bytes);
    while (room == nullptr) {
      rings.ring_if_asleep();
      rings.wait_for_room();
      room = rings.reserve(bytes);
      if (room != nullptr) break;
      pollfd waits{bell.get(), POLLIN, 0};
      if (poll(&waits, 1, 20'000) <= 0) return;
      rings_at(bell);
      room = rings.reserve(bytes);
    }
    std::memcpy(room, &i, sizeof i);
    rings.publish(bytes);
    if (random.below(4) == 0) rings.ring_if_asleep();
  }
  rings.ring_if_asleep();
  was_woken = true;
}

TEST(FabricRingsTest, NoWakeUpIsLost) {
  Ends ends;
  constexpr int records = 100'000;
  bool is_written = false;
  std::thread writer(
      [&] { write_all(*ends.program, ends.of_program.bell, records, 7, is_written); });
  Random random(7);
  int next = 0;
  bool is_in_order = true;
  while (next < records && is_in_order) {
    const auto record = ends.fabric->in().take();
    if (record) {
      int number = -1;
      std::memcpy(&number, record->content.data(), sizeof number);
      is_in_order = number == next++;
      if (random.below(8) == 0) ends.fabric->tell();
      continue;
    }
    ends.fabric->tell();
    ends.fabric->fall_asleep();
    if (ends.fabric->in().has_more()) {
      ends.fabric->stay_awake();
      continue;
    }
    pollfd waits{ends.of_fabric.bell.get(), POLLIN, 0};
    if (poll(&waits, 1, 20'000) <= 0) break;
    rings_at(ends.of_fabric.bell);
  }
  ends.fabric->tell();
  writer.join();
  EXPECT_TRUE(is_written);
  EXPECT_TRUE(is_in_order);
  EXPECT_EQ(next, records);
}

}  // namespace
}  // namespace tulle::live
