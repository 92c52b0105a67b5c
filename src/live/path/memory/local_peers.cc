#include "live/path/memory/local_peers.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "os/cancellation.h"
#include "os/shared_memory.h"
#include "os/system_random.h"

namespace tulle::live {
namespace {

// A token holds a place, and how often the place has been taken.
constexpr std::uint32_t place_bits = 10;
constexpr std::size_t places_max = (1u << place_bits) - 1;

// Returns 0 if the namespace is unknown.
std::int64_t own_pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::int64_t>(status.st_ino) : 0;
}

// Returns false for anything else that a peer may have handed over, such as a socket whose close
// takes long.
bool is_unix_socket(const UniqueFd& fd) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

}  // namespace

LocalPeers::LocalPeers(std::uint32_t own_slot, Find find)
    : own_slot_(own_slot), find_(std::move(find)), proof_(system_random()) {}

Result<std::unique_ptr<LocalPeers>> LocalPeers::create(std::uint32_t own_slot, Find find) {
  if (own_slot >= slots) return Error{"slot out of range", EINVAL};
  std::unique_ptr<LocalPeers> peers(new LocalPeers(own_slot, std::move(find)));
  if (auto made = peers->make_table(); !made) return made.error();
  return peers;
}

Result<void> LocalPeers::make_table() {
  // Untouched pages cost nothing, so the memory grows with the number of exposed entries and of
  // peers.
  auto shown = make_shown_memory("tulle-peer-table", PeerFile::bytes);
  if (!shown) return shown.error();
  table_fd_ = std::move(shown->fd);
  file_ = static_cast<std::byte*>(shown->memory);
  table_ = static_cast<PeerTable*>(shown->memory);
  // Zero bytes are a valid empty table, so only the head is written.
  table_->magic = PeerTable::magic_value;
  table_->version = PeerTable::layout_version;
  table_->proof_address = reinterpret_cast<std::uint64_t>(&proof_);
  table_->proof = proof_;
  table_->pid_namespace = own_pid_namespace();
  table_->pid = getpid();
  table_->open.store(1);
  table_->sleeps.store(1);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&table_->life, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return {};
}

LocalPeers::~LocalPeers() {
  if (table_ != nullptr) {
    // The C library's list of this thread's robust mutexes must not lead into memory that is gone.
    const bool is_ours = table_->life_word().load() == static_cast<std::uint32_t>(gettid());
    if (is_ours) pthread_mutex_unlock(&table_->life);
    munmap(file_, PeerFile::bytes);
  }
  for (LocalPeer& peer : places_) close(peer);
}

void LocalPeers::live_with_this_thread() { pthread_mutex_lock(&table_->life); }

void LocalPeers::forget_in_child() {
  for (LocalPeer& peer : places_) peer.files.forget_in_child();
  static_cast<void>(mmap(file_, PeerFile::bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0));
}

LocalPeer* LocalPeers::find(QpNumber number) {
  // A process may have left its slot to another one, and may live on.
  for (LocalPeer& known : places_) {
    const bool has_number = known.slot == slot_of(number) && known.turn == turn_of(number);
    if (has_number && known.is_alive()) return &known;
  }
  const CancellationOff cancellation_off;
  try {
    auto found = find_(number);
    return found ? add(number, *found) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;  // UDP serves
  }
}

LocalPeer* LocalPeers::add(QpNumber number, Found& found) {
  close_dead();
  ++changes_;
  places_.reserve(places_.size() + 1);  // now, while there is nothing to give back
  auto place = std::ranges::find(places_, nullptr, &LocalPeer::table);
  if (place == places_.begin() + places_max) return nullptr;
  const int fd = found.table.get();
  auto table = map_part_of_shared_memory(fd, PeerFile::bytes, {0, sizeof(PeerTable)});
  if (!table) return nullptr;
  if (place == places_.end()) place = places_.insert(place, LocalPeer{});
  place->table = static_cast<const PeerTable*>(*table);
  place->pid = found.pid;
  place->slot = slot_of(number);
  place->turn = turn_of(number);
  place->life = place->table->life_word().load();
  ++place->uses;
  auto ring = map_part_of_shared_memory(fd, PeerFile::bytes,
                                        {PeerFile::ring_at(own_slot_), PacketRing::ring_bytes});
  if (!ring || !can_observe(*place)) {
    if (ring) place->ring = static_cast<const std::byte*>(*ring);
    close(*place);
    return nullptr;
  }
  place->ring = static_cast<const std::byte*>(*ring);
  if (is_unix_socket(found.doorbell)) place->doorbell = std::move(found.doorbell);
  place->is_reachable = is_reachable(*place);
  return &*place;
}

std::uint32_t LocalPeers::token_of(const LocalPeer& peer) const {
  const auto place = static_cast<std::uint32_t>(&peer - places_.data());
  return peer.uses << place_bits | (place + 1);
}

LocalPeer* LocalPeers::mapped(std::uint32_t token) {
  LocalPeer& peer = places_[(token & places_max) - 1];
  return peer.table != nullptr && token_of(peer) == token ? &peer : nullptr;
}

LocalPeer* LocalPeers::with_token(std::uint32_t token) {
  LocalPeer* const peer = mapped(token);
  return peer != nullptr && peer->is_alive() ? peer : nullptr;
}

void LocalPeers::close(LocalPeer& peer) {
  const CancellationOff cancellation_off;
  if (peer.table != nullptr) munmap(const_cast<PeerTable*>(peer.table), sizeof(PeerTable));
  if (peer.ring != nullptr) munmap(const_cast<std::byte*>(peer.ring), PacketRing::ring_bytes);
  peer.table = nullptr;
  peer.ring = nullptr;
  peer.doorbell.reset();
  peer.files.clear();
}

void LocalPeers::sweep_files() {
  for (LocalPeer& peer : places_) {
    if (peer.files.size() == 0) continue;
    if (peer.is_alive()) {
      peer.files.sweep(*peer.table);
    } else {
      peer.files.clear();
    }
  }
}

// A program may live for years, and its peers come and go. The kernel may end the threads of a
// dying process one after the other, so that the last visit of a dead peer may still be under way.
void LocalPeers::close_dead() {
  for (LocalPeer& peer : places_) {
    if (peer.table == nullptr || peer.is_alive()) continue;
    const std::uint64_t visit = peer.table->visit.load(std::memory_order_seq_cst);
    if (visit == Visit::none || VisitWait::cannot_write(Visit::thread_id(visit))) close(peer);
  }
}

// Returns true if the peer lives, and if its notes mean something here: each process must know the
// other's threads by the same numbers.
bool LocalPeers::can_observe(const LocalPeer& peer) const {
  const PeerTable& table = *peer.table;
  if (table.magic != PeerTable::magic_value || table.version != PeerTable::layout_version) {
    return false;
  }
  if (table.pid != peer.pid || table.pid_namespace != table_->pid_namespace) return false;
  const bool is_held = peer.life != 0 && (peer.life & FUTEX_OWNER_DIED) == 0;
  return is_held && peer.is_alive();
}

// Returns true if this process may reach the memory of a peer that it can observe, and if the peer
// owns the table: its memory holds the proof.
bool LocalPeers::is_reachable(const LocalPeer& peer) {
  const PeerTable& table = *peer.table;
  std::uint64_t proof = 0;
  const iovec local{&proof, sizeof proof};
  const iovec remote{reinterpret_cast<void*>(table.proof_address), sizeof proof};
  if (process_vm_readv(peer.pid, &local, 1, &remote, 1, 0) != sizeof proof) return false;
  return proof == table.proof && peer.is_alive();
}

}  // namespace tulle::live
