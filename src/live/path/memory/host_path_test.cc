#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "live/path/memory/host_path_end_test.h"

namespace tulle::live {
namespace {

TEST_F(HostPathTest, WritesAndReadsWithoutPackets) {
  for (std::size_t i = 0; i < 1001; ++i) a_.buffer[i] = static_cast<std::byte>(i * 7);
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address() + 16, b_.region->rkey(), 1001), 0);
  EXPECT_EQ(a_.completions(), 1);
  EXPECT_EQ(std::memcmp(b_.buffer.data() + 16, a_.buffer.data(), 1001), 0);
  EXPECT_EQ(b_.buffer[15], std::byte{0});
  EXPECT_EQ(b_.buffer[16 + 1001], std::byte{0});

  b_.buffer[4000] = std::byte{42};
  EXPECT_EQ(a_.post(verbs::SendOpcode::read, b_.address() + 4000, b_.region->rkey(), 2), 0);
  EXPECT_EQ(a_.completions(), 1);
  EXPECT_EQ(a_.buffer[0], std::byte{42});
  EXPECT_EQ(a_.path->moved().transfers, 2u);
  EXPECT_EQ(a_.path->moved().bytes, 1003u);
  EXPECT_EQ(b_.path->moved().transfers, 0u);
}

TEST_F(HostPathTest, LeavesToPacketsWhatIsNotAllowed) {
  const RemoteKey wrong{b_.region->rkey().value ^ 1};
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), wrong, 8), 1);
  EXPECT_EQ(a_.completions(), 0);
  EXPECT_EQ(b_.post(verbs::SendOpcode::write, a_.address() + 8190, a_.region->rkey(), 8), 1);
}

// A program that forgets its depths must fail here as it does between two hosts.
TEST_F(HostPathTest, AReadNeedsADepthAtBothEnds) {
  struct Case {
    PathEnd::Attributes initiator, target;
    int packets;
  };
  constexpr verbs::AccessFlags access =
      verbs::AccessFlags(Access::remote_write) | Access::remote_read;
  std::uint32_t slot = 5;
  for (const Case& c : {Case{{0, 1}, {1, 1}, 0}, Case{{1, 1}, {1, 0}, 1}}) {
    SCOPED_TRACE(slot);
    PathEnd a(slot++), b(slot++);
    a.open(b);
    b.open(a);
    a.connect(b, access, c.initiator);
    b.connect(a, access, c.target);
    EXPECT_EQ(a.post(verbs::SendOpcode::write, b.address(), b.region->rkey(), 8), 0);
    EXPECT_EQ(a.path->moved().transfers, 1u) << "a WRITE needs none";
    b.buffer[0] = std::byte{42};
    EXPECT_EQ(a.post(verbs::SendOpcode::read, b.address(), b.region->rkey(), 8), c.packets);
    EXPECT_EQ(a.path->moved().transfers, 1u);
    EXPECT_EQ(a.buffer[0], std::byte{0});
  }
}

TEST_F(HostPathTest, KeepsOrderBehindARequestInFlight) {
  const RemoteKey key = b_.region->rkey();
  EXPECT_EQ(a_.post(verbs::SendOpcode::write_with_immediate, b_.address(), key, 8), 1);
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), key, 8), 1);
}

TEST_F(HostPathTest, IsUsedBehindASendInFlight) {
  EXPECT_EQ(a_.post(verbs::SendOpcode::send, 0, {}, 8), 1);
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), b_.region->rkey(), 8), 0);
}

