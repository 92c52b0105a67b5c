#pragma once

// The table that one process shows to the other processes of its host, in shared memory: the keys
// and connections by which they may write to its memory, and read it, without its help; the visit
// that it makes to another's memory (live/path/memory/visits.h); and how far it has read the rings
// of packets that others have for it (live/path/memory/packet_ring.h). Its own rings follow the
// table in the same file. Only the owner can write to the file.

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "live/path/memory/packet_ring.h"
#include "live/path/memory/visits.h"
#include "live/slots.h"

namespace tulle::live {

struct PeerTable {
  static constexpr std::uint32_t magic_value = 0x54'55'4C'45;
  static constexpr std::uint32_t layout_version = 10;
  // The tables are sets of eight entries. An entry is in the set that its number hashes to. If that
  // set is full, the entry is not exposed and packets serve instead.
  static constexpr std::size_t ways = 8;
  static constexpr std::size_t qp_sets = 4'096;
  static constexpr std::size_t key_sets = 8'192;

  struct QpEntry {
    std::atomic<std::uint32_t> number{0};  // 0 means free
    std::uint32_t destination = 0;
    std::uint32_t access = 0;
    std::uint64_t pd = 0;  // equal for equal protection domains; no other meaning
  };
  struct KeyEntry {
    std::atomic<std::uint32_t> key{0};  // 0 means free
    std::uint32_t access = 0;
    std::uint64_t pd = 0;
    std::uint64_t iova = 0;
    std::uint64_t length = 0;   // bytes
    std::uint64_t address = 0;  // in the owner's address space
    std::uint64_t file = 0;     // number of the FileEntry that has the memory; 0: none
    // Differs each time the owner exposes an entry, so that a visitor that returns notices if
    // another region has got the same key.
    std::uint64_t generation = 0;
  };

  // A memory file of the owner, which visitors may map (live/path/memory/shared_regions.h).
  struct FileEntry {
    std::atomic<std::uint64_t> number{0};  // 0 means free; the owner gives no number twice
    std::uint64_t address = 0;             // where the file begins in the owner's address space
    std::uint64_t bytes = 0;               // that peers may reach; the file may have more
    std::uint64_t inode = 0;
    std::int32_t fd = -1;  // in the owner's process
    // 1 if the owner itself finds other memory at the address by now. Only keys that name the file
    // lead there then.
    std::atomic<std::uint8_t> is_displaced{0};
  };
  static constexpr std::size_t files_max = 512;

  // Each queue pair of a process has a count of recalls.
  static constexpr std::size_t recalls_max = qps_per_slot;

  // These are the two ends of rings, for the process in one slot. Each process is named by its
  // `proof`, since a slot has another process one day. A ring is used while both ends name the
  // other.
  struct Outbox {
    alignas(PacketRing::line_bytes) std::atomic<std::uint64_t> reader{0};
    // Odd while the owner waits for room in this ring. The reader that makes room then rings the
    // owner's doorbell once for each such number.
    std::atomic<std::uint32_t> waits{0};
  };
  struct Inbox {
    alignas(PacketRing::line_bytes) std::atomic<std::uint64_t> writer{0};
    RingProgress progress;
    // 1 while the owner would read the payloads of long messages from the writer's memory
    // (live/path/memory/payload_reference.h).
    std::atomic<std::uint8_t> reads_memory{0};
  };

  std::uint32_t magic = magic_value;
  std::uint32_t version = layout_version;
  std::uint64_t proof_address = 0;  // address of the same value in the owner's memory
  std::uint64_t proof = 0;          // random value
  // The owner's process id and PID namespace, as the owner sees them. The owner could not tell
  // whether a visitor lives if the visitor came from another namespace or knew the owner by another
  // number.
  std::int64_t pid_namespace = 0;
  std::int32_t pid = 0;
  // 0 while the owner takes no visitors. A boolean would have no meaning for other bytes, and the
  // owner may write any.
  std::atomic<std::uint8_t> open{1};

  // Counts what the owner has taken back. A visitor writes only if this has not changed since it
  // looked at the entries.
  std::atomic<std::uint32_t> withdrawals{0};
  // A robust mutex that a thread of the owner holds for as long as the owner's memory is what the
  // table describes. When the process dies, and also before exec(2) gives it other memory, the
  // kernel marks the mutex's word, which is its first.
  alignas(8) pthread_mutex_t life{};
  // The owner's own visit to another process. It has a separate cache line, since the owner changes
  // it with each transfer and visitors read what is around it.
  alignas(64) std::atomic<std::uint64_t> visit{Visit::none};

  // Odd while the owner looks at its rings only when it is told of a record, by its doorbell. The
  // owner adds 2 each time it has looked at all of them, so that one telling is enough until then.
  alignas(64) std::atomic<std::uint32_t> sleeps{1};

  // No entry of `files` from here on was ever used.
  std::atomic<std::uint32_t> file_places{0};

  // Counts for each queue pair how often the owner's program may have been given back memory that
  // holds payloads to which rings refer.
  std::array<std::atomic<std::uint32_t>, recalls_max> recalls{};
  std::array<Outbox, slots> outboxes{};
  std::array<Inbox, slots> inboxes{};
  alignas(64) std::array<QpEntry, qp_sets * ways> qps{};
  std::array<KeyEntry, key_sets * ways> keys{};
  std::array<FileEntry, files_max> files{};

  const std::atomic<std::uint32_t>& life_word() const {
    return *reinterpret_cast<const std::atomic<std::uint32_t>*>(&life);
  }

  static std::size_t recall_of(QpNumber qp) { return qp.value % recalls_max; }
  static std::size_t qp_set(std::uint32_t number) { return number % qp_sets * ways; }
  static std::size_t key_set(std::uint32_t key) { return (key >> 8) % key_sets * ways; }

  const QpEntry* find_qp(std::uint32_t number) const {
    for (std::size_t i = qp_set(number), end = i + ways; i < end; ++i) {
      if (qps[i].number.load(std::memory_order_seq_cst) == number) return &qps[i];
    }
    return nullptr;
  }
  const KeyEntry* find_key(std::uint32_t key) const {
    for (std::size_t i = key_set(key), end = i + ways; i < end; ++i) {
      if (keys[i].key.load(std::memory_order_seq_cst) == key) return &keys[i];
    }
    return nullptr;
  }
};
// The file holds the table, and behind it the owner's ring to each slot. Each begins on a page.
struct PeerFile {
  static constexpr std::size_t page_bytes = 4'096;
  static constexpr std::size_t table_bytes =
      (sizeof(PeerTable) + page_bytes - 1) / page_bytes * page_bytes;
  static constexpr std::size_t bytes = table_bytes + slots * PacketRing::ring_bytes;
  static constexpr std::size_t ring_at(std::uint32_t slot) {
    return table_bytes + slot * PacketRing::ring_bytes;
  }
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0);

}  // namespace tulle::live
