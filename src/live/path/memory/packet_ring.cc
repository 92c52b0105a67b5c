#include "live/path/memory/packet_ring.h"

#include "base/check.h"

namespace tulle::live {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(PacketRing::ring_bytes % PacketRing::line_bytes == 0);

RingWriter::RingWriter(std::byte* memory, const RingProgress& reader)
    : memory_(memory), reader_(&reader) {
  word_at(0).store(0, std::memory_order_relaxed);
}

// A reader that tells nonsense gets no packets.
void RingWriter::look_at_reader() {
  const std::uint64_t told = reader_->taken.load(std::memory_order_acquire);
  if (told >= taken_ && told <= written_) taken_ = told;
}

std::byte* RingWriter::reserve(std::size_t content_bytes) {
  TULLE_CHECK(content_bytes <= PacketRing::content_bytes_max);
  const std::size_t bytes = PacketRing::record_bytes(content_bytes);
  std::size_t at = written_ % PacketRing::ring_bytes;
  const std::size_t to_end = PacketRing::ring_bytes - at;
  const std::size_t skipped = bytes > to_end ? to_end : 0;
  // One line more is free: that of the next record's word.
  const std::size_t needed = skipped + bytes + PacketRing::line_bytes;
  if (free_bytes() < needed) look_at_reader();
  if (free_bytes() < needed) return nullptr;
  if (skipped > 0) {
    word_at(0).store(0, std::memory_order_relaxed);
    word_at(at).store(PacketRing::is_skip, std::memory_order_release);
    written_ += skipped;
    at = 0;
  }
  return memory_ + at + PacketRing::word_bytes;
}

void RingWriter::publish(std::size_t content_bytes, std::uint32_t marks) {
  const std::size_t at = written_ % PacketRing::ring_bytes;
  written_ += PacketRing::record_bytes(content_bytes);
  word_at(written_ % PacketRing::ring_bytes).store(0, std::memory_order_relaxed);
  word_at(at).store(static_cast<std::uint32_t>(content_bytes) | PacketRing::is_record | marks,
                    std::memory_order_release);
}

RingReader::RingReader(const std::byte* memory, RingProgress& progress)
    : memory_(memory), progress_(&progress) {}

std::optional<RingReader::Record> RingReader::take() {
  if (is_broken_) return {};
  std::uint32_t word = word_at(position());
  if (word == PacketRing::is_skip && position() != 0) {
    taken_ += PacketRing::ring_bytes - position();
    word = word_at(0);
  }
  if (word == 0) return {};
  const std::size_t at = position();
  const std::size_t length = word & PacketRing::length_mask;
  const std::uint32_t marks = word & ~PacketRing::length_mask;
  constexpr std::uint32_t optional_marks = PacketRing::has_path | PacketRing::has_reference;
  const bool is_known = (marks & ~optional_marks) == PacketRing::is_record;
  if (!is_known || length > PacketRing::content_bytes_max ||
      PacketRing::record_bytes(length) > PacketRing::ring_bytes - at) {
    is_broken_ = true;
    return {};
  }
  taken_ += PacketRing::record_bytes(length);
  return Record{{memory_ + at + PacketRing::word_bytes, length},
                (marks & PacketRing::has_path) != 0,
                (marks & PacketRing::has_reference) != 0};
}

}  // namespace tulle::live
