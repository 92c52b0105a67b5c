#pragma once

// Registered memory and the rights to access it (IBTA 10.6). No other file knows an access rule.

#include <cstddef>
#include <cstdint>

#include "base/id_map.h"
#include "base/ids.h"
#include "base/prefetch.h"
#include "base/random_source.h"
#include "rdma/verbs/protection_domain.h"
#include "rdma/verbs/types.h"

namespace tulle::verbs {

// The object that a key names. The upper 24 bits of a key are the index by which the table finds
// it. The low 8 bits of a type 2 window's key are the consumer's (IBTA 10.6.7.2.6).
class KeyHolder {
 public:
  enum class Kind : std::uint8_t { region, window };
  explicit KeyHolder(Kind kind) : kind(kind) {}
  const Kind kind;
  std::uint32_t key = 0;
};

// True if [address, address + bytes) is within [start, start + length). No sum may wrap around.
constexpr bool range_covers(std::uint64_t start, std::uint64_t length, std::uint64_t address,
                            std::uint64_t bytes) {
  return address >= start && bytes <= length && address - start <= length - bytes;
}

// True if a region or window of protection domain `pd` with the rights `granted` allows an access
// that arrived at a queue pair of `qp_pd` (IBTA 10.6.3.3). Protection domains are compared by
// identity only.
template <typename Domain, typename QpDomain>
constexpr bool allows_access(AccessFlags granted, const Domain& pd, AccessFlags needed,
                             const QpDomain& qp_pd) {
  return pd == qp_pd && granted.has_all(needed);
}

// A region has one number for both of its keys.
constexpr LocalKey local_key(RemoteKey key) { return LocalKey{key.value}; }
constexpr RemoteKey remote_key(LocalKey key) { return RemoteKey{key.value}; }

class MemoryRegion : public KeyHolder {
 public:
  MemoryRegion() : KeyHolder(Kind::region) {}

  LocalKey lkey() const { return LocalKey{key}; }
  RemoteKey rkey() const { return remote_key(lkey()); }

  ProtectionDomain* pd = nullptr;
  std::byte* memory = nullptr;  // null: a ghost, simulated memory that has a length and no bytes
  std::uint64_t length = 0;     // bytes
  std::uint64_t iova = 0;       // the address of the first byte in work requests
  AccessFlags access;
  std::uint32_t bound_windows = 0;
  void* cookie = nullptr;

  // True if [address, address + bytes) is within the region.
  bool covers(std::uint64_t address, std::uint64_t bytes) const {
    return range_covers(iova, length, address, bytes);
  }
  std::byte* at(std::uint64_t address) const {
    return memory == nullptr ? nullptr : memory + (address - iova);
  }
};

// Half the memory of a null region: this many zeros, and behind them as many bytes that take what
// is written. It is more than any packet or segment holds.
inline constexpr std::uint64_t null_bytes_max = 1u << 16;

enum class WindowType : std::uint8_t { type1, type2 };

// A part of a region with its own key (IBTA 10.6.7). A type 2 window is bound to one queue pair
// (type 2B).
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
  RemoteKey new_key;  // type 2: the low 8 bits of the new key; type 1: of the same index, or any
                      // other value for a fresh key
};

// The pages behind regions. Only the driver can look at them.
class MemoryPages {
 public:
  virtual ~MemoryPages() = default;
  // Makes sure that the pages are present for reading or writing. Returns false if they cannot be
  // made so. Called for regions that are paged on demand.
  [[nodiscard]] virtual bool bring(std::byte* memory, std::uint64_t bytes, bool write) const = 0;
  // Returns true if the bytes can be read now. Called before data is gathered from a region.
  [[nodiscard]] virtual bool can_read(const std::byte* memory, std::uint64_t bytes) const = 0;
};

class KeyTable {
 public:
  explicit KeyTable(const RandomSource& random) : random_(random) {}

  // Gives the holder a key that no living holder has: 24 random bits of index and, for a region, 8
  // more. A key can thus not be guessed and is not soon given again.
  void add(KeyHolder& holder);
  void make_room() { holders_.make_room(2); }  // the next add() then cannot fail
  void remove(KeyHolder& holder);
  // Gives the holder a fresh key, as after re-registration or a bind of a type 1 window.
  void renew(KeyHolder& holder);

  // Sets the object that is asked before regions are read, and before regions that are paged on
  // demand are written. Null (in a simulation) means that no access is asked about.
  void set_pages(const MemoryPages* pages) { pages_ = pages; }

  // Returns null if the key names no region.
  const MemoryRegion* find_region(LocalKey key) const;

  std::size_t size() const { return holders_.size(); }
  // Prefetches the object that the last look-up found.
  void prefetch() const {
    if (last_ != nullptr) tulle::prefetch(last_);
  }

