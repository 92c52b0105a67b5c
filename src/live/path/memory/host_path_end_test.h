#pragma once

// An end of a connection over the direct path, for tests.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "live/path/memory/host_path.h"
#include "live/slots.h"

namespace tulle::live {

using verbs::Access;
using verbs::QpAttribute;
using verbs::VerbsStatus;

inline const Gid local_gid = Gid::from_ipv4(0x7F00'0001);

// The memory of ends lies in files that their peers map, if the environment has TULLE_TEST_SHARED:
// the same tests then hold for that way. Returns null otherwise.
inline SharedRegions* shared_regions_of_tests() {
  static SharedRegions* const regions = [] {
    if (std::getenv("TULLE_TEST_SHARED") == nullptr) return static_cast<SharedRegions*>(nullptr);
    auto* const made = new SharedRegions;
    made->enable_without_advice();
    return made;
  }();
  return regions;
}

// Private memory of whole pages.
class PageBuffer {
 public:
  explicit PageBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~PageBuffer() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  std::byte* data() const { return memory_; }

 private:
  std::size_t bytes_;
  std::byte* memory_ = nullptr;
};

// One end of a connection: an adapter, a buffer and a queue pair. Both ends live in this process,
// which process_vm_writev can reach too.
class PathEnd {
 public:
  // The buffer lies at `place`, unless that is null.
  explicit PathEnd(std::uint32_t slot, std::size_t bytes = 8192, std::byte* place = nullptr)
      : slot_(slot),
        memory_(place == nullptr ? bytes : 0),
        buffer(place == nullptr ? memory_.data() : place, bytes),
        adapter_(configuration(slot)) {
    adapter_.set_gids({&local_gid, 1});
  }

  void open(PathEnd& peer) {
    open([&peer](QpNumber number) -> Result<HostPath::Peer> {
      if (number != peer.qp->number && number != peer.second_qp->number) {
        return Error{"no such peer", 0};
      }
      return peer.as_peer(getpid());
    });
  }
  // Returns what an agent would tell of this end, which lives in that process.
  HostPath::Peer as_peer(pid_t pid) const {
    return {pid, UniqueFd(dup(path->peers().table_fd())), UniqueFd(dup(button_.get()))};
  }
  void open(HostPath::FindPeer find) {
    find_peer = std::move(find);
    auto path = HostPath::create(
        slot_, [this](QpNumber number) { return find_peer(number); },
        [](const Gid& gid) { return gid == local_gid; }, shared_regions_of_tests());
    ASSERT_TRUE(path);
    this->path = std::move(*path);
    this->path->peers().live_with_this_thread();
    std::array<int, 2> ends{-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    bell_.reset(ends[0]);
    button_.reset(ends[1]);
    adapter_.objects().set_direct_path(this->path.get());
    VerbsStatus status{};
    pd_ = adapter_.objects().create_pd(status);
    region = register_buffer();
    cq_ = adapter_.objects().create_cq(16, nullptr, status);
    transport::QueuePairInit init;
    init.pd = pd_;
    init.send_cq = init.receive_cq = cq_;
    init.send_work_requests = init.receive_work_requests = 8;
    init.send_sges = 2;
    init.receive_sges = 8;
    qp = adapter_.create_qp(init, status);
    second_qp = adapter_.create_qp(init, status);
    ASSERT_NE(second_qp, nullptr);
  }

  verbs::MemoryRegion* register_buffer() {
    const auto access =
        verbs::AccessFlags(Access::local_write) | Access::remote_write | Access::remote_read;
    VerbsStatus status{};
    const auto hold = share();
    return adapter_.objects().register_memory(*pd_, buffer.data(), buffer.size(), address(), access,
                                              status);
  }
  // Shares the buffer, as whoever registers it does.
  SharedRegions::Hold share() const {
    SharedRegions* const shared = shared_regions_of_tests();
    return shared == nullptr ? SharedRegions::Hold() : shared->share(buffer.data(), buffer.size());
  }
  void expose_again() {
    const auto hold = share();
    path->expose(*region);
  }

  struct Attributes {
    std::uint8_t asked = 1;     // max_rd_atomic
    std::uint8_t answered = 1;  // max_dest_rd_atomic
    verbs::Mtu mtu = verbs::Mtu::b1024;
    // Requests are sent again, up to 7 times and after 67 ms; otherwise never.
    bool retries = false;
  };
  void connect(PathEnd& peer, verbs::AccessFlags access,
               Attributes attributes = {1, 1, verbs::Mtu::b1024, false}) {
    connect(*qp, peer.qp->number, access, attributes);
    connect(*second_qp, peer.second_qp->number, access, attributes);
  }
  void connect(transport::QueuePair& qp, QpNumber peer, verbs::AccessFlags access,
               Attributes attributes) {
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
    to.path_mtu = attributes.mtu;
    to.max_dest_rd_atomic = attributes.answered;
    modify(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
                   QpAttribute::path_mtu | QpAttribute::destination_qp | QpAttribute::rq_psn |
                   QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
    to.state = verbs::QpState::rts;
    to.max_rd_atomic = attributes.asked;
    if (attributes.retries) {
      to.timeout = 14;
      to.retry_count = to.rnr_retry = 7;
    }
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
  device::Adapter& adapter() { return adapter_; }
  // Returns how often peers have rung since the last call.
  int rings() {
    int count = 0;
    for (char ring; recv(bell_.get(), &ring, sizeof ring, MSG_DONTWAIT) == 1;) ++count;
    return count;
  }

 private:
  static device::Configuration configuration(std::uint32_t slot) {
    device::Configuration configuration;
    configuration.seed = 40 + slot;
    configuration.first_qp = QpNumber{slot * qps_per_slot};
    return configuration;
  }

  std::uint32_t slot_;
  Time now_;
  PageBuffer memory_;

 public:
  std::span<std::byte> buffer;
  HostPath::FindPeer find_peer;
  std::unique_ptr<HostPath> path;
  verbs::MemoryRegion* region = nullptr;
  transport::QueuePair* qp = nullptr;
  transport::QueuePair* second_qp = nullptr;

 private:
  device::Adapter adapter_;
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
  UniqueFd bell_;
  UniqueFd button_;  // what peers get of it
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
  PathEnd a_{1};
  PathEnd b_{2};
};

// Returns the mapping by which this process writes to a file of shared memory.
template <typename Memory>
Memory* writable_mapping(int fd) {
  struct stat status {};
  EXPECT_EQ(fstat(fd, &status), 0);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, rights, offset, device;
    ino_t inode = 0;
    words >> range >> rights >> offset >> device >> inode;
    if (inode == status.st_ino && rights == "rw-s") {
      return reinterpret_cast<Memory*>(std::stoull(range, nullptr, 16));
    }
  }
  ADD_FAILURE() << "nothing maps it";
  return nullptr;
}

}  // namespace tulle::live
