#pragma once

// UDP port 4791, shared by all processes of a host as they share an adapter. The port is held by a
// group of SO_REUSEPORT sockets, one for each slot. A classic BPF program hands each datagram to
// the slot that its destination queue pair number names.
//
// The program knows sockets by their place in the group, and Linux fills a gap with the last socket
// of the group. So no socket may ever be closed while others live, no matter which process dies,
// the host agent included. This is why there is a descriptor store (`vault`): a socket pair into
// which all sockets were sent as SCM_RIGHTS and from which no process takes them. Descriptors in
// flight stay open, and every process holds the store. A new agent reads the group back, in order,
// with MSG_PEEK, which duplicates descriptors.
//
// The store also holds the ledger: a memfd with a record for each slot, and a lock (of an open file
// description) for each slot in use. Only the slot's process owns the lock's descriptor, so the
// lock goes with the process even if no agent was there to see it.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "live/slots.h"
#include "os/unique_fd.h"

namespace tulle::live {

struct SlotRecord {
  std::int32_t pid = 0;  // 0 means never used
  std::uint32_t uid = 0;
  std::uint32_t first_qp = 0;
  std::uint32_t turn = 0;  // index of the part of the slot's numbers that was given last
  std::array<char, 32> command{};
  std::array<char, 32> device{};
};

// Returns a duplicate of a slot's socket, or nothing if the descriptor is no descriptor store or no
// duplicate can be had.
UniqueFd socket_in(int vault, std::uint32_t slot);

class SocketGroup {
 public:
  // Binds the port. The error is EADDRINUSE if the port is taken.
  static Result<SocketGroup> create(std::uint16_t port);
  // Restores the group from a descriptor store that a process kept.
  static Result<SocketGroup> recover(UniqueFd vault);

  int vault() const { return vault_.get(); }
  int socket(std::uint32_t slot) const { return sockets_[slot].get(); }
  SlotRecord& record(std::uint32_t slot) { return ledger_[slot]; }
  // Returns the queue pair numbers of the process that has the slot, or had it last.
  QpNumbers numbers_of(std::uint32_t slot) const {
    return {ledger_[slot].first_qp, qps_per_process};
  }
  std::uint16_t port() const { return port_; }

  // Locks a slot, drains stale datagrams and lets in new ones for these queue pairs, or for all of
  // the slot's. The returned descriptor is for the slot's process. Returns nothing if the slot is
  // in use.
  UniqueFd lock(std::uint32_t slot, QpNumbers numbers);
  UniqueFd lock(std::uint32_t slot) { return lock(slot, {slot * qps_per_slot, qps_per_slot}); }
  bool is_locked(std::uint32_t slot) const;
  // Makes the kernel refuse the slot's datagrams until the gate is opened or the slot is locked.
  void close_gate(std::uint32_t slot);
  // Lets in datagrams for these queue pairs and for multicast groups. Others are late: they are for
  // a process that had the slot before, perhaps another user's. The kernel examines only the first
  // of several datagrams that it has joined (UDP_GRO).
  void open_gate(std::uint32_t slot, QpNumbers numbers);

  SocketGroup(SocketGroup&& other) noexcept;
  SocketGroup& operator=(SocketGroup&&) = delete;
  ~SocketGroup();

 private:
  SocketGroup() = default;
  Result<void> bind_all();
  Result<void> make_vault();
  Result<void> map_ledger();

  std::vector<UniqueFd> sockets_;  // indexed by slot
  UniqueFd vault_;
  UniqueFd ledger_fd_;
  SlotRecord* ledger_ = nullptr;
  std::uint16_t port_ = 0;
};

}  // namespace tulle::live
