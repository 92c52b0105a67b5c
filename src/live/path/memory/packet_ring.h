#pragma once

// A ring of packets in memory, from one process of a host to another: one writer, one reader. The
// writer's memory holds the packets, and the reader cannot change them. The reader publishes in its
// own memory how far it has read, so that neither trusts the other: any value there makes the
// writer wait or the reader stop, and lets neither touch memory outside of the ring.
//
// A record begins on a cache line with one word, which says how long the record is. The word is 0
// until the record is complete, so a reader that polls looks at the line that will hold the packet.
// The writer clears the word of the next record before it completes this one.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tulle::live {

// A reader tells the writer this, in memory of the reader's.
struct RingProgress {
  std::atomic<std::uint64_t> taken{0};  // bytes of the ring that the reader has read, in total
};

struct PacketRing {
  static constexpr std::size_t line_bytes = 64;
  // Two copies at a time, one on each side, go fastest through a second-level cache.
  static constexpr std::size_t ring_bytes = std::size_t{256} << 10;
  static constexpr std::size_t word_bytes = 8;  // the word, and 4 bytes that nothing uses
  // The longest content of a record. Any two records have room side by side.
  static constexpr std::size_t content_bytes_max = std::size_t{16} << 10;

  // The word of a record has the bytes of its content, and one of these marks.
  static constexpr std::uint32_t is_record = 1u << 24;
  static constexpr std::uint32_t is_skip = 1u << 25;  // the next record is at the ring's beginning
  static constexpr std::uint32_t has_path = 1u << 26;
  static constexpr std::uint32_t has_reference = 1u << 27;
  static constexpr std::uint32_t length_mask = is_record - 1;

  static constexpr std::size_t record_bytes(std::size_t content_bytes) {
    return (word_bytes + content_bytes + line_bytes - 1) / line_bytes * line_bytes;
  }
};

class RingWriter {
 public:
  RingWriter() = default;
  // Begins an empty ring in `memory`, which has PacketRing::ring_bytes and begins on a cache line.
  RingWriter(std::byte* memory, const RingProgress& reader);

  // Returns room for the content of the next record, or null if the ring has none now.
  std::byte* reserve(std::size_t content_bytes);
  // Completes the record for which reserve() returned room. `marks` are of PacketRing.
  void publish(std::size_t content_bytes, std::uint32_t marks = 0);

 private:
  std::size_t free_bytes() const { return PacketRing::ring_bytes - (written_ - taken_); }
  std::atomic<std::uint32_t>& word_at(std::size_t at) const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(memory_ + at);
  }
  void look_at_reader();

  std::byte* memory_ = nullptr;
  const RingProgress* reader_ = nullptr;
  std::uint64_t written_ = 0;  // bytes of the ring, in total
  std::uint64_t taken_ = 0;    // as the reader told last
};

class RingReader {
 public:
  struct Record {
    std::span<const std::byte> content;  // may change while it is read
    bool has_path = false;
    bool has_reference = false;
  };
  RingReader() = default;
  RingReader(const std::byte* memory, RingProgress& progress);

  bool has_more() const { return !is_broken_ && word_at(position()) != 0; }
  // Returns the next record, or nothing if there is none. The record is valid until the next call
  // of tell().
  std::optional<Record> take();
  // Undoes the last take(), whose record will be the next one again. The writer must not have been
  // told of it.
  void put_back(const Record& record) { taken_ -= PacketRing::record_bytes(record.content.size()); }
  // Tells the writer what has been read.
  void tell() { progress_->taken.store(taken_, std::memory_order_release); }
  // Returns true if the writer wrote something that no writer of ours writes. Nothing more is read.
  bool is_broken() const { return is_broken_; }

 private:
  std::size_t position() const { return taken_ % PacketRing::ring_bytes; }
  std::uint32_t word_at(std::size_t at) const {
    return reinterpret_cast<const std::atomic<std::uint32_t>*>(memory_ + at)
        ->load(std::memory_order_acquire);
  }

  const std::byte* memory_ = nullptr;
  RingProgress* progress_ = nullptr;
  std::uint64_t taken_ = 0;
  bool is_broken_ = false;
};

}  // namespace tulle::live
