#pragma once

// Registered memory and who may touch it (IBTA 10.6). The only place that knows an access rule.

#include <cstddef>
#include <cstdint>

#include "base/id_map.h"
#include "base/ids.h"
#include "base/prefetch.h"
#include "base/random.h"
#include "verbs/protection_domain.h"
#include "verbs/types.h"

namespace tulle::verbs {

// What a key names. Upper 24 bits of a key are the index that the table finds it by; the low 8 bits
// of a type 2 window's key are the consumer's (IBTA 10.6.7.2.6).
class KeyHolder {
 public:
  enum class Kind : std::uint8_t { region, window };
  explicit KeyHolder(Kind kind) : kind(kind) {}
  const Kind kind;
  std::uint32_t key = 0;
};

class MemoryRegion : public KeyHolder {
 public:
  MemoryRegion() : KeyHolder(Kind::region) {}

  LocalKey lkey() const { return LocalKey{key}; }
  RemoteKey rkey() const { return RemoteKey{key}; }

  ProtectionDomain* pd = nullptr;
  std::byte* memory =
      nullptr;               // null: a ghost, memory of a simulation that has a length and no bytes
  std::uint64_t length = 0;  // bytes
  std::uint64_t iova = 0;    // the address by which work requests name its first byte
  AccessFlags access;
  bool valid = true;  // false after an invalidation
  std::uint32_t bound_windows = 0;
  void* cookie = nullptr;

  // Whether [address, address + bytes) lies within.
  bool covers(std::uint64_t address, std::uint64_t bytes) const {
    return address >= iova && bytes <= length && address - iova <= length - bytes;
  }
  std::byte* at(std::uint64_t address) const {
    return memory == nullptr ? nullptr : memory + (address - iova);
  }
};

// A null region's memory: as many zeros, and behind them as much room for what is to be lost. More
// than any packet or segment holds.
inline constexpr std::uint64_t null_bytes_max = 1u << 16;

enum class WindowType : std::uint8_t { type1, type2 };

// A part of a region with a key of its own (IBTA 10.6.7).
// Type 2 is bound to one queue pair (type 2B).
class MemoryWindow : public KeyHolder {
 public:
  MemoryWindow() : KeyHolder(Kind::window) {}

  RemoteKey rkey() const { return RemoteKey{key}; }

  WindowType type = WindowType::type1;
  ProtectionDomain* pd = nullptr;
  MemoryRegion* region = nullptr;  // null: not bound
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  AccessFlags access;
  QpNumber qp;  // type 2
  void* cookie = nullptr;
};

struct WindowBinding {
  MemoryRegion* region = nullptr;
  std::uint64_t address = 0;
  std::uint64_t length = 0;  // 0 unbinds a type 1 window
  AccessFlags access;
  RemoteKey new_key;  // type 2; type 1: of the same index, or any other value for a fresh key
};

// The pages behind regions that are paged on demand, which only the driver can look at.
class MemoryPages {
 public:
  virtual ~MemoryPages() = default;
  // Sees to it that the pages are there, for reading or writing; false: they cannot be had.
  [[nodiscard]] virtual bool bring(std::byte* memory, std::uint64_t bytes, bool write) const = 0;
};

class KeyTable {
 public:
  explicit KeyTable(std::uint64_t seed) : random_(seed) {}

  // Gives the holder a key that no living holder has: 24 random bits of index and, for a region, 8
  // more, so that a key cannot be guessed and is not soon given again.
  void add(KeyHolder& holder);
  void remove(KeyHolder& holder);
  // A fresh key, as after re-registration or a bind of a type 1 window.
  void renew(KeyHolder& holder);

  // Asked before each access to a region that is paged on demand; null (a simulation): not needed.
  void set_pages(const MemoryPages* pages) { pages_ = pages; }

  // Null: it names no region.
  const MemoryRegion* find_region(LocalKey key) const;

  std::size_t size() const { return holders_.size(); }
  // Fetches what the key that was looked up last names.
  void prefetch() const {
    if (last_ != nullptr) tulle::prefetch(last_);
  }

  enum class Verdict : std::uint8_t { ok, denied };
  struct Grant {
    Verdict verdict = Verdict::denied;
    std::byte* memory = nullptr;  // null and ok: a ghost, or no bytes
  };

  // Local access by a queue pair of `pd` (IBTA 10.6.3.2). To a null region: of null_bytes_max at a
  // time, and more is denied.
  Grant local(LocalKey key, const ProtectionDomain& pd, std::uint64_t address, std::uint64_t bytes,
              bool write) const;
  // Access that a packet asks for, arriving at queue pair `qp` of `pd` (IBTA 10.6.3.3).
  // No bytes: no check.
  Grant remote(RemoteKey key, const ProtectionDomain& pd, QpNumber qp, std::uint64_t address,
               std::uint64_t bytes, AccessFlags needed) const;

  // Why remote() denied it, for who has to tell (RFC 5040 7.2).
  enum class Refusal : std::uint8_t { unknown_key, foreign, out_of_bounds, not_permitted };
  Refusal why_denied(RemoteKey key, const ProtectionDomain& pd, QpNumber qp,
                     AccessFlags needed) const;

  // Where in its region memory lies that remote() has granted, for who has to read it again when
  // the key may have been taken away.
  struct Place {
    LocalKey key;
    std::uint64_t address = 0;
  };
  Place place_of(RemoteKey key, std::uint64_t address) const;

  // IBTA 11.4.1.1, bind: false: the binding is not allowed.
  [[nodiscard]] bool bind(MemoryWindow& window, const ProtectionDomain& pd, QpNumber qp,
                          const WindowBinding& binding);
  // Local invalidate, or a SEND with invalidate that arrived: false:
  // the key names nothing that may be invalidated.
  [[nodiscard]] bool invalidate(RemoteKey key, const ProtectionDomain& pd, QpNumber qp);
  void unbind(MemoryWindow& window);

 private:
  KeyHolder* find(std::uint32_t key) const;
  // What access that has been allowed is given.
  Grant reach(const MemoryRegion& region, std::uint64_t address, std::uint64_t bytes,
              bool write) const;
  Grant special(const MemoryRegion& region, std::uint64_t address, std::uint64_t bytes,
                bool write) const;
  void rename(MemoryWindow& window, RemoteKey key);

  IdMap<KeyHolder> holders_;           // by key >> 8
  mutable KeyHolder* last_ = nullptr;  // that was looked up
  Random random_;
  const MemoryPages* pages_ = nullptr;
};

}  // namespace tulle::verbs
