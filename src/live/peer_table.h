#pragma once

// What one process shows to the others of its host, in shared memory: the keys and connections by
// which they may reach its memory without its help. The owner alone writes entries; visitors
// announce themselves while they use one, so that the owner can wait for
// them before memory goes away.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tulle::live {

struct PeerTable {
  static constexpr std::uint32_t magic_value = 0x54'55'4C'45;
  static constexpr std::uint32_t layout_version = 2;
  static constexpr std::size_t visitor_slots = 256;  // one for each process slot of the host
  // Sets of eight: an entry lies in the set that its number hashes to,
  // or is not exposed (then packets serve).
  static constexpr std::size_t ways = 8;
  static constexpr std::size_t qp_sets = 4'096;
  static constexpr std::size_t key_sets = 8'192;

  struct QpEntry {
    std::atomic<std::uint32_t> number{0};  // 0: free
    std::uint32_t destination = 0;
    std::uint32_t access = 0;
    std::uint64_t pd = 0;  // equal where it is the same protection domain; means nothing else
  };
  struct KeyEntry {
    std::atomic<std::uint32_t> key{0};  // 0: free
    std::uint32_t access = 0;
    std::uint64_t pd = 0;
    std::uint64_t iova = 0;
    std::uint64_t length = 0;   // bytes
    std::uint64_t address = 0;  // in the owner's memory
  };

  std::uint32_t magic = magic_value;
  std::uint32_t version = layout_version;
  std::uint64_t proof_address = 0;  // where in the owner's memory `proof` stands too
  std::uint64_t proof = 0;          // random
  // The owner as its own PID namespace numbers it: where a visitor knows it by another number, or
  // from another namespace, the owner could not tell whether the visitor lives.
  std::int64_t pid_namespace = 0;
  std::int32_t pid = 0;
  std::atomic<bool> open{true};  // false: the owner takes no visitors for now

  // The process id of the visitor, while it visits.
  std::array<std::atomic<std::int32_t>, visitor_slots> visitors{};
  std::array<QpEntry, qp_sets * ways> qps{};
  std::array<KeyEntry, key_sets * ways> keys{};

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
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace tulle::live
