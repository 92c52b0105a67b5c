#include "live/path/memory/host_path.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "live/shared_memory.h"
#include "live/system_random.h"
#include "live/unique_fd.h"

namespace tulle::live {
namespace {

using verbs::Access;

std::uint64_t identity(const verbs::ProtectionDomain* pd) {
  return reinterpret_cast<std::uint64_t>(pd);
}

PeerTable* map_table(int fd) {
  auto memory = map_shared_memory(fd, sizeof(PeerTable));
  return memory ? static_cast<PeerTable*>(*memory) : nullptr;
}

// Returns the entry with this number, else a free one, else null. An entry changes only while no
// visitor can hold it: its number is cleared first and set last.
template <typename Entry, typename Number>
Entry* claim(Entry* set, Number Entry::*number, std::uint32_t value) {
  Entry* free = nullptr;
  for (std::size_t i = 0; i < PeerTable::ways; ++i) {
    const std::uint32_t there = (set[i].*number).load(std::memory_order_relaxed);
    if (there == value) return &set[i];
    if (there == 0 && free == nullptr) free = &set[i];
  }
  return free;
}

// Returns true if the process is gone or dead. A dead process that its parent has not yet waited
// for still has its number.
bool process_is_gone(std::int32_t pid) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return errno == ESRCH;
  pollfd dead{process.get(), POLLIN, 0};
  return poll(&dead, 1, 0) > 0;
}

// Returns 0 if the namespace is unknown.
std::int64_t own_pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::int64_t>(status.st_ino) : 0;
}

}  // namespace

Result<std::unique_ptr<HostPath>> HostPath::create(std::uint32_t own_slot, FindPeer find_peer,
                                                   IsLocal is_local) {
  if (own_slot >= PeerTable::visitor_slots) return Error{"slot out of range", EINVAL};
  std::unique_ptr<HostPath> path(new HostPath);
  path->own_slot_ = own_slot;
  path->find_peer_ = std::move(find_peer);
  path->is_local_ = std::move(is_local);
  if (auto mapped = path->map_own_table(); !mapped) return mapped.error();
  return path;
}

Result<void> HostPath::map_own_table() {
  // Untouched pages cost nothing, so the table's memory grows with the number of exposed entries.
  auto made = make_shared_memory("tulle-peer-table", sizeof(PeerTable));
  if (!made) return made.error();
  table_fd_ = made->release();
  table_ = map_table(table_fd_);
  if (table_ == nullptr) return Error{"mmap failed", errno};
  proof_ = system_random();
  // Zero bytes are a valid empty table, so only the head is written.
  table_->magic = PeerTable::magic_value;
  table_->version = PeerTable::layout_version;
  table_->proof_address = reinterpret_cast<std::uint64_t>(&proof_);
  table_->proof = proof_;
  table_->pid_namespace = own_pid_namespace();
  table_->pid = getpid();
  table_->open.store(true);
  return {};
}

HostPath::~HostPath() {
  if (table_ != nullptr) {
    table_->open.store(false);
    wait_for_visitors();
    munmap(table_, sizeof(PeerTable));
  }
  if (table_fd_ >= 0) close(table_fd_);
  for (const Connection& connection : connections_) {
    munmap(connection.table, sizeof(PeerTable));
    close(connection.pidfd);
  }
}

void HostPath::set_open(bool open) {
  open_ = open;
  table_->open.store(open);
  if (!open) wait_for_visitors();
}

void HostPath::expose(const verbs::MemoryRegion& region) {
  if (region.memory == nullptr) return;
  auto* entry =
      claim(&table_->keys[PeerTable::key_set(region.key)], &PeerTable::KeyEntry::key, region.key);
  if (entry == nullptr) return;
  entry->access = region.access.bits();
  entry->pd = identity(region.pd);
  entry->iova = region.iova;
  entry->length = region.length;
  entry->address = reinterpret_cast<std::uint64_t>(region.memory);
  entry->generation = ++generations_;
  entry->key.store(region.key, std::memory_order_seq_cst);
}

