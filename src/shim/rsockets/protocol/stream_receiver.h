#pragma once

// The receiving half of a stream: a buffer of two halves that the peer writes, the messages that
// arrived in it, and what the peer may send. The peer's word is checked against that, since a
// message says only how long it is: where it is stored follows from all before it.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ring.h"

namespace tulle::rsockets {

// Memory that the peer writes, and the key by which it does.
struct ExposedMemory {
  std::span<std::byte> bytes;
  std::uint32_t key = 0;

  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes.data()); }
};

class StreamReceiver {
 public:
  // An offer tells the peer how far it may count its messages, and which half is free again.
  struct Offer {
    std::uint16_t credits = 0;
    bool has_half = false;
    std::uint64_t address = 0;
  };

  // `buffer` has an even number of bytes. The peer may use the first half from the start, and the
  // second once it is offered. `queue` is the number of receive requests.
  void start(ExposedMemory buffer, std::uint32_t queue);

  bool has_data() const { return !arrived_.empty(); }
  std::size_t waiting_bytes() const { return waiting_bytes_; }
  // The peer may send nothing more until something is read.
  bool is_full() const {
    const bool may_send = messages_arrived_ != messages_offered_ && offered_bytes_ > 0;
    return !may_send && !is_offer_due();
  }
  std::uint32_t half_bytes() const { return static_cast<std::uint32_t>(buffer_.bytes.size() / 2); }
  const ExposedMemory& buffer() const { return buffer_; }

  // The peer says that it wrote `bytes`. Returns false if it was not allowed to: if it has no
  // credit, or if they do not fit the half that it writes.
  bool handle_data(std::uint32_t bytes);
  // The peer sent a message that takes a credit and holds nothing to read. Returns false if it has
  // no credit.
  bool handle_empty();

  // Copies data into the vectors behind their first `done` bytes. Returns the number of bytes that
  // they hold then.
  std::size_t read(std::span<const iovec> into, std::size_t done, bool peek);
  // Does the same for `room` bytes, without copying any.
  std::size_t skip(std::size_t room, std::size_t done, bool peek);

  bool is_offer_due() const;
  Offer next_offer();

 private:
  bool take_credit();
  // Calls `copy` for each piece, and returns what read() does.
  template <typename Copy>
  std::size_t take(std::size_t room, std::size_t done, bool peek, Copy copy);

  ExposedMemory buffer_;
  std::uint32_t queue_ = 0;
  std::uint32_t offered_bytes_ = 0;  // what the peer may still write
  std::uint16_t messages_arrived_ = 0;
  std::uint16_t messages_offered_ = 0;  // the count at which the peer must stop
  Ring<std::uint32_t> arrived_;         // unread bytes of each message, as many as credits
  std::size_t waiting_bytes_ = 0;       // all of them
  std::uint32_t read_offset_ = 0;
  std::uint32_t free_offset_ = 0;  // start of the half that is offered next
  std::uint32_t free_bytes_ = 0;   // bytes read, and not offered again yet
  std::uint16_t messages_read_ = 0;
  std::uint16_t offer_due_ = 0;  // count of messages read at which credits are sent
};

}  // namespace tulle::rsockets
