#include "live/host_path.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
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
  explicit End(std::uint32_t slot) : slot_(slot), buffer(8192), adapter_(configuration(slot)) {
    adapter_.set_gids({&local_gid, 1});
  }

  void open(End& peer) {
    auto path = HostPath::create(
        slot_,
        [&peer](QpNumber number) -> Result<HostPath::Peer> {
          if (number != peer.qp->number) return Error{"no such peer", 0};
          return HostPath::Peer{getpid(), dup(peer.path->table_fd())};
        },
        [](const Gid& gid) { return gid == local_gid; });
    ASSERT_TRUE(path);
    this->path = std::move(*path);
    adapter_.set_direct_path(this->path.get());
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
    ASSERT_NE(qp, nullptr);
  }

  struct Depths {
    std::uint8_t asked = 1;     // max_rd_atomic
    std::uint8_t answered = 1;  // max_dest_rd_atomic
  };
  void connect(End& peer, verbs::AccessFlags access, Depths depths = {1, 1}) {
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    to.access = access;
    modify(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                   QpAttribute::port | QpAttribute::access_flags);
    to.state = verbs::QpState::rtr;
    to.destination_qp = peer.qp->number;
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
    const verbs::Sge sges[] = {{address(), bytes / 2, region->lkey()},
                               {address() + bytes / 2, bytes - bytes / 2, region->lkey()}};
    verbs::SendRequest request;
    request.opcode = opcode;
    request.flags = verbs::SendFlag::signaled;
    request.sges = sges;
    request.remote_address = remote_address;
    request.rkey = rkey;
    EXPECT_EQ(adapter_.post_send(*qp, request), VerbsStatus::ok);
    int packets = 0;
    for (device::Datagram datagram; adapter_.pull_datagram(Time{}, datagram);) ++packets;
    return packets;
  }

  int completions() {
    verbs::Completion completion;
    int count = 0;
    for (; cq_->poll({&completion, 1}) == 1; ++count) {
      EXPECT_EQ(completion.status, verbs::CompletionStatus::success);
    }
    return count;
  }

  VerbsStatus deregister() { return adapter_.objects().destroy(region); }
  std::uint64_t address() { return reinterpret_cast<std::uint64_t>(buffer.data()); }

 private:
  static device::Configuration configuration(std::uint32_t slot) {
    device::Configuration configuration;
    configuration.seed = 40 + slot;
    configuration.first_qp = QpNumber{slot * 0x10000};
    return configuration;
  }
  void modify(const transport::QueuePairAttributes& to, verbs::QpAttributeMask mask) {
    EXPECT_EQ(adapter_.modify(*qp, to, mask), VerbsStatus::ok);
  }

  std::uint32_t slot_;

 public:
  std::vector<std::byte> buffer;
  std::unique_ptr<HostPath> path;
  verbs::MemoryRegion* region = nullptr;
  transport::QueuePair* qp = nullptr;

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

}  // namespace
}  // namespace tulle::live