void HostPath::withdraw(const verbs::MemoryRegion& region) {
  auto* entry =
      claim(&table_->keys[PeerTable::key_set(region.key)], &PeerTable::KeyEntry::key, region.key);
  if (entry == nullptr || entry->key.load(std::memory_order_relaxed) == 0) return;
  entry->key.store(0, std::memory_order_seq_cst);
  wait_for_visitors();
}

void HostPath::expose(const transport::QueuePair& qp) {
  withdraw(qp);  // the earlier entry may differ
  auto* entry = claim(&table_->qps[PeerTable::qp_set(qp.number.value)], &PeerTable::QpEntry::number,
                      qp.number.value);
  if (entry == nullptr || !is_local_(qp.attributes().address.destination.gid)) return;
  entry->destination = qp.attributes().destination_qp.value;
  // Without resources for READs (max_dest_rd_atomic), a responder answers none.
  verbs::AccessFlags access = qp.attributes().access;
  if (qp.attributes().max_dest_rd_atomic == 0) access = access.without(Access::remote_read);
  entry->access = access.bits();
  entry->pd = identity(qp.init.pd);
  entry->number.store(qp.number.value, std::memory_order_seq_cst);
}

void HostPath::withdraw(const transport::QueuePair& qp) {
  auto* entry = claim(&table_->qps[PeerTable::qp_set(qp.number.value)], &PeerTable::QpEntry::number,
                      qp.number.value);
  if (entry == nullptr || entry->number.load(std::memory_order_relaxed) == 0) return;
  entry->number.store(0, std::memory_order_seq_cst);
  wait_for_visitors();
}

// Returns when every visitor that came before the entry was withdrawn has left. A visitor that was
// killed during its visit never leaves; the kernel tells that its process is gone.
void HostPath::wait_for_visitors() {
  constexpr int looks_per_liveness_check = 256;
  for (auto& visitor : table_->visitors) {
    for (int looks = 1;; ++looks) {
      std::int32_t pid = visitor.load(std::memory_order_seq_cst);
      if (pid == 0) break;
      if (looks % looks_per_liveness_check != 0) continue;
      if (process_is_gone(pid)) {
        visitor.compare_exchange_strong(pid, 0);
        break;
      }
      sched_yield();
    }
  }
}

std::uint32_t HostPath::connect(const transport::QueuePair& qp) {
  if (!is_local_(qp.attributes().address.destination.gid)) return 0;
  auto peer = find_peer_(qp.attributes().destination_qp);
  if (!peer) return 0;
  const std::uint32_t token = token_of(*peer);
  close(peer->table_fd);
  return token;
}

std::uint32_t HostPath::token_of(const Peer& peer) {
  Connection fresh{map_table(peer.table_fd), peer.pid,
                   static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0))};
  const bool usable = fresh.table != nullptr && fresh.pidfd >= 0 && reachable(fresh);
  for (std::size_t i = 0; usable && i < connections_.size(); ++i) {
    const Connection& known = connections_[i];
    if (known.pid != peer.pid || known.table->proof != fresh.table->proof) continue;
    munmap(fresh.table, sizeof(PeerTable));
    close(fresh.pidfd);
    return static_cast<std::uint32_t>(i + 1);
  }
  if (usable) {
    connections_.push_back(fresh);
    return static_cast<std::uint32_t>(connections_.size());
  }
  if (fresh.table != nullptr) munmap(fresh.table, sizeof(PeerTable));
  if (fresh.pidfd >= 0) close(fresh.pidfd);
  return 0;
}

// Returns true if this process may reach the peer's memory, if each process knows the other by the
// same process number, and if the peer owns the table: its memory holds the proof.
bool HostPath::reachable(const Connection& connection) const {
  const PeerTable& table = *connection.table;
  if (table.magic != PeerTable::magic_value || table.version != PeerTable::layout_version) {
    return false;
  }
  if (table.pid != connection.pid || table.pid_namespace != own_pid_namespace()) return false;
  std::uint64_t proof = 0;
  const iovec local{&proof, sizeof proof};
  const iovec remote{reinterpret_cast<void*>(table.proof_address), sizeof proof};
  if (process_vm_readv(connection.pid, &local, 1, &remote, 1, 0) != sizeof proof) return false;
  return proof == table.proof;
}

