#pragma once

// Memory of a program's that the peer writes directly, and that of the peer.

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "shim/rsockets/protocol/wire.h"

namespace tulle::rsockets {

class StreamMaps {
 public:
  // The peer writes `entries`, which say what its maps are.
  void start(std::span<const std::byte> entries);
  // Where the peer has its entries; `bytes` is their number.
  void open(const TargetEntry& peer) { peer_ = peer; }

  // Returns false if the peer has no entry left for a further map that it may write.
  bool has_room() const { return free_index() < peer_.bytes; }
  // A map that the peer may not write has no entry, and the peer is never notified of it. The
  // caller may add a map that the peer may write while has_room().
  void add(std::uint64_t offset, const TargetEntry& memory, bool is_writable);
  void remove(std::uint32_t key);

  // A map that the peer was not told of.
  struct News {
    MapEntry entry;
    std::uint32_t index = 0;    // of the peer's entry
    std::uint64_t address = 0;  // of the peer's entry
    std::uint32_t key = 0;
  };
  bool has_news() const;
  // The caller may call it while has_news().
  News take_news();

  // The peer wrote its entry `index`, which is read now and at no other time. Returns false if
  // there is no such entry.
  bool learn(std::uint32_t index);
  // Finds the peer's memory at an offset. Returns nothing if none is mapped there.
  std::optional<TargetEntry> find(std::uint64_t offset) const;

 private:
  struct Map {
    std::uint64_t offset = 0;
    TargetEntry memory;
    std::optional<std::uint32_t> index;  // of the peer's entry
    bool is_told = true;
  };

  std::uint32_t free_index() const;

  std::span<const std::byte> entries_;
  std::vector<MapEntry> known_;  // what the peer said of them
  TargetEntry peer_;
  std::list<Map> maps_;
};

}  // namespace tulle::rsockets
