#include "live/path/memory/host_path.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/guarded_access.h"
#include "live/path/memory/restartable_call.h"

namespace tulle::live {
namespace {

using verbs::Access;

std::uint64_t identity(const verbs::ProtectionDomain* pd) {
  return reinterpret_cast<std::uint64_t>(pd);
}

// A transfer looks again at most so often if the peer has withdrawn something else meanwhile, or
// the thread was interrupted. Packets serve after that.
constexpr int looks_max = 8;
// A copy without a system call is made in parts of this size. An interruption repeats one part.
constexpr std::size_t part_bytes = 32'768;

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

}  // namespace

Result<std::unique_ptr<HostPath>> HostPath::create(std::uint32_t own_slot, FindPeer find_peer,
                                                   IsLocal is_local, SharedRegions* shared) {
  auto peers = LocalPeers::create(own_slot, std::move(find_peer));
  if (!peers) return peers.error();
  std::unique_ptr<HostPath> path(new HostPath);
  path->is_local_ = std::move(is_local);
  path->table_ = &(*peers)->table();
  path->peers_ = std::move(*peers);
  path->shared_ = shared;
  return path;
}

HostPath::~HostPath() {
  if (peers_ == nullptr) return;
  table_->open.store(0);
  static_cast<void>(wait_for_visitors());
  if (shared_ != nullptr) shared_->forget(this);
}

void HostPath::forget_in_child() {
  peers_->forget_in_child();
  shared_ = nullptr;
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
  const bool is_listed =
      entry != nullptr && entry->key.load(std::memory_order_relaxed) == region.key;
  if (is_listed) hide_file(region);
  const std::uint64_t file = show_file(region);
  if (entry == nullptr) return hide_file(region);
  entry->access = region.access.bits();
  entry->pd = identity(region.pd);
  entry->iova = region.iova;
  entry->length = region.length;
  entry->address = reinterpret_cast<std::uint64_t>(region.memory);
  entry->file = file;
  entry->generation = ++generations_;
  entry->key.store(region.key, std::memory_order_seq_cst);
}

// Lists the file that holds some of the region. Returns its number, or 0 if there is none.
std::uint64_t HostPath::show_file(const verbs::MemoryRegion& region) {
  if (shared_ == nullptr) return 0;
  const auto file = shared_->expose(this, region);
  show_displaced_files();
  if (!file) return 0;
  if (file_uses_[file->place]++ > 0) return file->number;
  PeerTable::FileEntry& entry = table_->files[file->place];
  entry.address = file->address;
  entry.bytes = file->bytes;
  entry.inode = file->inode;
  entry.fd = file->fd;
  entry.is_displaced.store(0);
  entry.number.store(file->number, std::memory_order_seq_cst);
  const auto places = static_cast<std::uint32_t>(file->place + 1);
  table_->file_places.store(std::max(table_->file_places.load(), places));
  return file->number;
}

// Other memory is registered where a file was. What peers look for by its address alone must not be
// found in the file any more.
void HostPath::show_displaced_files() {
  const std::uint64_t displacements = shared_->displacements();
  if (std::exchange(displacements_, displacements) == displacements) return;
  for (std::size_t place = 0; place < file_uses_.size(); ++place) {
    if (file_uses_[place] > 0 && shared_->is_displaced(place)) {
      table_->files[place].is_displaced.store(1);
    }
  }
}

void HostPath::hide_file(const verbs::MemoryRegion& region) {
  if (shared_ == nullptr) return;
  const auto place = shared_->place_of(region);
  if (place && --file_uses_[*place] == 0) {
    table_->files[*place].number.store(0, std::memory_order_seq_cst);
  }
}

bool HostPath::withdraw(const verbs::MemoryRegion& region) {
  auto* entry =
      claim(&table_->keys[PeerTable::key_set(region.key)], &PeerTable::KeyEntry::key, region.key);
  const bool is_exposed = entry != nullptr && entry->key.load(std::memory_order_relaxed) != 0;
  if (is_exposed) {
    entry->key.store(0, std::memory_order_seq_cst);
    hide_file(region);
  }
  const bool is_over = (!is_exposed && has_waited_) || wait_for_visitors();
  if (is_over && shared_ != nullptr) shared_->withdraw(region);
  return is_over;
}

void HostPath::expose(const transport::QueuePair& qp) {
  hide(qp);  // the earlier entry may differ
  auto* entry = claim(&table_->qps[PeerTable::qp_set(qp.number.value)], &PeerTable::QpEntry::number,
                      qp.number.value);
  const bool has_peer = peer_of(qp) != nullptr;
  if (entry == nullptr || !has_peer || !can_make_restartable_calls()) return;
  entry->destination = qp.attributes().destination_qp.value;
  // Without resources for READs (max_dest_rd_atomic), a responder answers none.
  verbs::AccessFlags access = qp.attributes().access;
  if (qp.attributes().max_dest_rd_atomic == 0) access = access.without(Access::remote_read);
  entry->access = access.bits();
  entry->pd = identity(qp.init.pd);
  entry->number.store(qp.number.value, std::memory_order_seq_cst);
  ++exposed_queue_pairs_;
}

// The queue pair's requests, if it has any, are about to be flushed. Then the program may use their
// memory again.
void HostPath::withdraw(const transport::QueuePair& qp) {
  table_->recalls[PeerTable::recall_of(qp.number)].fetch_add(1, std::memory_order_seq_cst);
  hide(qp);
  peers_->sweep_files();
}

void HostPath::hide(const transport::QueuePair& qp) {
  auto* entry = claim(&table_->qps[PeerTable::qp_set(qp.number.value)], &PeerTable::QpEntry::number,
                      qp.number.value);
  if (entry == nullptr || entry->number.load(std::memory_order_relaxed) == 0) return;
  entry->number.store(0, std::memory_order_seq_cst);
  --exposed_queue_pairs_;
  static_cast<void>(wait_for_visitors());
}

// Called when something has been withdrawn. Returns false if a visit that began earlier may still
// write.
bool HostPath::wait_for_visitors() {
  table_->withdrawals.fetch_add(1, std::memory_order_seq_cst);
  const VisitWait wait(peers_->own_slot());
  has_waited_ = true;
  for (const LocalPeer& peer : peers_->places()) {
    if (peer.table != nullptr && !wait.is_over(peer.table->visit)) has_waited_ = false;
  }
  return has_waited_;
}

std::uint32_t HostPath::connect(const transport::QueuePair& qp) {
  const LocalPeer* peer = peer_of(qp);
  peers_->sweep_files();
  if (peer == nullptr || !peer->is_reachable || !can_make_restartable_calls()) return 0;
  return peers_->token_of(*peer);
}

// Returns the process of the queue pair's peer, or null if it is no local peer.
LocalPeer* HostPath::peer_of(const transport::QueuePair& qp) {
  if (!is_local_(qp.attributes().address.destination.gid)) return nullptr;
  return peers_->find(qp.attributes().destination_qp);
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
  LocalPeer* const peer = peers_->with_token(token);
  if (peer == nullptr) return false;
  std::atomic<std::uint64_t>& note = table_->visit;
  Outcome outcome = Outcome::changed;
  for (int looks = 0; looks < looks_max && outcome == Outcome::changed; ++looks) {
    if (!transfer.read) {
      note.store(Visit::word(own_thread_id(), peer->slot, ++own_visits_),
                 std::memory_order_seq_cst);
    }
    outcome = move_next(*peer, qp, transfer, ticket, is_first);
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
std::optional<HostPath::Permit> HostPath::permit(LocalPeer& owner, const transport::QueuePair& qp,
                                                 const Transfer& transfer) {
  const PeerTable& table = *owner.table;
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
  const std::uint64_t address = key->address + (transfer.remote_address - key->iova);
  return Permit{address, key->generation,
                owner.files.find(table, owner.pid, key->file, address, transfer.length)};
}

// Moves the next bytes. `changed` means that the peer has withdrawn something since this looked,
// and that no bytes count.
HostPath::Outcome HostPath::move_next(LocalPeer& owner, const transport::QueuePair& qp,
                                      const Transfer& transfer, Ticket& ticket, bool is_first) {
  const std::uint32_t withdrawals = owner.table->withdrawals.load(std::memory_order_seq_cst);
  const std::optional<Permit> permitted = permit(owner, qp, transfer);
  if (!permitted) return Outcome::refused;
  if (!is_first && permitted->generation != ticket.generation) return Outcome::refused;
  const std::uint32_t bytes = std::min(transfer.length - ticket.moved, allowance_);
  Pieces local;
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
  Outcome outcome = Outcome::moved;
  if (bytes > 0) {
    const Step step{owner, withdrawals, std::span(local).first(count), bytes};
    const std::uint64_t address = permitted->address + ticket.moved;
    if (permitted->mapped == nullptr) {
      outcome = transfer.read ? read(step, address) : write(step, address);
    } else {
      std::byte* const mapped = permitted->mapped + ticket.moved;
      outcome = transfer.read ? read_mapped(step, mapped) : write_mapped(step, mapped);
    }
  }
  if (outcome != Outcome::moved) return outcome;
  // The peer may have died or called exec(2) before the bytes moved.
  if (!owner.is_alive()) return Outcome::refused;
  if (bytes > 0) allowance_ -= std::min(std::max(bytes, transfer_bytes_min), allowance_);
  ticket.generation = permitted->generation;
  ticket.moved += bytes;
  return Outcome::moved;
}

HostPath::Outcome HostPath::read(const Step& step, std::uint64_t address) {
  const iovec remote{reinterpret_cast<void*>(address), step.bytes};
  const ssize_t moved =
      process_vm_readv(step.owner.pid, step.local.data(), step.local.size(), &remote, 1, 0);
  if (step.owner.table->withdrawals.load(std::memory_order_seq_cst) != step.withdrawals) {
    return Outcome::changed;
  }
  return moved == static_cast<ssize_t>(step.bytes) ? Outcome::moved : Outcome::refused;
}

HostPath::Outcome HostPath::write(const Step& step, std::uint64_t address) {
  const iovec remote{reinterpret_cast<void*>(address), step.bytes};
  const auto moved = call_if_unchanged(
      {&step.owner.table->withdrawals, step.withdrawals},
      {&step.owner.table->life_word(), step.owner.life}, SYS_process_vm_writev,
      {step.owner.pid, reinterpret_cast<long>(step.local.data()),
       static_cast<long>(step.local.size()), reinterpret_cast<long>(&remote), 1, 0});
  if (!moved) return step.owner.is_alive() ? Outcome::changed : Outcome::refused;
  return *moved == static_cast<long>(step.bytes) ? Outcome::moved : Outcome::refused;
}

// The bytes of either process may be gone, which then is as if the kernel refused the call.
HostPath::Outcome HostPath::read_mapped(const Step& step, const std::byte* from) {
  for (const iovec& piece : step.local) {
    if (!copy_guarded(piece.iov_base, from, piece.iov_len)) return Outcome::refused;
    from += piece.iov_len;
  }
  const auto now = step.owner.table->withdrawals.load(std::memory_order_seq_cst);
  return now == step.withdrawals ? Outcome::moved : Outcome::changed;
}

HostPath::Outcome HostPath::write_mapped(const Step& step, std::byte* to) {
  const ExpectedWord withdrawals{&step.owner.table->withdrawals, step.withdrawals};
  const ExpectedWord life{&step.owner.table->life_word(), step.owner.life};
  for (const iovec& piece : step.local) {
    const auto* const from = static_cast<const std::byte*>(piece.iov_base);
    const std::span<const std::byte> where[] = {{to, piece.iov_len}, {from, piece.iov_len}};
    std::size_t moved = 0;
    const bool is_there = attempt(where, [&] {
      for (int looks = 0; moved < piece.iov_len && looks < looks_max;) {
        const std::size_t bytes = std::min(piece.iov_len - moved, part_bytes);
        const bool is_copied =
            copy_if_unchanged(withdrawals, life, to + moved, from + moved, bytes);
        if (is_copied) moved += bytes;
        looks = is_copied ? 0 : looks + 1;
      }
    });
    if (!is_there) return Outcome::refused;
    if (moved < piece.iov_len) return step.owner.is_alive() ? Outcome::changed : Outcome::refused;
    to += piece.iov_len;
  }
  return Outcome::moved;
}

}  // namespace tulle::live