// A program may unmap registered memory, map other memory there and register that. Each key leads
// to the memory that was registered with it.
TEST_F(HostPathTest, AKeyOfOtherMemoryAtTheSameAddressLeadsThere) {
  const auto write = [&](RemoteKey key, std::uint8_t value) {
    std::ranges::fill(a_.buffer, std::byte{value});
    EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), key, 8'192), 0);
    EXPECT_EQ(a_.completions(), 1);
  };
  const RemoteKey old_key = b_.region->rkey();
  write(old_key, 1);
  ASSERT_NE(mmap(b_.buffer.data(), 4'096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  const auto* const second = b_.register_buffer();
  ASSERT_NE(second, nullptr);
  write(second->rkey(), 2);
  EXPECT_EQ(b_.buffer[0], std::byte{2});
  EXPECT_EQ(b_.buffer[8'191], std::byte{2});
  if (shared_regions_of_tests() != nullptr) {
    write(old_key, 3);
    EXPECT_EQ(b_.buffer[0], std::byte{2}) << "the old pages are gone";
    EXPECT_EQ(b_.buffer[8'191], std::byte{3});
  }
  EXPECT_EQ(a_.post(verbs::SendOpcode::read, b_.address(), second->rkey(), 8), 0);
  EXPECT_EQ(a_.completions(), 1);
  EXPECT_EQ(a_.buffer[0], std::byte{2});
}

TEST_F(HostPathTest, IsGoneWithTheRegion) {
  const RemoteKey key = b_.region->rkey();
  EXPECT_EQ(b_.deregister(), VerbsStatus::ok);
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), key, 8), 1);
}

TEST_F(HostPathTest, IsNotUsedWhileEitherSideHasClosedIt) {
  b_.path->set_open(false);
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), b_.region->rkey(), 8), 1);
  b_.path->set_open(true);
  b_.path->set_open(false);
}

TEST_F(HostPathTest, TellsHowManyQueuePairsUseIt) {
  const std::uint32_t connected = a_.path->queue_pairs();
  EXPECT_GT(connected, 0u);
  a_.move_qp(verbs::QpState::error);
  EXPECT_EQ(a_.path->queue_pairs(), connected - 1);
  b_.path->set_open(false);
  EXPECT_EQ(b_.path->queue_pairs(), 0u);
  b_.path->set_open(true);
  EXPECT_EQ(b_.path->queue_pairs(), connected);
}

TEST_F(HostPathTest, IsNotUsedFromAnotherPidNamespace) {
  PathEnd a(3);
  PathEnd b(4);
  a.open(b);
  b.open(a);
  ++writable_mapping<PeerTable>(b.path->peers().table_fd())->pid_namespace;
  const auto access = verbs::AccessFlags(Access::remote_write) | Access::remote_read;
  a.connect(b, access);
  b.connect(a, access);
  EXPECT_EQ(a.post(verbs::SendOpcode::write, b.address(), b.region->rkey(), 8), 1);
  // b is not let in, either: a could not tell which thread visits it.
  EXPECT_EQ(b.post(verbs::SendOpcode::write, a.address(), a.region->rkey(), 8), 1);
}

TEST_F(HostPathTest, PeersCannotWriteToTheTable) {
  const int fd = b_.path->peers().table_fd();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  const UniqueFd again(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR));
  EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  const int zero = 0;
  EXPECT_LT(pwrite(again.get(), &zero, sizeof zero, 0), 0);
  EXPECT_NE(ftruncate(again.get(), 0), 0);
  void* shown = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, again.get(), 0);
  ASSERT_NE(shown, MAP_FAILED);
  EXPECT_NE(mprotect(shown, 4096, PROT_READ | PROT_WRITE), 0);
  munmap(shown, 4096);
}

// A forked child has its parent's objects, and may well destroy them.
TEST_F(HostPathTest, AChildLeavesItsParentsPathAlone) {
  const pid_t child = fork();
  if (child == 0) {
    b_.path->forget_in_child();
    b_.path->set_open(false);
    _exit(b_.deregister() == VerbsStatus::ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), b_.region->rkey(), 8), 0);
}

