#include "live/path/memory/payload_reference.h"

#include <cstring>

#include "base/check.h"

namespace tulle::live {

PayloadReference::PayloadReference(MemoryPieces payload, QpNumber qp, const PeerTable& table) {
  TULLE_CHECK(payload.size() <= pieces_max);
  const std::size_t recall = PeerTable::recall_of(qp);
  head_.recall = static_cast<std::uint32_t>(recall);
  head_.recalls = table.recalls[recall].load(std::memory_order_relaxed);
  for (const std::span<const std::byte> piece : payload) {
    pieces_[head_.piece_count++] = {reinterpret_cast<std::uint64_t>(piece.data()),
                                    static_cast<std::uint32_t>(piece.size()), 0};
  }
}

std::uint32_t PayloadReference::payload_bytes() const {
  std::uint32_t bytes = 0;
  for (const Piece& piece : pieces()) bytes += piece.bytes;
  return bytes;
}

void PayloadReference::encode(std::byte* room) const {
  std::memcpy(room, &head_, sizeof head_);
  std::memcpy(room + sizeof head_, pieces_.data(), pieces().size_bytes());
}

bool PayloadReference::take(std::span<const std::byte>& bytes) {
  Head head;
  if (bytes.size() < sizeof head) return false;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.piece_count == 0 || head.piece_count > pieces_max ||
      head.recall >= PeerTable::recalls_max || bytes.size() < encoded_bytes(head.piece_count)) {
    return false;
  }
  head_ = head;
  std::memcpy(pieces_.data(), bytes.data() + sizeof head, pieces().size_bytes());
  std::uint32_t sum = 0;
  for (const Piece& piece : pieces()) {
    if (piece.bytes == 0 || piece.bytes > payload_bytes_max - sum) return false;
    sum += piece.bytes;
  }
  bytes = bytes.subspan(encoded_bytes(head.piece_count));
  return true;
}

}  // namespace tulle::live
