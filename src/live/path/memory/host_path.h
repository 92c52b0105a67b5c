#pragma once

// The direct path between processes of one host. The initiator checks the key in the peer's table
// in shared memory and copies with process_vm_writev or process_vm_readv. If the system forbids
// this (another user, another PID namespace, a stricter ptrace scope), connect() finds out and
// packets serve as before.
//
// A WRITE is a visit (live/path/memory/visits.h), and its system call is made only if the peer has
// withdrawn nothing since the initiator looked. A queue pair is exposed only if this process can
// see the notes of its peer, who may visit from then on. A READ needs no visit: it counts only if
// the peer has withdrawn nothing by its end. Either counts only if the peer has lived on with the
// same memory, which a robust mutex tells.
//
// The driver's turns bound how long a transfer holds the device's lock. In each turn all transfers
// together move turn_bytes at most. A transfer that is longer goes on in the driver's next turns,
// between which other callers get the lock.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "device/adapter.h"
#include "live/path/memory/peer_table.h"
#include "live/path/memory/visits.h"
#include "live/unique_fd.h"

namespace tulle::live {

class HostPath final : public transport::DirectPath {
 public:
  struct Peer {
    int pid = 0;
    UniqueFd table;
  };
  // Finds the process that holds the slot of a queue pair number. An error means that there is none
  // that may be asked for.
  using FindPeer = std::function<Result<Peer>(QpNumber number)>;
  // Returns true if the address is one of this host's.
  using IsLocal = std::function<bool(const Gid& gid)>;

  static Result<std::unique_ptr<HostPath>> create(std::uint32_t own_slot, FindPeer find_peer,
                                                  IsLocal is_local);
  ~HostPath() override;

  // What peers map. The host agent hands it to processes that ask for this one.
  int table_fd() const { return table_fd_.get(); }
  // Peers come while the calling thread lives: its end tells them that this process's memory is no
  // longer what the table describes. Called once. The destructor is called by the same thread, or
  // when that thread has ended.
  void live_with_this_thread();
  // Called in a forked child, which shares the table with its parent: from now on this object uses
  // memory of its own, and neither visits nor is visited.
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
  // Returns true if a transfer of this turn must go on in the next one.
  bool has_unfinished() const { return has_unfinished_; }

  // Totals of what this side has moved.
  struct Moved {
    std::uint64_t transfers = 0;
    std::uint64_t bytes = 0;
  };
  const Moved& moved() const { return moved_; }

 private:
  // A peer whose table is mapped. The peer is alive while the word of its table's mutex has this
  // value.
  struct Connection {
    const PeerTable* table = nullptr;  // null: this place is free
    int pid = 0;
    std::uint32_t slot = 0;
    std::uint32_t life = 0;
    bool is_reachable = false;  // this process may write to the peer's memory
    std::uint32_t uses = 0;     // how often this place has been taken
    bool is_alive() const { return table->life_word().load() == life; }
  };
  // What the peer's table allowed, and where.
  struct Permit {
    std::uint64_t address = 0;  // in the peer's memory
    std::uint64_t generation = 0;
  };
  enum class Outcome : std::uint8_t { moved, refused, changed };

  HostPath() = default;
  Result<void> make_table();
  bool can_observe(const Connection& connection) const;
  static bool reachable(const Connection& connection);
  Connection* peer_of(const transport::QueuePair& qp);
  Connection* add(std::uint32_t slot, const Peer& peer);
  std::uint32_t token_for(std::size_t place) const;
  Connection* connection_of(std::uint32_t token);
  static void close(Connection& connection);
  void close_dead();
  bool wait_for_visitors();
  bool visit(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
             Ticket& ticket, bool is_first);
  static std::optional<Permit> permit(const Connection& connection, const transport::QueuePair& qp,
                                      const Transfer& transfer);
  Outcome move_next(const Connection& connection, const transport::QueuePair& qp,
                    const Transfer& transfer, Ticket& ticket, bool is_first);

  std::uint32_t own_slot_ = 0;
  FindPeer find_peer_;
  IsLocal is_local_;
  UniqueFd table_fd_;
  PeerTable* table_ = nullptr;
  bool has_waited_ = true;  // false: a visit to what has been withdrawn may still be under way
  std::uint64_t proof_ = 0;
  bool open_ = true;
  std::uint64_t generations_ = 0;
  std::uint32_t own_visits_ = 0;
  std::uint32_t allowance_ = turn_bytes;  // bytes that may still move in this turn
  bool has_unfinished_ = false;
  Moved moved_;
  std::vector<Connection> connections_;
};

}  // namespace tulle::live
