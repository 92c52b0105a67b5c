#pragma once

// The direct path between processes of one host. The initiator checks the key in the peer's table
// in shared memory and copies with process_vm_writev or process_vm_readv. If the system forbids
// this (another user, another PID namespace, a stricter ptrace scope), connect() finds out and
// packets serve as before.
//
// The driver's turns bound how long a transfer holds the device's lock. In each turn all transfers
// together move turn_bytes at most. A transfer that is longer goes on in the driver's next turns,
// between which other callers get the lock.

#include <functional>
#include <memory>
#include <unordered_map>

#include "base/result.h"
#include "device/adapter.h"
#include "live/path/memory/peer_table.h"

namespace tulle::live {

class HostPath final : public transport::DirectPath {
 public:
  struct Peer {
    int pid = 0;
    int table_fd = -1;  // descriptor of the peer's table; the receiver closes it
  };
  // Finds the process that holds the slot of a queue pair number. An error means that there is none
  // that may be asked for.
  using FindPeer = std::function<Result<Peer>(QpNumber number)>;
  // Returns true if the address is one of this host's.
  using IsLocal = std::function<bool(const Gid& gid)>;

  static Result<std::unique_ptr<HostPath>> create(std::uint32_t own_slot, FindPeer find_peer,
                                                  IsLocal is_local);
  ~HostPath() override;

  // The table that peers map. The host agent hands it to processes that ask for this one.
  int table_fd() const { return table_fd_; }
  // While the path is closed, neither this process nor its peers use it: all traffic is visible on
  // the wire.
  void set_open(bool open);

  void expose(const verbs::MemoryRegion& region) override;
  void expose(const transport::QueuePair& qp) override;
  void withdraw(const verbs::MemoryRegion& region) override;
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
  // Returns true if a transfer of this turn must go on in the next one.
  bool has_unfinished() const { return has_unfinished_; }

  // Totals of what this side has moved.
  struct Moved {
    std::uint64_t transfers = 0;
    std::uint64_t bytes = 0;
  };
  const Moved& moved() const { return moved_; }

 private:
  // A peer that is known to be reachable.
  struct Connection {
    PeerTable* table = nullptr;
    int pid = 0;
    int pidfd = -1;
  };

  HostPath() = default;
  Result<void> map_own_table();
  bool reachable(const Connection& connection) const;
  std::uint32_t token_of(const Peer& peer);
  void wait_for_visitors();
  bool visit(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
             Ticket& ticket, bool is_first);
  bool copy(const Connection& connection, const Transfer& transfer, std::uint64_t remote_address,
            Ticket& ticket);

  std::uint32_t own_slot_ = 0;
  FindPeer find_peer_;
  IsLocal is_local_;
  int table_fd_ = -1;
  PeerTable* table_ = nullptr;
  std::uint64_t proof_ = 0;
  bool open_ = true;
  std::uint64_t generations_ = 0;
  std::uint32_t allowance_ = turn_bytes;  // bytes that may still move in this turn
  bool has_unfinished_ = false;
  Moved moved_;
  std::vector<Connection> connections_;  // indexed by token - 1
};

}  // namespace tulle::live