TEST_F(HostPathTest, PeersComeAndGoWithoutEnd) {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) ++count;
    return count;
  };
  const auto access = verbs::AccessFlags(Access::remote_write);
  int before = 0;
  for (int i = 0; i < 100; ++i) {
    auto c = std::make_unique<PathEnd>(10);
    c->open([this](QpNumber) -> Result<HostPath::Peer> { return a_.as_peer(getpid()); });
    PathEnd* const to = c.get();
    a_.find_peer = [to](QpNumber) -> Result<HostPath::Peer> { return to->as_peer(getpid()); };
    a_.move_qp(verbs::QpState::reset);
    a_.connect(*a_.qp, c->qp->number, access, {1, 1});
    c->connect(*c->qp, a_.qp->number, access, {1, 1});
    EXPECT_EQ(a_.post(verbs::SendOpcode::write, c->address(), c->region->rkey(), 8), 0) << i;
    EXPECT_EQ(a_.completions(), 1);
    if (i == 10) before = mappings();
    c.reset();
    EXPECT_EQ(a_.post(verbs::SendOpcode::write, 4096, RemoteKey{1}, 8), 1) << "the peer is gone";
  }
  EXPECT_LE(mappings(), before + 5);
}

constexpr std::uint32_t turn_bytes = HostPath::turn_bytes;

// Transfers that take several of the driver's turns.
class LongTransferTest : public testing::Test {
 protected:
  static constexpr std::uint32_t bytes = 64 << 20;
  static constexpr auto both = verbs::AccessFlags(Access::remote_write) | Access::remote_read;

  void SetUp() override {
    a_.open(b_);
    b_.open(a_);
    a_.connect(b_, both);
    b_.connect(a_, both);
    for (std::size_t i = 0; i < bytes; i += 1024)
      a_.buffer[i] = static_cast<std::byte>(i / 1024 + 1);
  }
  void write(transport::QueuePair& qp, std::uint32_t length = bytes) {
    a_.post(qp, verbs::SendOpcode::write, b_.address(), b_.region->rkey(), length);
  }
  // Returns the bytes of a_'s transfer that have reached b_.
  std::size_t arrived() const {
    std::size_t at = 0;
    while (at < bytes && b_.buffer[at] == a_.buffer[at] && b_.buffer[at] != std::byte{0}) {
      at += 1024;
      if (at / 1024 % 256 == 255) at += 1024;  // the number there is zero
    }
    return at;
  }
  PathEnd a_{1, bytes};
  PathEnd b_{2, bytes};
};

TEST_F(LongTransferTest, MovesInBoundedSteps) {
  write(*a_.qp);
  for (std::uint32_t steps = 1; steps <= bytes / turn_bytes; ++steps) {
    EXPECT_EQ(a_.completions(), 0);
    EXPECT_EQ(a_.turn(), 0);
    const std::size_t moved = std::size_t{steps} * turn_bytes;
    EXPECT_EQ(std::memcmp(b_.buffer.data() + moved - turn_bytes,
                          a_.buffer.data() + moved - turn_bytes, turn_bytes),
              0);
    if (moved < bytes) {
      EXPECT_EQ(b_.buffer[moved], std::byte{0});
    }
    EXPECT_EQ(a_.path->has_unfinished(), moved < bytes);
  }
  EXPECT_EQ(a_.completions(), 1);
  EXPECT_EQ(a_.path->moved().transfers, 1u);
  EXPECT_EQ(a_.path->moved().bytes, bytes);
}

TEST_F(LongTransferTest, DoesNotHoldUpAnotherQueuePair) {
  write(*a_.qp);
  a_.turn();
  a_.turn();
  // Each piece of work of the other queue pair waits for two turns at most.
  std::uint32_t steps = 2;
  for (int i = 0; i < 20; ++i) {
    write(*a_.second_qp, 8);
    int turns = 0;
    for (; turns < 2 && a_.completions() == 0; ++turns) a_.turn();
    EXPECT_EQ(a_.path->moved().transfers, i + 1u);
    steps += static_cast<std::uint32_t>(turns);
  }
  EXPECT_LT(steps, bytes / turn_bytes) << "the long one is still under way";
  while (a_.completions() == 0 && steps < 1000) {
    a_.turn();
    ++steps;
  }
  EXPECT_LE(steps, bytes / turn_bytes + 21);
  EXPECT_EQ(std::memcmp(b_.buffer.data(), a_.buffer.data(), bytes), 0);
}

