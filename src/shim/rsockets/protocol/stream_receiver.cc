#include "shim/rsockets/protocol/stream_receiver.h"

#include <algorithm>

#include "shim/rsockets/protocol/vectors.h"

namespace tulle::rsockets {

void StreamReceiver::start(ExposedMemory buffer, std::uint32_t queue) {
  buffer_ = buffer;
  queue_ = queue;
  arrived_ = Ring<std::uint32_t>(queue);
  free_offset_ = free_bytes_ = half_bytes();
  offered_bytes_ = half_bytes();
  messages_offered_ = static_cast<std::uint16_t>(queue);
  offer_due_ = static_cast<std::uint16_t>(queue / 2);
}

bool StreamReceiver::take_credit() {
  if (messages_arrived_ == messages_offered_) return false;
  ++messages_arrived_;
  return true;
}

bool StreamReceiver::handle_data(std::uint32_t bytes) {
  if (!take_credit() || offered_bytes_ == 0) return false;
  // Halves are offered whole and filled alternately, so this is the rest of the one in use.
  const std::uint32_t rest = (offered_bytes_ - 1) % half_bytes() + 1;
  if (bytes == 0 || bytes > rest || arrived_.full()) return false;
  offered_bytes_ -= bytes;
  arrived_.push(bytes);
  waiting_bytes_ += bytes;
  return true;
}

bool StreamReceiver::handle_empty() {
  if (!take_credit()) return false;
  ++messages_read_;
  return true;
}

template <typename Copy>
std::size_t StreamReceiver::take(std::size_t room, std::size_t done, bool peek, Copy copy) {
  const std::size_t before = done;
  std::uint32_t offset = read_offset_;
  std::uint32_t at = 0;
  while (done < room && at < arrived_.size()) {
    const std::uint32_t message = arrived_[at];
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(message, room - done));
    // A message never crosses the buffer's end, because it fits the rest of a half.
    copy(buffer_.bytes.subspan(offset, count), done);
    done += count;
    offset = (offset + count) % static_cast<std::uint32_t>(buffer_.bytes.size());
    if (peek) {
      ++at;
    } else if (count < message) {
      arrived_.front() -= count;
    } else {
      arrived_.pop();
      ++messages_read_;
    }
  }
  if (!peek) {
    read_offset_ = offset;
    free_bytes_ += static_cast<std::uint32_t>(done - before);
    waiting_bytes_ -= done - before;
  }
  return done;
}

std::size_t StreamReceiver::read(std::span<const iovec> into, std::size_t done, bool peek) {
  return take(total_bytes(into), done, peek,
              [into](std::span<const std::byte> from, std::size_t at) { scatter(from, into, at); });
}

std::size_t StreamReceiver::skip(std::size_t room, std::size_t done, bool peek) {
  return take(room, done, peek, [](std::span<const std::byte>, std::size_t) {});
}

bool StreamReceiver::is_offer_due() const {
  const auto ahead = static_cast<std::int16_t>(messages_read_ - offer_due_);
  return ahead >= 0 || free_bytes_ >= half_bytes();
}

StreamReceiver::Offer StreamReceiver::next_offer() {
  Offer offer;
  offer.credits = messages_offered_ = static_cast<std::uint16_t>(messages_read_ + queue_);
  offer_due_ = static_cast<std::uint16_t>(messages_read_ + queue_ / 2);
  offer.has_half = free_bytes_ >= half_bytes();
  if (offer.has_half) {
    offer.address = buffer_.address() + free_offset_;
    offered_bytes_ += half_bytes();
    free_bytes_ -= half_bytes();
    free_offset_ = free_offset_ == 0 ? half_bytes() : 0;
  }
  return offer;
}

}  // namespace tulle::rsockets
