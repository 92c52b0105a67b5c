#include "live/path/memory/host_path.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "live/path/memory/restartable_call.h"
#include "live/shared_memory.h"
#include "live/slots.h"
#include "live/system_random.h"

namespace tulle::live {
namespace {

using verbs::Access;

std::uint64_t identity(const verbs::ProtectionDomain* pd) {
  return reinterpret_cast<std::uint64_t>(pd);
}

// A token holds the place of a connection, and how often the place has been taken.
constexpr std::uint32_t place_bits = 10;
constexpr std::size_t places_max = (1u << place_bits) - 1;
// How often a transfer looks again if the peer has withdrawn something else meanwhile, or the
// thread was interrupted. Packets serve after that.
constexpr int looks_max = 8;

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

// Returns 0 if the namespace is unknown.
std::int64_t own_pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::int64_t>(status.st_ino) : 0;
}

}  // namespace

Result<std::unique_ptr<HostPath>> HostPath::create(std::uint32_t own_slot, FindPeer find_peer,
                                                   IsLocal is_local) {
  if (own_slot >= slots) return Error{"slot out of range", EINVAL};
  std::unique_ptr<HostPath> path(new HostPath);
  path->own_slot_ = own_slot;
  path->find_peer_ = std::move(find_peer);
  path->is_local_ = std::move(is_local);
  if (auto mapped = path->make_table(); !mapped) return mapped.error();
  return path;
}

Result<void> HostPath::make_table() {
  // Untouched pages cost nothing, so the table's memory grows with the number of exposed entries.
  auto shown = make_shown_memory("tulle-peer-table", sizeof(PeerTable));
  if (!shown) return shown.error();
  table_fd_ = std::move(shown->fd);
  table_ = static_cast<PeerTable*>(shown->memory);
  proof_ = system_random();
  // Zero bytes are a valid empty table, so only the head is written.
  table_->magic = PeerTable::magic_value;
  table_->version = PeerTable::layout_version;
  table_->proof_address = reinterpret_cast<std::uint64_t>(&proof_);
  table_->proof = proof_;
  table_->pid_namespace = own_pid_namespace();
  table_->pid = getpid();
  table_->open.store(1);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&table_->life, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return {};
}

void HostPath::live_with_this_thread() { pthread_mutex_lock(&table_->life); }

HostPath::~HostPath() {
  if (table_ != nullptr) {
    table_->open.store(0);
    static_cast<void>(wait_for_visitors());
    // The C library's list of this thread's robust mutexes must not lead into memory that is gone.
    const bool is_ours = table_->life_word().load() == static_cast<std::uint32_t>(gettid());
    if (is_ours) pthread_mutex_unlock(&table_->life);
    munmap(table_, sizeof(PeerTable));
  }
  for (Connection& connection : connections_) close(connection);
}

