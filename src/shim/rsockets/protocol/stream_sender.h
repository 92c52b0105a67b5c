#pragma once

// The sending half of a stream: a ring of bytes under way, the list in which the peer says where it
// has room, and what limits sending.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ring.h"
#include "shim/rsockets/protocol/sizes.h"
#include "shim/rsockets/protocol/wire.h"

namespace tulle::rsockets {

// An RDMA WRITE that the driver has to post.
struct StreamWrite {
  std::uint64_t work_id = 0;         // what handle_sent() takes
  std::span<const std::byte> bytes;  // valid until posted, and in the send buffer until completed
  bool is_inline = false;            // posting copies the bytes, which may be anywhere
  bool has_immediate = true;
  std::uint32_t message = 0;  // the immediate
  std::uint64_t address = 0;  // the peer's memory
  std::uint32_t key = 0;
};

class StreamSender {
 public:
  // Each control message that may be under way has a slot behind the ring.
  static constexpr std::uint32_t control_slots = 4;
  static std::size_t buffer_bytes(const SocketSizes& sizes);

  // `buffer` has buffer_bytes(). The peer writes `list`, which has target_entries.
  void start(std::span<std::byte> buffer, std::span<std::byte> list, const SocketSizes& sizes);
  // The peer's first half, and the number of messages that it takes.
  void open(const TargetEntry& half, std::uint16_t credits);
  // The peer takes messages up to this count. If it has offered a half with that, the half is in
  // the list's next entry, where it is read once and no sooner. Returns false if it is more than a
  // peer has to offer.
  bool allow(std::uint16_t messages, bool has_half);

  bool can_send() const;
  bool can_control() const { return controls_sent_ != controls_allowed_; }
  bool all_sent() const { return posted_ == 0; }
  bool fits_inline(std::size_t bytes) const;

  // Takes up to `bytes` of the vectors, from their byte `offset` on. The caller may call it while
  // can_send().
  StreamWrite write_data(std::span<const iovec> from, std::size_t offset, std::size_t bytes);
  // Takes up to `bytes` into the ring, for memory of the peer's. The caller may call it while
  // can_send().
  StreamWrite write_direct(std::span<const std::byte> from, const TargetEntry& to);
  // Sends the peer the map `index`, whose entry is at `address`. The entry must fit inline.
  StreamWrite write_map(const MapEntry& entry, std::uint32_t index, std::uint64_t address,
                        std::uint32_t key);
  // The caller may call these while can_control().
  StreamWrite write_control(Control control);
  StreamWrite write_credits(std::uint16_t credits);
  StreamWrite write_credits(std::uint16_t credits, const TargetEntry& half, std::uint64_t address,
                            std::uint32_t key);

  void handle_sent(std::uint64_t work_id);

  static std::uint32_t message_of(std::uint64_t work_id) {
    return static_cast<std::uint32_t>(work_id);
  }

 private:
  // Limit for pieces that are sent inline.
  static constexpr std::size_t inline_max = 512;

  std::size_t ring_room() const;
  std::span<std::byte> take_ring(std::size_t bytes);
  StreamWrite write(MessageType type, std::uint32_t value, std::span<const std::byte> bytes,
                    std::uint64_t address, std::uint32_t key);

  std::span<std::byte> ring_;
  std::span<std::byte> slots_;
  std::span<std::byte> list_;
  std::uint32_t head_ = 0;
  std::uint32_t free_bytes_ = 0;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t sends_free_ = 0;  // entries of the send queue that data may take
  std::uint32_t posted_ = 0;      // work requests that are not completed
  std::uint32_t controls_sent_ = 0;
  std::uint32_t controls_allowed_ = 0;
  std::uint16_t messages_sent_ = 0;
  std::uint16_t messages_allowed_ = 0;
  std::uint32_t list_index_ = 1;  // of the entry that the peer writes next
  Ring<TargetEntry> targets_{
      target_entries};  // halves of the peer's with room; the first is being filled
  std::array<std::byte, inline_max> small_;  // bytes of a write that is sent inline
};

}  // namespace tulle::rsockets
