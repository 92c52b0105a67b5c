#pragma once

// The direct path between processes of one host. The initiator checks the key in the peer's table
// in shared memory and copies with process_vm_writev or process_vm_readv. If the system forbids
// this (another user, another PID namespace, a stricter ptrace scope), connect() finds out and
// packets serve.
//
// A WRITE is a visit (live/path/memory/visits.h), and its system call is made only if the peer has
// withdrawn nothing since the initiator looked. A queue pair is exposed only if this process can
// see the notes of its peer, who may visit from then on. A READ needs no visit: it counts only if
// the peer has withdrawn nothing by its end. Either counts only if the peer has lived on with the
// same memory, which a robust mutex tells.
//
// Where the peer shares the region's memory (live/path/memory/shared_regions.h), the initiator maps
// it and copies by itself, under the same checks and without a system call.
//
// The driver's turns bound how long a transfer holds the device's lock. In each turn all transfers
// together move turn_bytes at most. A longer transfer continues in the driver's next turns, between
// which other callers get the lock.

#include <sys/uio.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "live/path/memory/local_peers.h"
#include "live/path/memory/shared_regions.h"
#include "live/path/memory/visits.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

class HostPath final : public transport::DirectPath {
 public:
  using Peer = LocalPeers::Found;
  using FindPeer = LocalPeers::Find;
  // Returns true if the address is one of this host's.
  using IsLocal = std::function<bool(const Gid& gid)>;

  // Regions whose memory is in files of `shared` are shown to peers. Null means that this process
  // shares none.
  static Result<std::unique_ptr<HostPath>> create(std::uint32_t own_slot, FindPeer find_peer,
                                                  IsLocal is_local,
                                                  SharedRegions* shared = nullptr);
  ~HostPath() override;

  LocalPeers& peers() { return *peers_; }
  // Called in a forked child: from now on this object neither visits nor is visited.
  void forget_in_child();
  // While the path is closed, neither this process nor its peers use it: all traffic is visible on
  // the wire.
  void set_open(bool open);

  void expose(const verbs::MemoryRegion& region) override;
  void expose(const transport::QueuePair& qp) override;
  [[nodiscard]] bool withdraw(const verbs::MemoryRegion& region) override;
  void withdraw(const transport::QueuePair& qp) override;
  std::uint32_t connect(const transport::QueuePair& qp) override;
  bool submit(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
              Ticket& ticket) override;
  bool step(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
            Ticket& ticket) override;

  static constexpr std::uint32_t turn_bytes = 1 << 20;
  // A transfer counts as at least this many bytes, since each costs system calls.
  static constexpr std::uint32_t transfer_bytes_min = 4096;
  // Allows turn_bytes to move.
  void begin_turn() {
    allowance_ = turn_bytes;
    has_unfinished_ = false;
  }
  // Returns true if a transfer of this turn must continue in the next one.
  bool has_unfinished() const { return has_unfinished_; }

  // Totals of what this side has moved.
  struct Moved {
    std::uint64_t transfers = 0;
    std::uint64_t bytes = 0;
  };
  const Moved& moved() const { return moved_; }
  // Returns how many queue pairs reach their peers, processes of this host, through memory.
  std::uint32_t queue_pairs() const { return open_ ? exposed_queue_pairs_ : 0; }

 private:
  // A permit is what the peer's table allowed, and where.
  struct Permit {
    std::uint64_t address = 0;  // in the peer's memory
    std::uint64_t generation = 0;
    std::byte* mapped = nullptr;  // the same memory in this process; null: not mapped
  };
  using Pieces = std::array<iovec, verbs::sges_max>;
  struct Step {
    const LocalPeer& owner;
    std::uint32_t withdrawals = 0;  // of the owner, before this process looked
    std::span<const iovec> local;
    std::uint32_t bytes = 0;
  };
  enum class Outcome : std::uint8_t { moved, refused, changed };

  HostPath() = default;
  LocalPeer* peer_of(const transport::QueuePair& qp);
  void hide(const transport::QueuePair& qp);
  bool wait_for_visitors();
  bool visit(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
             Ticket& ticket, bool is_first);
  static std::optional<Permit> permit(LocalPeer& owner, const transport::QueuePair& qp,
                                      const Transfer& transfer);
  std::uint64_t show_file(const verbs::MemoryRegion& region);
  void show_displaced_files();
  void hide_file(const verbs::MemoryRegion& region);
  static Outcome read(const Step& step, std::uint64_t address);
  static Outcome write(const Step& step, std::uint64_t address);
  static Outcome read_mapped(const Step& step, const std::byte* from);
  static Outcome write_mapped(const Step& step, std::byte* to);
  Outcome move_next(LocalPeer& owner, const transport::QueuePair& qp, const Transfer& transfer,
                    Ticket& ticket, bool is_first);

  IsLocal is_local_;
  std::unique_ptr<LocalPeers> peers_;
  SharedRegions* shared_ = nullptr;
  // The number of this process's regions in each of the files that it shows.
  std::array<std::uint32_t, PeerTable::files_max> file_uses_{};
  std::uint64_t displacements_ = 0;  // that the files in the table take into account
  PeerTable* table_ = nullptr;       // this process's
  bool has_waited_ = true;  // false: a visit to what has been withdrawn may still be under way
  bool open_ = true;
  std::uint64_t generations_ = 0;
  std::uint32_t own_visits_ = 0;
  std::uint32_t allowance_ = turn_bytes;  // bytes that may still move in this turn
  bool has_unfinished_ = false;
  std::uint32_t exposed_queue_pairs_ = 0;
  Moved moved_;
};

}  // namespace tulle::live