TEST_F(LongTransferTest, SeveralTakeTurns) {
  PathEnd c(3, bytes), d(4, bytes);
  c.open(d);
  d.open(c);
  c.connect(d, both);
  d.connect(c, both);
  std::fill(c.buffer.begin(), c.buffer.end(), std::byte{1});
  constexpr std::uint32_t half = 8 * turn_bytes;
  c.post(*c.qp, verbs::SendOpcode::write, d.address(), d.region->rkey(), half);
  c.post(*c.second_qp, verbs::SendOpcode::write, d.address() + half, d.region->rkey(), half);
  const auto steps_of = [&](std::uint32_t first) {
    int steps = 0;
    for (std::uint32_t at = first; at < first + half; at += turn_bytes) {
      steps += d.buffer[at] == std::byte{1};
    }
    return steps;
  };
  for (int turns = 1; turns <= 16; ++turns) {
    EXPECT_EQ(c.turn(), 0);
    EXPECT_LE(std::abs(steps_of(0) - steps_of(half)), 1) << turns;
  }
  EXPECT_EQ(c.completions(), 2);
}

TEST_F(LongTransferTest, LaterRequestsOfTheQueuePairWait) {
  write(*a_.qp, 2 * turn_bytes);
  a_.post(*a_.qp, verbs::SendOpcode::write, b_.address() + bytes - 8, b_.region->rkey(), 8);
  a_.post(*a_.qp, verbs::SendOpcode::send, 0, {}, 8);
  EXPECT_EQ(a_.turn(), 0);
  EXPECT_EQ(b_.buffer[bytes - 8], std::byte{0});
  EXPECT_EQ(a_.turn(), 0) << "the turn's bytes are spent";
  EXPECT_EQ(a_.completions(), 1);
  EXPECT_EQ(a_.turn(), 1) << "the SEND follows the short WRITE";
  EXPECT_EQ(b_.buffer[bytes - 8], a_.buffer[0]);
  EXPECT_EQ(a_.completions(), 1);
}

TEST_F(LongTransferTest, ReadsAcrossPiecesAndSteps) {
  for (std::size_t i = 0; i < bytes; i += 512) b_.buffer[i] = static_cast<std::byte>(i / 512 * 7);
  constexpr std::uint32_t length = 5 * turn_bytes + 10;  // in two pieces of equal size
  a_.post(*a_.qp, verbs::SendOpcode::read, b_.address() + 4, b_.region->rkey(), length);
  for (int turns = 0; turns < 6; ++turns) EXPECT_EQ(a_.turn(), 0);
  EXPECT_EQ(a_.completions(), 1);
  EXPECT_EQ(std::memcmp(a_.buffer.data(), b_.buffer.data() + 4, length), 0);
}

TEST_F(LongTransferTest, ThePeerDeregistersInBetween) {
  write(*a_.qp);
  EXPECT_EQ(a_.turn(), 0);
  EXPECT_EQ(b_.deregister(), VerbsStatus::ok);
  EXPECT_GT(a_.turn(), 0) << "packets ask the peer, which will refuse them";
  EXPECT_EQ(arrived(), turn_bytes);
  EXPECT_EQ(a_.completions(), 0);
  EXPECT_EQ(a_.path->moved().transfers, 0u);
}

TEST_F(LongTransferTest, AnotherRegionGetsTheSameKeyInBetween) {
  write(*a_.qp);
  EXPECT_EQ(a_.turn(), 0);
  EXPECT_TRUE(b_.path->withdraw(*b_.region));
  b_.path->expose(*b_.region);
  EXPECT_GT(a_.turn(), 0);
  EXPECT_EQ(arrived(), turn_bytes);
}

