// Owns what processes share on the direct path: the table that a peer shows, in which it also notes
// its visits. Its bytes change between the calls. The peer is a child of this process, so that no
// address in its table is one of this process's.
//
// A transfer must read and write nothing of this process but its own pieces, move no more than it
// is long and no more in a turn than a turn allows. Withdrawing must come to an end, whatever
// visitors wrote, and must succeed as long as no living process claims to be visiting.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "live/path/memory/host_path.h"
#include "live/shared_memory.h"

namespace tulle::live {
namespace {

using base::Script;
using verbs::Access;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::VerbsStatus;

const Gid local_gid = Gid::from_ipv4(0x7F00'0001);
constexpr std::uint32_t own_slot = 3;
constexpr std::byte guard{0xA5};
constexpr std::size_t guard_bytes = 4'096;
constexpr std::size_t local_bytes = HostPath::turn_bytes + (64 << 10);  // more than a turn moves

bool is_guard(std::span<const std::byte> bytes) {
  // Each byte is compared with the next, which the library does fast.
  return bytes.empty() || (bytes.front() == guard &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// Lie at the same addresses in the child.
std::uint64_t child_proof = 0x1234'5678'9ABC'DEF0;
std::array<std::byte, 64 * 1024> child_memory;

pid_t child = 0;

void start_child() {
  child = fork();
  TULLE_CHECK(child >= 0);
  if (child != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) pause();
}

void keep_child() {
  if (child != 0 && waitpid(child, nullptr, WNOHANG) == 0) return;
  start_child();
}

template <typename Memory>
Memory* map(int fd) {
  auto memory = map_shared_memory(fd, PeerFile::bytes);
  TULLE_CHECK(memory);
  return static_cast<Memory*>(*memory);
}

UniqueFd copy_of(const UniqueFd& fd) { return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); }

class Run {
 public:
  explicit Run(Script& script) : script_(script), adapter_({}) {
    theirs_fd_ = std::move(*make_shared_memory("tulle-fuzz-table", PeerFile::bytes));
    theirs_ = map<PeerTable>(theirs_fd_.get());
    constexpr std::uint32_t any_thread = 1'234;
    std::memcpy(&theirs_->life, &any_thread, sizeof any_thread);
    theirs_->magic = PeerTable::magic_value;
    theirs_->version = PeerTable::layout_version;
    theirs_->proof_address = reinterpret_cast<std::uint64_t>(&child_proof);
    theirs_->proof = child_proof;
    struct stat status {};
    stat("/proc/self/ns/pid", &status);
    theirs_->pid_namespace = static_cast<std::int64_t>(status.st_ino);
    theirs_->pid = child;
    theirs_->open = 1;
    const auto find_peer = [this](QpNumber) -> Result<HostPath::Peer> {
      return HostPath::Peer{child, copy_of(theirs_fd_), {}};
    };
    path_ = std::move(
        *HostPath::create(own_slot, find_peer, [](const Gid& gid) { return gid == local_gid; }));
    path_->peers().live_with_this_thread();
    auto own = map_shared_memory(path_->peers().table_fd(), PeerFile::bytes, MapFor::reading);
    TULLE_CHECK(own);
    own_ = static_cast<const PeerTable*>(*own);
    open();
  }
  ~Run() {
    std::fill_n(local(), read_end_, guard);
    path_.reset();
    munmap(const_cast<PeerTable*>(own_), PeerFile::bytes);
    munmap(theirs_, PeerFile::bytes);
  }

  void go() {
    while (!script_.is_over()) {
      step();
      TULLE_CHECK(is_guard(std::span(memory_).first(guard_bytes)));
      TULLE_CHECK(is_guard(std::span(memory_).last(guard_bytes)));
    }
  }

 private:
  void open() {
    VerbsStatus status{};
    adapter_.set_gids({&local_gid, 1});
    auto* pd = adapter_.objects().create_pd(status);
    auto* cq = adapter_.objects().create_cq(16, nullptr, status);
    const auto access =
        verbs::AccessFlags(Access::local_write) | Access::remote_write | Access::remote_read;
    region_ = adapter_.objects().register_memory(*pd, local(), local_bytes, 0x1000, access, status);
    transport::QueuePairInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.send_work_requests = init.receive_work_requests = 8;
    init.send_sges = init.receive_sges = 2;
    qp_ = adapter_.create_qp(init, status);
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    to.access = access;
    modify(to, QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port |
                   QpAttribute::access_flags);
    to.state = verbs::QpState::rtr;
    to.destination_qp = QpNumber{77};
    to.address.destination = local_gid;
    to.max_dest_rd_atomic = 1;
    modify(to, QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
                   QpAttribute::destination_qp | QpAttribute::rq_psn |
                   QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
  }
  void modify(const transport::QueuePairAttributes& to, QpAttributeMask mask) {
    TULLE_CHECK(adapter_.modify(*qp_, to, mask | QpAttribute::state) == VerbsStatus::ok);
  }

  std::byte* local() { return memory_.data() + guard_bytes; }

  void step() {
    switch (script_.below(10)) {
      case 0:
        token_ = path_->connect(*qp_);
        return;
      case 1:
        return offer();
      case 2:
        return scribble(*theirs_);
      case 3:
        theirs_->visit = script_.number();
        return;
      case 4:
      case 5:
        path_->expose(*region_);
        return path_->expose(*qp_);
      case 6:
        note_a_visit_of_nobody();
        TULLE_CHECK(path_->withdraw(*region_));
        return path_->withdraw(*qp_);
      case 7:
        return path_->set_open(!script_.one_in(4));
      default:
        return transfer();
    }
  }

  // No living process visits: these numbers are free, wrong, or of this process's dead.
  void note_a_visit_of_nobody() {
    constexpr std::array<std::uint32_t, 5> threads = {0, UINT32_MAX, 1u << 31, INT32_MAX,
                                                      0x3FFF'FFFF};
    theirs_->visit = Visit::word(threads[script_.below(5)], own_slot, script_.byte());
  }

  // Makes the peer's table allow a transfer, mostly to its memory.
  void offer() {
    auto& qp = theirs_->qps[PeerTable::qp_set(77)];
    qp.destination = qp_->number.value;
    qp.access = 0x1F;
    qp.pd = 5;
    qp.number = 77;
    auto& key = theirs_->keys[PeerTable::key_set(key_)];
    key.access = 0x1F;
    key.pd = 5;
    key.iova = script_.one_in(4) ? script_.number() : 0x9000;
    key.length = script_.one_in(4) ? script_.number() : child_memory.size();
    key.address =
        script_.one_in(8) ? script_.number() : reinterpret_cast<std::uint64_t>(child_memory.data());
    key.generation = script_.below(3);
    key.key = key_;
  }

  // Changes bytes of a table: its head, the entries that are used, or anywhere.
  void scribble(PeerTable& table) {
    auto* bytes = reinterpret_cast<std::byte*>(&table);
    std::size_t at = 0;
    switch (script_.below(4)) {
      case 0:
        at = script_.below(offsetof(PeerTable, qps) - 12);
        break;
      case 1:
        at = static_cast<std::size_t>(
                 reinterpret_cast<std::byte*>(&table.qps[PeerTable::qp_set(77)]) - bytes) +
             script_.byte();
        break;
      case 2:
        at = static_cast<std::size_t>(
                 reinterpret_cast<std::byte*>(&table.keys[PeerTable::key_set(key_)]) - bytes) +
             script_.byte();
        break;
      default:
        at = offsetof(PeerTable, qps) +
             script_.word() % (sizeof(PeerTable) - offsetof(PeerTable, qps) - 16);
    }
    const auto values = script_.bytes(1 + script_.below(12));
    std::copy(values.begin(), values.end(), bytes + at);
  }

  void transfer() {
    if (token_ == 0) return;
    transport::DirectPath::Transfer transfer;
    transfer.read = script_.below(2) == 0;
    transfer.rkey = RemoteKey{key_};
    transfer.remote_address = script_.one_in(4) ? script_.number() : 0x9000u + script_.byte();
    const std::size_t first = script_.one_in(8) ? script_.word() % local_bytes : script_.half();
    const std::size_t second = script_.half() % (local_bytes - first);
    const std::array<std::span<std::byte>, 2> pieces = {std::span(local(), first),
                                                        std::span(local() + first, second)};
    transfer.length = static_cast<std::uint32_t>(first + second);
    transfer.pieces = pieces;
    transport::DirectPath::Ticket ticket;
    path_->begin_turn();
    bool is_allowed = path_->submit(*qp_, token_, transfer, ticket);
    std::uint32_t before = 0;
    for (int turn = 0; turn < 5; ++turn) {
      TULLE_CHECK(ticket.moved <= transfer.length);
      TULLE_CHECK(ticket.moved - before <= HostPath::turn_bytes);
      if (!is_allowed || ticket.moved == transfer.length) break;
      if (script_.one_in(4)) scribble(*theirs_);
      before = ticket.moved;
      path_->begin_turn();
      is_allowed = path_->step(*qp_, token_, transfer, ticket);
    }
    // A WRITE changes nothing here. Only a READ may, and only in its pieces, which begin in front.
    if (transfer.read) read_end_ = std::max(read_end_, first + second);
    TULLE_CHECK(is_guard(std::span(local(), local_bytes).subspan(read_end_)));
    TULLE_CHECK(own_->visit == Visit::none);
  }

  static constexpr std::uint32_t key_ = 0x4455'6600;
  Script& script_;
  // One memory serves all runs. Each leaves it as it found it.
  static inline std::vector<std::byte> memory_ =
      std::vector<std::byte>(local_bytes + 2 * guard_bytes, guard);
  device::Adapter adapter_;
  UniqueFd theirs_fd_;
  PeerTable* theirs_ = nullptr;
  const PeerTable* own_ = nullptr;
  std::unique_ptr<HostPath> path_;
  verbs::MemoryRegion* region_ = nullptr;
  transport::QueuePair* qp_ = nullptr;
  std::uint32_t token_ = 0;
  std::size_t read_end_ = 0;  // the end of what READs may have changed
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::live::keep_child();
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
