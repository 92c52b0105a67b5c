#pragma once

// The processes of this host and user with which queue pairs of this process are connected: their
// tables (live/path/memory/peer_table.h), and this process's own, which they see.
//
// A peer is known from the moment a queue pair is connected to it until it dies. A peer that the
// agent does not name, or whose notes would mean nothing here (in another PID namespace, say), is
// no local peer, and UDP serves.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "live/path/memory/peer_files.h"
#include "live/path/memory/peer_table.h"
#include "live/slots.h"
#include "os/unique_fd.h"

namespace tulle::live {

struct LocalPeer {
  const PeerTable* table = nullptr;  // null: this place is free
  const std::byte* ring = nullptr;   // the peer's ring to this process
  int pid = 0;
  std::uint32_t slot = 0;
  std::uint32_t turn = 0;     // of the slot's numbers, the part that the peer has
  std::uint32_t life = 0;     // the peer lives while the word of its table's mutex has this value
  bool is_reachable = false;  // this process may read and write the peer's memory
  std::uint32_t uses = 0;     // how often this place has been taken
  UniqueFd doorbell;          // a Unix socket that wakes the peer
  PeerFiles files;            // those of the peer's that this process has mapped

  bool is_alive() const { return table != nullptr && table->life_word().load() == life; }
};

class LocalPeers {
 public:
  struct Found {
    int pid = 0;
    UniqueFd table;
    UniqueFd doorbell;
  };
  // Finds the process that holds the slot of a queue pair number. An error means that there is none
  // that may be asked for.
  using Find = std::function<Result<Found>(QpNumber number)>;

  static Result<std::unique_ptr<LocalPeers>> create(std::uint32_t own_slot, Find find);
  // Called by the thread that called live_with_this_thread(), or when that thread has ended.
  ~LocalPeers();

  // Peers map this file. The host agent hands it to processes that ask for this one.
  int table_fd() const { return table_fd_.get(); }
  PeerTable& table() const { return *table_; }
  // Returns this process's ring to the process of a slot.
  std::byte* ring_to(std::uint32_t slot) const { return file_ + PeerFile::ring_at(slot); }
  std::uint32_t own_slot() const { return own_slot_; }
  // Peers come while the calling thread lives: its end tells them that this process's memory is no
  // longer what the table describes. Called once.
  void live_with_this_thread();
  // Called in a forked child, which shares the file with its parent: from now on this object uses
  // separate memory.
  void forget_in_child();

  // Returns the process whose numbers include this one, or null if it is no local peer.
  LocalPeer* find(QpNumber number);
  // A token names a peer for as long as that peer lives. It is not 0.
  std::uint32_t token_of(const LocalPeer& peer) const;
  // Returns null if the peer is gone.
  LocalPeer* with_token(std::uint32_t token);
  // Returns the peer even if it is dead, as long as its memory is mapped; null after that.
  LocalPeer* mapped(std::uint32_t token);
  // Unmaps the files that peers no longer show, and those of dead peers.
  void sweep_files();
  // Returns all places, of which some are free.
  std::span<LocalPeer> places() { return places_; }
  // Changes whenever a peer comes, or the memory of a dead one is unmapped. Places move then.
  std::uint32_t changes() const { return changes_; }

 private:
  LocalPeers(std::uint32_t own_slot, Find find);
  Result<void> make_table();
  LocalPeer* add(QpNumber number, Found& found);
  bool can_observe(const LocalPeer& peer) const;
  static bool is_reachable(const LocalPeer& peer);
  static void close(LocalPeer& peer);
  void close_dead();

  std::uint32_t own_slot_;
  Find find_;
  UniqueFd table_fd_;
  std::byte* file_ = nullptr;
  PeerTable* table_ = nullptr;
  std::uint64_t proof_;
  std::vector<LocalPeer> places_;
  std::uint32_t changes_ = 0;
};

}  // namespace tulle::live