TEST_F(LongTransferTest, ThePeersQueuePairFailsInBetween) {
  write(*a_.qp);
  EXPECT_EQ(a_.turn(), 0);
  b_.move_qp(verbs::QpState::error);
  EXPECT_GT(a_.turn(), 0);
  EXPECT_EQ(arrived(), turn_bytes);
}

TEST_F(LongTransferTest, TheRegionItselfIsDeregisteredInBetween) {
  write(*a_.qp);
  EXPECT_EQ(a_.turn(), 0);
  EXPECT_EQ(a_.deregister(), VerbsStatus::ok);
  EXPECT_EQ(a_.turn(), 0);
  EXPECT_EQ(arrived(), turn_bytes);
  verbs::Completion completion;
  ASSERT_TRUE(a_.poll(completion));
  EXPECT_EQ(completion.status, verbs::CompletionStatus::local_protection_error);
  EXPECT_EQ(a_.qp->state(), verbs::QpState::error);
}

TEST_F(LongTransferTest, TheQueuePairFailsInBetween) {
  write(*a_.qp);
  EXPECT_EQ(a_.turn(), 0);
  a_.move_qp(verbs::QpState::error);
  for (int turns = 0; turns < 3; ++turns) EXPECT_EQ(a_.turn(), 0);
  EXPECT_EQ(arrived(), turn_bytes);
  verbs::Completion completion;
  ASSERT_TRUE(a_.poll(completion));
  EXPECT_EQ(completion.status, verbs::CompletionStatus::flushed);
  EXPECT_FALSE(a_.poll(completion));
  // A queue pair that begins again has nothing left of it.
  a_.move_qp(verbs::QpState::reset);
  a_.connect(*a_.qp, b_.qp->number, both, {1, 1});
  write(*a_.qp, 2 * turn_bytes);
  a_.turn();
  a_.turn();
  EXPECT_EQ(a_.completions(), 1);
}

TEST_F(LongTransferTest, TheQueuePairIsDestroyedInBetween) {
  write(*a_.qp);
  EXPECT_EQ(a_.turn(), 0);
  a_.destroy_qp();
  for (int turns = 0; turns < 3; ++turns) EXPECT_EQ(a_.turn(), 0);
  EXPECT_EQ(arrived(), turn_bytes);
  EXPECT_FALSE(a_.path->has_unfinished());
  write(*a_.second_qp, 8);
  a_.turn();
  EXPECT_EQ(a_.completions(), 1);
}

TEST_F(LongTransferTest, CompletesBeforeASendQueueHasDrained) {
  write(*a_.qp, 3 * turn_bytes);
  write(*a_.qp, 8);
  a_.turn();
  a_.move_qp(verbs::QpState::sqd);
  EXPECT_FALSE(a_.is_drained());
  a_.turn();
  EXPECT_FALSE(a_.is_drained());
  a_.turn();
  EXPECT_TRUE(a_.is_drained());
  EXPECT_EQ(a_.completions(), 1);
  a_.turn();
  EXPECT_EQ(a_.completions(), 0) << "the next request waits for RTS";
  a_.move_qp(verbs::QpState::rts);
  a_.turn();
  EXPECT_EQ(a_.completions(), 1);
}

TEST_F(LongTransferTest, IsClosedInBetween) {
  write(*a_.qp);
  EXPECT_EQ(a_.turn(), 0);
  a_.path->set_open(false);
  EXPECT_GT(a_.turn(), 0);
  EXPECT_EQ(arrived(), turn_bytes);
}

TEST_F(LongTransferTest, ManyShortOnesAreBoundedToo) {
  constexpr int in_a_turn = turn_bytes / HostPath::transfer_bytes_min;
  int completed = 0;
  a_.path->begin_turn();
  for (int i = 0; i < in_a_turn + 5; ++i) {
    write(*a_.qp, 8);
    a_.pull();
    completed += a_.completions();
  }
  EXPECT_EQ(completed, in_a_turn);
  a_.turn();
  EXPECT_EQ(a_.completions(), 5);
}

}  // namespace
}  // namespace tulle::live
