// Owns what processes share on the direct path: the table that a peer shows, in which it also notes
// its visits. Its bytes change between the calls.
//
// A transfer must read and write nothing of this process but its own pieces, move no more than it
// is long and no more in a turn than a turn allows. Withdrawing must come to an end, whatever
// visitors wrote, and must succeed as long as no living process claims to be visiting.

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/script_fuzz.h"
#include "live/path/memory/hostile_peer_fuzz.h"

namespace tulle::live {
namespace {

using base::Script;
using verbs::Access;

constexpr std::uint32_t own_slot = 3;
constexpr std::uint32_t peer_number = hostile_qp.value;
constexpr std::size_t guard_bytes = 4'096;
constexpr std::size_t file_bytes = HostilePeer::memory.size();
constexpr std::size_t local_bytes = HostPath::turn_bytes + (64 << 10);  // more than a turn moves

// The descriptors of a sealed memory file, of one that is not sealed, and of a pipe's ends. The
// peer's process, a child of this one, has copies of them.
const std::array<int, 4>& descriptors() {
  static const std::array<int, 4> made = [] {
    static const UniqueFd sealed = std::move(*make_shared_memory("tulle-fuzz-region", file_bytes));
    static const UniqueFd unsealed(memfd_create("tulle-fuzz-unsealed", MFD_CLOEXEC));
    int ends[2] = {-1, -1};
    TULLE_CHECK(ftruncate(unsealed.get(), file_bytes) == 0 && pipe2(ends, O_CLOEXEC) == 0);
    return std::array<int, 4>{sealed.get(), unsealed.get(), ends[0], ends[1]};
  }();
  return made;
}

class Run {
 public:
  explicit Run(Script& script)
      : script_(script),
        path_(peer_.open_path(own_slot, {})),
        adapter_({}),
        connection_(adapter_, std::span(local(), local_bytes),
                    verbs::AccessFlags(Access::remote_write) | Access::remote_read) {
    auto own = map_shared_memory(path_->peers().table_fd(), PeerFile::bytes, MapFor::reading);
    TULLE_CHECK(own);
    own_ = static_cast<const PeerTable*>(*own);
  }
  ~Run() {
    std::fill_n(local(), read_end_, guard);
    path_.reset();
    munmap(const_cast<PeerTable*>(own_), PeerFile::bytes);
  }

  void go() {
    while (!script_.is_over()) {
      step();
      TULLE_CHECK(is_guard(std::span(memory_).first(guard_bytes)));
      TULLE_CHECK(is_guard(std::span(memory_).last(guard_bytes)));
    }
  }

 private:
  std::byte* local() { return memory_.data() + guard_bytes; }

  void step() {
    switch (script_.below(12)) {
      case 0:
        token_ = path_->connect(*connection_.qp);
        return;
      case 1:
        return offer();
      case 2:
        return scribble(peer_.table());
      case 3:
        peer_.table().visit = script_.number();
        return;
      case 4:
      case 5:
        path_->expose(*connection_.region);
        return path_->expose(*connection_.qp);
      case 6:
        note_a_visit_of_nobody();
        TULLE_CHECK(path_->withdraw(*connection_.region));
        return path_->withdraw(*connection_.qp);
      case 7:
        return path_->set_open(!script_.one_in(4));
      case 10:
      case 11:
        return list_file();
      default:
        return transfer();
    }
  }

  // No living process visits: these numbers are free, wrong, or of this process's dead.
  void note_a_visit_of_nobody() {
    constexpr std::array<std::uint32_t, 5> threads = {0, UINT32_MAX, 1u << 31, INT32_MAX,
                                                      0x3FFF'FFFF};
    peer_.table().visit = Visit::word(threads[script_.below(5)], own_slot, script_.byte());
  }

  // Makes the peer's table allow a transfer, mostly to its memory.
  void offer() {
    auto& qp = peer_.table().qps[PeerTable::qp_set(peer_number)];
    qp.destination = connection_.qp->number.value;
    qp.access = 0x1F;
    qp.pd = 5;
    qp.number = peer_number;
    auto& key = peer_.table().keys[PeerTable::key_set(key_)];
    key.access = 0x1F;
    key.pd = 5;
    key.iova = script_.one_in(4) ? script_.number() : 0x9000;
    key.length = script_.one_in(4) ? script_.number() : HostilePeer::memory.size();
    key.address = script_.one_in(8) ? script_.number()
                                    : reinterpret_cast<std::uint64_t>(HostilePeer::memory.data());
    key.file = script_.below(4);
    key.generation = script_.below(3);
    key.key = key_;
  }

  // Lists a memory file, mostly as it is: a sealed one with the peer's memory, one whose size may
  // change, or what is no memory file.
  void list_file() {
    const int fd = descriptors()[script_.one_in(8) ? 1 + script_.below(3) : 0];
    struct stat status {};
    TULLE_CHECK(fstat(fd, &status) == 0);
    auto& entry = peer_.table().files[script_.below(2)];
    entry.address = script_.one_in(8) ? script_.number()
                                      : reinterpret_cast<std::uint64_t>(HostilePeer::memory.data());
    entry.bytes = script_.one_in(8) ? script_.number() : file_bytes;
    entry.inode = script_.one_in(8) ? script_.word() : status.st_ino;
    entry.fd = script_.one_in(8) ? static_cast<std::int32_t>(script_.word()) : fd;
    entry.is_displaced = static_cast<std::uint8_t>(script_.one_in(4) ? script_.byte() : 0);
    entry.number = script_.below(4);
    peer_.table().file_places = script_.one_in(8) ? script_.word() : 2;
  }

  // Changes bytes of a table: its head, the entries that are used, or anywhere.
  void scribble(PeerTable& table) {
    auto* bytes = reinterpret_cast<std::byte*>(&table);
    std::size_t at = 0;
    switch (script_.below(5)) {
      case 4:
        at = offsetof(PeerTable, files) + script_.byte() % (2 * sizeof(PeerTable::FileEntry));
        break;
      case 0:
        at = script_.below(offsetof(PeerTable, qps) - 12);
        break;
      case 1:
        at = static_cast<std::size_t>(
                 reinterpret_cast<std::byte*>(&table.qps[PeerTable::qp_set(peer_number)]) - bytes) +
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
    bool is_allowed = path_->submit(*connection_.qp, token_, transfer, ticket);
    std::uint32_t before = 0;
    for (int turn = 0; turn < 5; ++turn) {
      TULLE_CHECK(ticket.moved <= transfer.length);
      TULLE_CHECK(ticket.moved - before <= HostPath::turn_bytes);
      if (!is_allowed || ticket.moved == transfer.length) break;
      if (script_.one_in(4)) scribble(peer_.table());
      before = ticket.moved;
      path_->begin_turn();
      is_allowed = path_->step(*connection_.qp, token_, transfer, ticket);
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
  HostilePeer peer_;
  std::unique_ptr<HostPath> path_;
  device::Adapter adapter_;
  HostileConnection connection_;
  const PeerTable* own_ = nullptr;
  std::uint32_t token_ = 0;
  std::size_t read_end_ = 0;  // the end of what READs may have changed
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static_cast<void>(tulle::live::descriptors());
  tulle::live::HostilePeer::keep_alive();
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