  enum class Verdict : std::uint8_t { ok, denied };
  struct Grant {
    Verdict verdict = Verdict::denied;
    std::byte* memory = nullptr;  // null and ok: a ghost, or no bytes
  };

  // Checks a local access by a queue pair of `pd` (IBTA 10.6.3.2). An access to a null region may
  // cover at most null_bytes_max bytes; more is denied.
  Grant local(LocalKey key, const ProtectionDomain& pd, std::uint64_t address, std::uint64_t bytes,
              bool write) const {
    const KeyHolder* holder = find(key.value);
    if (holder == nullptr || holder->kind != KeyHolder::Kind::region) return {};
    const auto& region = static_cast<const MemoryRegion&>(*holder);
    if (region.pd != &pd || !region.covers(address, bytes)) return {};
    if (write && !region.access.has(Access::local_write)) return {};
    return reach(region, address, bytes, write);
  }
  // Checks an access that a packet asks for, which arrived at queue pair `qp` of `pd` (IBTA
  // 10.6.3.3). An access to no bytes is not checked.
  Grant remote(RemoteKey key, const ProtectionDomain& pd, QpNumber qp, std::uint64_t address,
               std::uint64_t bytes, AccessFlags needed) const {
    // IBTA 9.7.4.1.5: the R_Key of a request for no bytes is not validated.
    if (bytes == 0) return {Verdict::ok, nullptr};
    const KeyHolder* holder = find(key.value);
    if (holder == nullptr) return {};
    if (holder->kind == KeyHolder::Kind::window) [[unlikely]] {
      return by_window(static_cast<const MemoryWindow&>(*holder), pd, qp, address, bytes, needed);
    }
    const auto& region = static_cast<const MemoryRegion&>(*holder);
    if (!region.covers(address, bytes)) return {};
    if (!allows_access(region.access, region.pd, needed, &pd)) return {};
    return reach(region, address, bytes, (needed & remote_writes).any());
  }

  // Returns the reason why remote() denied an access, for a protocol that reports it to the peer
  // (RFC 5040 7.2).
  enum class Refusal : std::uint8_t { unknown_key, foreign, out_of_bounds, not_permitted };
  Refusal why_denied(RemoteKey key, const ProtectionDomain& pd, QpNumber qp,
                     AccessFlags needed) const;

  // The place within its region of memory that remote() has granted. A caller that has to read the
  // memory again uses it, since the key may have been revoked by then.
  struct Place {
    LocalKey key;
    std::uint64_t address = 0;
  };
  Place place_of(RemoteKey key, std::uint64_t address) const;

  // Binds a window (IBTA 11.4.1.1). Returns false if the binding is not allowed.
  [[nodiscard]] bool bind(MemoryWindow& window, const ProtectionDomain& pd, QpNumber qp,
                          const WindowBinding& binding);
  // Invalidates a key, for a local invalidate or an incoming SEND with invalidate. Returns false if
  // the key names nothing that may be invalidated.
  [[nodiscard]] bool invalidate(RemoteKey key, const ProtectionDomain& pd, QpNumber qp);
  void unbind(MemoryWindow& window);

 private:
  void enter(KeyHolder& holder);
  static constexpr AccessFlags special_memory = AccessFlags(Access::on_demand) | Access::null;
  static constexpr AccessFlags remote_writes =
      AccessFlags(Access::remote_write) | Access::remote_atomic;

  // Packets come in runs that name the same key.
  KeyHolder* find(std::uint32_t key) const {
    if (last_ != nullptr && last_->key == key) return last_;
    return find_other(key);
  }
  KeyHolder* find_other(std::uint32_t key) const;
  Grant by_window(const MemoryWindow& window, const ProtectionDomain& pd, QpNumber qp,
                  std::uint64_t address, std::uint64_t bytes, AccessFlags needed) const;
  // Returns the grant for an access that has been allowed.
  Grant reach(const MemoryRegion& region, std::uint64_t address, std::uint64_t bytes,
              bool write) const {
    const bool asks_pages = pages_ != nullptr && !write;
    if (asks_pages || (region.access & special_memory).any()) [[unlikely]]
      return special(region, address, bytes, write);
    return {Verdict::ok, region.at(address)};
  }
  // The same for a null region, and where the pages have to be asked about.
  Grant special(const MemoryRegion& region, std::uint64_t address, std::uint64_t bytes,
                bool write) const;
  void rename(MemoryWindow& window, RemoteKey key);

  IdMap<KeyHolder> holders_;           // by key >> 8
  mutable KeyHolder* last_ = nullptr;  // found by the last look-up
  RandomSource random_;
  const MemoryPages* pages_ = nullptr;
};

}  // namespace tulle::verbs
