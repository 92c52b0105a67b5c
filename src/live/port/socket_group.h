#pragma once

// UDP port 4791, shared by all processes of a host as they share an adapter: a group of
// SO_REUSEPORT sockets, one a slot, and a classic BPF program that hands each datagram to the slot
// that its destination queue pair number names.
//
// The program knows sockets by their place in the group, and Linux closes a gap with the last
// socket of the group. So no socket may ever be closed while others live, whoever dies, the agent
// included. Hence the vault: a socket pair into which all sockets were sent as SCM_RIGHTS and from
// which nobody takes them. What is in flight is open, and every process holds the vault. A new
// agent reads the group back, in order, with MSG_PEEK, which duplicates descriptors.
//
// The vault holds the ledger too: a memfd with a record for each slot, and a lock (an open file
// description's) for each that is in use. The lock's descriptor belongs to the slot's process alone
// and so goes with it, even where no agent was there to see it.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "live/unique_fd.h"

namespace tulle::live {

inline constexpr std::uint32_t slot_bits = 7;
inline constexpr std::uint32_t slots = 1u << slot_bits;
inline constexpr std::uint32_t qps_per_slot = 1u << (24 - slot_bits);
// Of a slot's numbers, one process gets a part, and the next process the next part, so that what is
// still under way to a dead process's queue pairs finds none.
inline constexpr std::uint32_t qps_per_process = 16'384;
inline constexpr std::uint32_t agent_slot = 0;  // QP0 and QP1 are the management's

constexpr std::uint32_t slot_of(QpNumber qp) { return qp.value >> (24 - slot_bits); }

struct SlotRecord {
  std::int32_t pid = 0;  // 0: never used
  std::uint32_t uid = 0;
  std::uint32_t first_qp = 0;
  std::uint32_t turn = 0;  // which part of the slot's numbers is next
  std::array<char, 32> command{};
  std::array<char, 32> device{};
};

// A duplicate of a slot's socket; none: this is no vault, or there is no descriptor for it.
UniqueFd socket_in(int vault, std::uint32_t slot);

class SocketGroup {
 public:
  // Binds the port; EADDRINUSE where it is taken.
  static Result<SocketGroup> create(std::uint16_t port);
  // From a vault that a process kept.
  static Result<SocketGroup> recover(UniqueFd vault);

  int vault() const { return vault_.get(); }
  int socket(std::uint32_t slot) const { return sockets_[slot].get(); }
  SlotRecord& record(std::uint32_t slot) { return ledger_[slot]; }
  std::uint16_t port() const { return port_; }

  // Locks a slot and lets its datagrams in, stale ones drained. The descriptor is for its process;
  // none: in use.
  UniqueFd lock(std::uint32_t slot);
  bool is_locked(std::uint32_t slot) const;
  // Refuses the slot's datagrams in the kernel, until it is locked again.
  void close_gate(std::uint32_t slot);

  SocketGroup(SocketGroup&& other) noexcept;
  SocketGroup& operator=(SocketGroup&&) = delete;
  ~SocketGroup();

 private:
  SocketGroup() = default;
  Result<void> bind_all();
  Result<void> make_vault();
  Result<void> map_ledger();

  std::vector<UniqueFd> sockets_;  // by slot
  UniqueFd vault_;
  UniqueFd ledger_fd_;
  SlotRecord* ledger_ = nullptr;
  std::uint16_t port_ = 0;
};

}  // namespace tulle::live