void HostPath::forget_in_child() {
  static_cast<void>(mmap(table_, sizeof(PeerTable), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  open_ = false;
}

void HostPath::set_open(bool open) {
  open_ = open;
  table_->open.store(open ? 1 : 0);
  if (!open) static_cast<void>(wait_for_visitors());
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

bool HostPath::withdraw(const verbs::MemoryRegion& region) {
  auto* entry =
      claim(&table_->keys[PeerTable::key_set(region.key)], &PeerTable::KeyEntry::key, region.key);
  if (entry == nullptr || entry->key.load(std::memory_order_relaxed) == 0) {
    return has_waited_ || wait_for_visitors();
  }
  entry->key.store(0, std::memory_order_seq_cst);
  return wait_for_visitors();
}

void HostPath::expose(const transport::QueuePair& qp) {
  withdraw(qp);  // the earlier entry may differ
  auto* entry = claim(&table_->qps[PeerTable::qp_set(qp.number.value)], &PeerTable::QpEntry::number,
                      qp.number.value);
  if (entry == nullptr || peer_of(qp) == nullptr) return;
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
  static_cast<void>(wait_for_visitors());
}

// Called when something has been withdrawn. Returns false if a visit that began earlier may still
// write.
bool HostPath::wait_for_visitors() {
  table_->withdrawals.fetch_add(1, std::memory_order_seq_cst);
  const VisitWait wait(own_slot_);
  has_waited_ = true;
  for (const Connection& connection : connections_) {
    if (connection.table != nullptr && !wait.is_over(connection.table->visit)) has_waited_ = false;
  }
  return has_waited_;
}

std::uint32_t HostPath::connect(const transport::QueuePair& qp) {
  const Connection* connection = peer_of(qp);
  if (connection == nullptr || !connection->is_reachable) return 0;
  return token_for(static_cast<std::size_t>(connection - connections_.data()));
}

// Returns the process of the queue pair's peer, or null if it is no process of this host whose
// visits this process could see. Packets serve then.
HostPath::Connection* HostPath::peer_of(const transport::QueuePair& qp) {
  if (!can_make_restartable_calls()) return nullptr;
  if (!is_local_(qp.attributes().address.destination.gid)) return nullptr;
  const QpNumber number = qp.attributes().destination_qp;
  const std::uint32_t slot = slot_of(number);
  for (Connection& known : connections_) {
    if (known.table != nullptr && known.slot == slot && known.is_alive()) return &known;
  }
  try {
    auto peer = find_peer_(number);
    return peer ? add(slot, *peer) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;  // packets serve
  }
}

HostPath::Connection* HostPath::add(std::uint32_t slot, const Peer& peer) {
  close_dead();
  connections_.reserve(connections_.size() + 1);  // now, while there is nothing to give back
  auto place = std::ranges::find(connections_, nullptr, &Connection::table);
  if (place == connections_.begin() + places_max) return nullptr;
  auto table = map_shared_memory(peer.table.get(), sizeof(PeerTable), MapFor::reading);
  if (!table) return nullptr;
  if (place == connections_.end()) place = connections_.insert(place, Connection{});
  place->table = static_cast<const PeerTable*>(*table);
  place->pid = peer.pid;
  place->slot = slot;
  place->life = place->table->life_word().load();
  ++place->uses;
  if (!can_observe(*place)) {
    close(*place);
    return nullptr;
  }
  place->is_reachable = reachable(*place);
  return &*place;
}

std::uint32_t HostPath::token_for(std::size_t place) const {
  return connections_[place].uses << place_bits | static_cast<std::uint32_t>(place + 1);
}

// Returns null if the peer is gone.
HostPath::Connection* HostPath::connection_of(std::uint32_t token) {
  const std::size_t place = (token & places_max) - 1;
  Connection& connection = connections_[place];
  if (connection.table == nullptr || token_for(place) != token) return nullptr;
  return connection.is_alive() ? &connection : nullptr;
}

void HostPath::close(Connection& connection) {
  if (connection.table != nullptr) {
    munmap(const_cast<PeerTable*>(connection.table), sizeof(PeerTable));
  }
  connection.table = nullptr;
}

// A program may live for years, and its peers come and go. The kernel may end the threads of a
// dying process one after the other, so that the last visit of a dead peer may still be under way.
void HostPath::close_dead() {
  for (Connection& connection : connections_) {
    if (connection.table == nullptr || connection.is_alive()) continue;
    const std::uint64_t visit = connection.table->visit.load(std::memory_order_seq_cst);
    if (visit == Visit::none || VisitWait::cannot_write(Visit::thread_id(visit))) {
      close(connection);
    }
  }
}

// Returns true if the peer lives, and if its notes mean something here: each process must know the
// other's threads by the same numbers.
bool HostPath::can_observe(const Connection& connection) const {
  const PeerTable& table = *connection.table;
  if (table.magic != PeerTable::magic_value || table.version != PeerTable::layout_version) {
    return false;
  }
  if (table.pid != connection.pid || table.pid_namespace != table_->pid_namespace) return false;
  const bool is_held = connection.life != 0 && (connection.life & FUTEX_OWNER_DIED) == 0;
  return is_held && connection.is_alive();
}

// Returns true if this process may reach the memory of a peer that it can observe, and if the peer
// owns the table: its memory holds the proof.
bool HostPath::reachable(const Connection& connection) {
  const PeerTable& table = *connection.table;
  std::uint64_t proof = 0;
  const iovec local{&proof, sizeof proof};
  const iovec remote{reinterpret_cast<void*>(table.proof_address), sizeof proof};
  if (process_vm_readv(connection.pid, &local, 1, &remote, 1, 0) != sizeof proof) return false;
  return proof == table.proof && connection.is_alive();
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
  const Connection* connection = connection_of(token);
  if (connection == nullptr) return false;
  std::atomic<std::uint64_t>& note = table_->visit;
  Outcome outcome = Outcome::changed;
  for (int looks = 0; looks < looks_max && outcome == Outcome::changed; ++looks) {
    if (!transfer.read) {
      note.store(Visit::word(static_cast<std::uint32_t>(gettid()), connection->slot, ++own_visits_),
                 std::memory_order_seq_cst);
    }
    outcome = move_next(*connection, qp, transfer, ticket, is_first);
    if (!transfer.read) note.store(Visit::none, std::memory_order_release);
  }
  if (outcome != Outcome::moved) return false;
  if (ticket.moved < transfer.length) {
    has_unfinished_ = true;
  } else {
    ++moved_.transfers;
    moved_.bytes += transfer.length;
  }
  return true;
}

// Returns nothing if the peer's table does not allow the transfer.
std::optional<HostPath::Permit> HostPath::permit(const Connection& connection,
                                                 const transport::QueuePair& qp,
                                                 const Transfer& transfer) {
  const PeerTable& table = *connection.table;
  const PeerTable::QpEntry* peer = table.find_qp(qp.attributes().destination_qp.value);
  const PeerTable::KeyEntry* key = table.find_key(transfer.rkey.value);
  if (table.open.load() == 0 || peer == nullptr || key == nullptr) return {};
  const auto needed =
      verbs::AccessFlags(transfer.read ? Access::remote_read : Access::remote_write);
  const bool is_covered =
      verbs::range_covers(key->iova, key->length, transfer.remote_address, transfer.length);
  const bool has_access =
      verbs::allows_access(verbs::AccessFlags::from_bits(key->access), key->pd, needed, peer->pd) &&
      verbs::AccessFlags::from_bits(peer->access).has_all(needed) &&
      peer->destination == qp.number.value;
  if (!is_covered || !has_access) return {};
  return Permit{key->address + (transfer.remote_address - key->iova), key->generation};
}

// Moves the next bytes. `changed` means that the peer has withdrawn something since this looked,
// and that no bytes count.
HostPath::Outcome HostPath::move_next(const Connection& connection, const transport::QueuePair& qp,
                                      const Transfer& transfer, Ticket& ticket, bool is_first) {
  const std::atomic<std::uint32_t>& withdrawals = connection.table->withdrawals;
  const std::uint32_t withdrawals_before = withdrawals.load(std::memory_order_seq_cst);
  const std::optional<Permit> permitted = permit(connection, qp, transfer);
  if (!permitted) return Outcome::refused;
  if (!is_first && permitted->generation != ticket.generation) return Outcome::refused;
  const std::uint32_t bytes = std::min(transfer.length - ticket.moved, allowance_);
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
  const iovec remote{reinterpret_cast<void*>(permitted->address + ticket.moved), bytes};
  if (bytes > 0 && transfer.read) {
    const ssize_t moved = process_vm_readv(connection.pid, local.data(), count, &remote, 1, 0);
    if (withdrawals.load(std::memory_order_seq_cst) != withdrawals_before) return Outcome::changed;
    if (moved != static_cast<ssize_t>(bytes)) return Outcome::refused;
  } else if (bytes > 0) {
    const auto moved =
        call_if_unchanged({&withdrawals, withdrawals_before},
                          {&connection.table->life_word(), connection.life}, SYS_process_vm_writev,
                          {connection.pid, reinterpret_cast<long>(local.data()),
                           static_cast<long>(count), reinterpret_cast<long>(&remote), 1, 0});
    if (!moved) return connection.is_alive() ? Outcome::changed : Outcome::refused;
    if (*moved != static_cast<long>(bytes)) return Outcome::refused;
  }
  // The peer may have died or called exec(2) before the kernel moved the bytes.
  if (!connection.is_alive()) return Outcome::refused;
  if (bytes > 0) allowance_ -= std::min(std::max(bytes, transfer_bytes_min), allowance_);
  ticket.generation = permitted->generation;
  ticket.moved += bytes;
  return Outcome::moved;
}

}  // namespace tulle::live
