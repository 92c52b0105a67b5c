#pragma once

// A payload that stays in its writer's memory. The record of a packet of a long message does not
// hold the payload but says where it is. The reader copies it once, to where it belongs.
//
// The writer's program leaves the bytes as they are until its request completes. Mostly the request
// completes because the reader has all of it. Where it completes for another reason, the writer
// first changes the number in PeerTable::recalls that the reference names. The reader's copy counts
// only if this number is still the same after the copy.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/guarded_access.h"
#include "live/path/memory/peer_table.h"

namespace tulle::live {

class PayloadReference {
 public:
  static constexpr std::size_t pieces_max = 4;
  static constexpr std::uint32_t payload_bytes_max = 4'096;  // the largest path MTU

  struct Piece {
    std::uint64_t address = 0;  // in the writer's memory
    std::uint32_t bytes = 0;
    std::uint32_t unused = 0;  // a record's bytes are all defined
  };

  PayloadReference() = default;
  // Refers to a payload of at most pieces_max pieces, none of which is empty. `table` is the
  // writer's.
  PayloadReference(MemoryPieces payload, QpNumber qp, const PeerTable& table);

  std::span<const Piece> pieces() const { return {pieces_.data(), head_.piece_count}; }
  std::uint32_t payload_bytes() const;
  // Returns true if the program may have been told that the bytes are its own again. `table` is the
  // writer's.
  bool is_recalled(const PeerTable& table) const {
    return table.recalls[head_.recall].load(std::memory_order_seq_cst) != head_.recalls;
  }
  bool is_recalled_with(const PayloadReference& other) const {
    return head_.recall == other.head_.recall && head_.recalls == other.head_.recalls;
  }

  static constexpr std::size_t encoded_bytes(std::size_t pieces) {
    return sizeof(Head) + pieces * sizeof(Piece);
  }
  void encode(std::byte* room) const;
  // Takes a reference from the front of a record, whose bytes may change at any time. Returns false
  // if it is none that a writer of ours writes.
  [[nodiscard]] bool take(std::span<const std::byte>& bytes);

 private:
  struct Head {
    std::uint32_t recalls = 0;  // the number in PeerTable::recalls when this was written
    std::uint32_t recall = 0;   // its index
    std::uint32_t piece_count = 0;
    std::uint32_t unused = 0;
  };
  Head head_;
  std::array<Piece, pieces_max> pieces_{};
};

}  // namespace tulle::live