bool HostPath::submit(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
                      Ticket& ticket) {
  ticket = {};
  return visit(qp, token, transfer, ticket, true);
}

bool HostPath::step(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
                    Ticket& ticket) {
  if (allowance_ > 0) return visit(qp, token, transfer, ticket, false);
  has_unfinished_ = true;
  return true;
}

// Checks whether the peer allows the transfer, and moves as many of its bytes as the turn allows.
bool HostPath::visit(const transport::QueuePair& qp, std::uint32_t token, const Transfer& transfer,
                     Ticket& ticket, bool is_first) {
  if (!open_) return false;
  const Connection& connection = connections_[token - 1];
  PeerTable& table = *connection.table;
  // A new process with the number of a dead one must not be mistaken for it.
  pollfd gone{connection.pidfd, POLLIN, 0};
  if (poll(&gone, 1, 0) != 0) return false;

  auto& visitor = table.visitors[own_slot_];
  visitor.store(getpid(), std::memory_order_seq_cst);
  bool is_allowed = false;
  const PeerTable::QpEntry* peer = table.find_qp(qp.attributes().destination_qp.value);
  const PeerTable::KeyEntry* key = table.find_key(transfer.rkey.value);
  if (table.open.load() && peer != nullptr && key != nullptr) {
    const auto needed =
        verbs::AccessFlags(transfer.read ? Access::remote_read : Access::remote_write);
    const bool is_covered =
        verbs::range_covers(key->iova, key->length, transfer.remote_address, transfer.length);
    const bool has_access = verbs::allows_access(verbs::AccessFlags::from_bits(key->access),
                                                 key->pd, needed, peer->pd) &&
                            verbs::AccessFlags::from_bits(peer->access).has_all(needed) &&
                            peer->destination == qp.number.value;
    if (is_first) ticket.generation = key->generation;
    const std::uint64_t offset = transfer.remote_address - key->iova;
    is_allowed = is_covered && has_access && key->generation == ticket.generation &&
                 copy(connection, transfer, key->address + offset, ticket);
  }
  visitor.store(0, std::memory_order_release);
  if (!is_allowed) return false;
  if (ticket.moved < transfer.length) {
    has_unfinished_ = true;
  } else {
    ++moved_.transfers;
    moved_.bytes += transfer.length;
  }
  return true;
}

// Copies the next bytes. Returns false if the kernel could not copy them all.
bool HostPath::copy(const Connection& connection, const Transfer& transfer,
                    std::uint64_t remote_address, Ticket& ticket) {
  const std::uint32_t bytes = std::min(transfer.length - ticket.moved, allowance_);
  if (bytes == 0) return true;
  allowance_ -= std::min(std::max(bytes, transfer_bytes_min), allowance_);
  std::array<iovec, verbs::sges_max> local;
  std::size_t count = 0;
  std::size_t skipped = ticket.moved;
  std::size_t rest = bytes;
  for (std::span<std::byte> piece : transfer.pieces) {
    const std::size_t before = std::min(skipped, piece.size());
    skipped -= before;
    piece = piece.subspan(before);
    piece = piece.first(std::min(piece.size(), rest));
    rest -= piece.size();
    if (!piece.empty()) local[count++] = {piece.data(), piece.size()};
  }
  const iovec remote{reinterpret_cast<void*>(remote_address + ticket.moved), bytes};
  const ssize_t moved = transfer.read
                            ? process_vm_readv(connection.pid, local.data(), count, &remote, 1, 0)
                            : process_vm_writev(connection.pid, local.data(), count, &remote, 1, 0);
  if (moved != static_cast<ssize_t>(bytes)) return false;
  ticket.moved += bytes;
  return true;
}

}  // namespace tulle::live
