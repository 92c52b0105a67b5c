#include "live/path/memory/host_path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace tulle::live {
namespace {

using verbs::Access;
using verbs::QpAttribute;
using verbs::VerbsStatus;

const Gid local_gid = Gid::from_ipv4(0x7F00'0001);

// One end of a connection: an adapter, a buffer and a queue pair. Both ends live in this process,
// which process_vm_writev can reach too.
class End {
 public:
  explicit End(std::uint32_t slot, std::size_t bytes = 8192)
      : slot_(slot), buffer(bytes), adapter_(configuration(slot)) {
    adapter_.set_gids({&local_gid, 1});
  }

  void open(End& peer) {
    open([&peer](QpNumber number) -> Result<HostPath::Peer> {
      if (number != peer.qp->number && number != peer.second_qp->number) {
        return Error{"no such peer", 0};
      }
      return HostPath::Peer{getpid(), dup(peer.path->table_fd())};
    });
  }
  void open(HostPath::FindPeer find_peer) {
    auto path = HostPath::create(slot_, std::move(find_peer),
                                 [](const Gid& gid) { return gid == local_gid; });
    ASSERT_TRUE(path);
    this->path = std::move(*path);
    adapter_.objects().set_direct_path(this->path.get());
    VerbsStatus status{};
    pd_ = adapter_.objects().create_pd(status);
    const auto access =
        verbs::AccessFlags(Access::local_write) | Access::remote_write | Access::remote_read;
    region = adapter_.objects().register_memory(*pd_, buffer.data(), buffer.size(), address(),
                                                access, status);
    cq_ = adapter_.objects().create_cq(16, nullptr, status);
    transport::QueuePairInit init;
    init.pd = pd_;
    init.send_cq = init.receive_cq = cq_;
    init.send_work_requests = init.receive_work_requests = 8;
    init.send_sges = init.receive_sges = 2;
    qp = adapter_.create_qp(init, status);
    second_qp = adapter_.create_qp(init, status);
    ASSERT_NE(second_qp, nullptr);
  }

  struct Depths {
    std::uint8_t asked = 1;     // max_rd_atomic
    std::uint8_t answered = 1;  // max_dest_rd_atomic
  };
  void connect(End& peer, verbs::AccessFlags access, Depths depths = {1, 1}) {
    connect(*qp, peer.qp->number, access, depths);
    connect(*second_qp, peer.second_qp->number, access, depths);
  }
  void connect(transport::QueuePair& qp, QpNumber peer, verbs::AccessFlags access, Depths depths) {
    const auto modify = [&](const transport::QueuePairAttributes& to, verbs::QpAttributeMask mask) {
      EXPECT_EQ(adapter_.modify(qp, to, mask), VerbsStatus::ok);
    };
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    to.access = access;
    modify(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                   QpAttribute::port | QpAttribute::access_flags);
    to.state = verbs::QpState::rtr;
    to.destination_qp = peer;
    to.address.destination = local_gid;
    to.max_dest_rd_atomic = depths.answered;
    modify(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
                   QpAttribute::path_mtu | QpAttribute::destination_qp | QpAttribute::rq_psn |
                   QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
    to.state = verbs::QpState::rts;
    to.max_rd_atomic = depths.asked;
    modify(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::timeout |
                   QpAttribute::retry_count | QpAttribute::rnr_retry | QpAttribute::sq_psn |
                   QpAttribute::max_rd_atomic);
  }

  // Posts a WRITE or READ of the buffer's first bytes. Returns the number of packets that it sent
  // at first.
  int post(verbs::SendOpcode opcode, std::uint64_t remote_address, RemoteKey rkey,
           std::uint32_t bytes) {
    post(*qp, opcode, remote_address, rkey, bytes);
    return pull();
  }
  void post(transport::QueuePair& qp, verbs::SendOpcode opcode, std::uint64_t remote_address,
            RemoteKey rkey, std::uint32_t bytes) {
    const verbs::Sge sges[] = {{address(), bytes / 2, region->lkey()},
                               {address() + bytes / 2, bytes - bytes / 2, region->lkey()}};
    verbs::SendRequest request;
    request.opcode = opcode;
    request.flags = verbs::SendFlag::signaled;
    request.sges = sges;
    request.remote_address = remote_address;
    request.rkey = rkey;
    EXPECT_EQ(adapter_.post_send(qp, request), VerbsStatus::ok);
  }
  // One turn of the driver, a moment later. Returns the number of packets that it sent.
  int turn() {
    now_ = now_ + Time::microseconds(1);
    path->begin_turn();
    if (adapter_.next_deadline() <= now_) adapter_.handle_deadline(now_);
    return pull();
  }
  int pull() {
    int packets = 0;
    for (device::Datagram datagram; adapter_.pull_datagram(now_, datagram);) ++packets;
    return packets;
  }
  // Takes the next completion. Returns false if there is none.
  bool poll(verbs::Completion& completion) { return cq_->poll({&completion, 1}) == 1; }

  int completions() {
    verbs::Completion completion;
    int count = 0;
    for (; cq_->poll({&completion, 1}) == 1; ++count) {
      EXPECT_EQ(completion.status, verbs::CompletionStatus::success);
    }
    return count;
  }

  VerbsStatus deregister() { return adapter_.objects().destroy(region); }
  void destroy_qp() { EXPECT_EQ(adapter_.destroy(qp), VerbsStatus::ok); }
  void move_qp(verbs::QpState state) {
    transport::QueuePairAttributes to;
    to.state = state;
    to.sqd_async_notify = true;
    verbs::QpAttributeMask mask(QpAttribute::state);
    if (state == verbs::QpState::sqd) mask = mask | QpAttribute::sqd_async_notify;
    EXPECT_EQ(adapter_.modify(*qp, to, mask), VerbsStatus::ok);
  }
  bool is_drained() {
    bool found = false;
    for (device::Event event; adapter_.pull_event(event);) {
      found |= event.type == verbs::EventType::send_queue_drained;
    }
    return found;
  }
  std::uint64_t address() { return reinterpret_cast<std::uint64_t>(buffer.data()); }

 private:
  static device::Configuration configuration(std::uint32_t slot) {
    device::Configuration configuration;
    configuration.seed = 40 + slot;
    configuration.first_qp = QpNumber{slot * 0x10000};
    return configuration;
  }

  std::uint32_t slot_;
  Time now_;

 public:
  std::vector<std::byte> buffer;
  std::unique_ptr<HostPath> path;
  verbs::MemoryRegion* region = nullptr;
  transport::QueuePair* qp = nullptr;
  transport::QueuePair* second_qp = nullptr;

 private:
  device::Adapter adapter_;
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
};

class HostPathTest : public testing::Test {
 protected:
  void SetUp() override {
    a_.open(b_);
    b_.open(a_);
    const auto access = verbs::AccessFlags(Access::remote_write) | Access::remote_read;
    a_.connect(b_, access);
    b_.connect(a_, access);
  }
  End a_{1};
  End b_{2};
};

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
    End::Depths initiator, target;
    int packets;
  };
  constexpr verbs::AccessFlags access =
      verbs::AccessFlags(Access::remote_write) | Access::remote_read;
  std::uint32_t slot = 5;
  for (const Case& c : {Case{{0, 1}, {1, 1}, 0}, Case{{1, 1}, {1, 0}, 1}}) {
    SCOPED_TRACE(slot);
    End a(slot++), b(slot++);
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
  EXPECT_EQ(a_.post(verbs::SendOpcode::send, 0, {}, 8), 1);
  EXPECT_EQ(a_.post(verbs::SendOpcode::write, b_.address(), b_.region->rkey(), 8), 1);
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

TEST_F(HostPathTest, IsNotUsedFromAnotherPidNamespace) {
  End a(3);
  End b(4);
  a.open(b);
  b.open(a);
  auto* table = static_cast<PeerTable*>(
      mmap(nullptr, sizeof(PeerTable), PROT_READ | PROT_WRITE, MAP_SHARED, b.path->table_fd(), 0));
  ASSERT_NE(table, MAP_FAILED);
  ++table->pid_namespace;
  munmap(table, sizeof(PeerTable));
  const auto access = verbs::AccessFlags(Access::remote_write) | Access::remote_read;
  a.connect(b, access);
  b.connect(a, access);
  EXPECT_EQ(a.post(verbs::SendOpcode::write, b.address(), b.region->rkey(), 8), 1);
  EXPECT_EQ(b.post(verbs::SendOpcode::write, a.address(), a.region->rkey(), 8), 0);
}

TEST_F(HostPathTest, DoesNotWaitForAVisitorThatDied) {
  // Tests a dead visitor whose parent has waited for it, and one whose parent has not.
  for (const bool is_waited_for : {true, false}) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    siginfo_t info;
    waitid(P_PID, child, &info, WEXITED | (is_waited_for ? 0 : WNOWAIT));
    auto* table = static_cast<PeerTable*>(mmap(nullptr, sizeof(PeerTable), PROT_READ | PROT_WRITE,
                                               MAP_SHARED, b_.path->table_fd(), 0));
    ASSERT_NE(table, MAP_FAILED);
    table->visitors[9].store(child);
    b_.path->set_open(false);
    EXPECT_EQ(table->visitors[9].load(), 0);
    munmap(table, sizeof(PeerTable));
    if (!is_waited_for) waitpid(child, nullptr, 0);
  }
}

TEST_F(HostPathTest, WaitsForAVisitorThatLives) {
  auto* table = static_cast<PeerTable*>(
      mmap(nullptr, sizeof(PeerTable), PROT_READ | PROT_WRITE, MAP_SHARED, b_.path->table_fd(), 0));
  ASSERT_NE(table, MAP_FAILED);
  table->visitors[9].store(getpid());
  std::atomic<bool> done = false;
  std::thread owner([&] {
    EXPECT_EQ(b_.deregister(), VerbsStatus::ok);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(done);
  table->visitors[9].store(0);
  owner.join();
  munmap(table, sizeof(PeerTable));
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
  End a_{1, bytes};
  End b_{2, bytes};
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
  End c(3, bytes), d(4, bytes);
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
  b_.path->withdraw(*b_.region);
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

// The peer is a process of its own.
TEST(LongTransferToAnotherProcessTest, ThePeerDiesInBetween) {
  struct Told {
    int table_fd;
    QpNumber qp;
    RemoteKey rkey;
    std::uint64_t address;
  };
  constexpr std::uint32_t bytes = 8 * turn_bytes;
  constexpr auto both = verbs::AccessFlags(Access::remote_write) | Access::remote_read;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = 0;
  Told told{};
  End a(1, bytes);
  a.open([&](QpNumber) -> Result<HostPath::Peer> {
    const std::string table =
        "/proc/" + std::to_string(child) + "/fd/" + std::to_string(told.table_fd);
    return HostPath::Peer{child, ::open(table.c_str(), O_RDWR | O_CLOEXEC)};
  });
  child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    End b(2, bytes);
    b.open([](QpNumber) -> Result<HostPath::Peer> { return Error{"not asked", 0}; });
    b.connect(*b.qp, a.qp->number, both, {1, 1});
    told = {b.path->table_fd(), b.qp->number, b.region->rkey(), b.address()};
    static_cast<void>(::write(ends[1], &told, sizeof told) == sizeof told);
    for (;;) pause();
  }
  ASSERT_EQ(::read(ends[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
  a.connect(*a.qp, told.qp, both, {1, 1});
  a.post(*a.qp, verbs::SendOpcode::write, told.address, told.rkey, bytes);
  EXPECT_EQ(a.turn(), 0) << "the direct path serves";
  EXPECT_EQ(a.turn(), 0);
  kill(child, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_GT(a.turn(), 0) << "packets find out that the peer is gone";
  EXPECT_EQ(a.completions(), 0);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tulle::live
