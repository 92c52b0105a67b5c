#include "shim/rsockets/protocol/stream_sender.h"

#include <algorithm>
#include <cstring>

#include "shim/rsockets/protocol/vectors.h"

namespace tulle::rsockets {
namespace {

// The identifier of a work request holds what its completion gives back: the message, and in the
// upper half the bytes of the ring.
constexpr std::uint64_t to_work_id(std::uint32_t message, std::size_t ring_bytes) {
  return std::uint64_t{ring_bytes} << 32 | message;
}

}  // namespace

std::size_t StreamSender::buffer_bytes(const SocketSizes& sizes) {
  return sizes.send_buffer_bytes + control_slots * sizeof(TargetEntry);
}

void StreamSender::start(std::span<std::byte> buffer, std::span<std::byte> list,
                         const SocketSizes& sizes) {
  ring_ = buffer.first(sizes.send_buffer_bytes);
  slots_ = buffer.subspan(sizes.send_buffer_bytes);
  list_ = list;
  free_bytes_ = sizes.send_buffer_bytes;
  inline_bytes_ = sizes.inline_bytes;
  sends_free_ = sizes.send_queue - control_slots;
  controls_allowed_ = control_slots;
}

void StreamSender::open(const TargetEntry& half, std::uint16_t credits) {
  if (half.bytes != 0) targets_.push(half);
  messages_allowed_ = credits;
}

bool StreamSender::allow(std::uint16_t messages, bool has_half) {
  messages_allowed_ = messages;
  if (!has_half) return true;
  TargetEntry half;
  std::memcpy(&half, list_.data() + list_index_ * sizeof half, sizeof half);
  list_index_ = (list_index_ + 1) % target_entries;
  if (half.bytes == 0 || targets_.size() == target_entries) return false;
  targets_.push(half);
  return true;
}

bool StreamSender::can_send() const {
  if (sends_free_ == 0 || free_bytes_ < send_low_water_bytes) return false;
  return messages_sent_ != messages_allowed_ && !targets_.empty();
}

bool StreamSender::fits_inline(std::size_t bytes) const {
  return bytes <= std::min<std::size_t>(inline_bytes_, small_.size());
}

// Returns the number of bytes that one piece of the ring may have.
std::size_t StreamSender::ring_room() const {
  return std::min(ring_.size() - head_, std::size_t{free_bytes_});
}

std::span<std::byte> StreamSender::take_ring(std::size_t bytes) {
  const std::span<std::byte> taken = ring_.subspan(head_, bytes);
  free_bytes_ -= static_cast<std::uint32_t>(bytes);
  head_ = static_cast<std::uint32_t>((head_ + bytes) % ring_.size());
  return taken;
}

StreamWrite StreamSender::write(MessageType type, std::uint32_t value,
                                std::span<const std::byte> bytes, std::uint64_t address,
                                std::uint32_t key) {
  ++posted_;
  StreamWrite write;
  write.message = to_message(type, value);
  write.work_id = write.message;
  write.bytes = bytes;
  write.is_inline = bytes.size() <= inline_bytes_;
  write.address = address;
  write.key = key;
  return write;
}

StreamWrite StreamSender::write_data(std::span<const iovec> from, std::size_t offset,
                                     std::size_t bytes) {
  TargetEntry& half = targets_.front();
  std::size_t count = std::min(bytes, std::size_t{half.bytes});
  std::span<std::byte> to;
  std::size_t ring_bytes = 0;
  if (fits_inline(count)) {
    to = std::span(small_).first(count);
  } else {
    count = ring_bytes = std::min(count, ring_room());
    to = take_ring(count);
  }
  gather(from, offset, to);
  const auto length = static_cast<std::uint32_t>(count);
  ++messages_sent_;
  --sends_free_;
  StreamWrite written = write(MessageType::data, length, to, half.address, half.key);
  written.work_id = to_work_id(written.message, ring_bytes);
  half.address += length;
  half.bytes -= length;
  if (half.bytes == 0) targets_.pop();
  return written;
}

StreamWrite StreamSender::write_direct(std::span<const std::byte> from, const TargetEntry& to) {
  const std::size_t count = std::min({from.size(), std::size_t{to.bytes}, ring_room()});
  const std::span<std::byte> copy = take_ring(count);
  std::memcpy(copy.data(), from.data(), count);
  --sends_free_;
  StreamWrite written =
      write(MessageType::direct, static_cast<std::uint32_t>(count), copy, to.address, to.key);
  written.work_id = to_work_id(written.message, count);
  written.has_immediate = false;
  return written;
}

StreamWrite StreamSender::write_map(const MapEntry& entry, std::uint32_t index,
                                    std::uint64_t address, std::uint32_t key) {
  std::memcpy(small_.data(), &entry, sizeof entry);
  ++messages_sent_;
  --sends_free_;
  return write(MessageType::map, index, std::span(small_).first(sizeof entry), address, key);
}

StreamWrite StreamSender::write_control(Control control) {
  ++controls_sent_;
  StreamWrite written = write(MessageType::control, static_cast<std::uint32_t>(control), {}, 0, 0);
  // Keeping a connection alive takes a packet that the peer's program does not see.
  written.has_immediate = control != Control::keep_alive;
  return written;
}

StreamWrite StreamSender::write_credits(std::uint16_t credits) {
  ++controls_sent_;
  return write(MessageType::credits, credits, {}, 0, 0);
}

StreamWrite StreamSender::write_credits(std::uint16_t credits, const TargetEntry& half,
                                        std::uint64_t address, std::uint32_t key) {
  const std::uint32_t slot = controls_sent_++ % control_slots;
  const std::span<std::byte> at = slots_.subspan(slot * sizeof half, sizeof half);
  std::memcpy(at.data(), &half, sizeof half);
  return write(MessageType::credits, credits, at, address, key);
}

void StreamSender::handle_sent(std::uint64_t work_id) {
  --posted_;
  switch (type_of(message_of(work_id))) {
    case MessageType::credits:
    case MessageType::control:
      ++controls_allowed_;
      break;
    default:
      ++sends_free_;
      free_bytes_ += static_cast<std::uint32_t>(work_id >> 32);
      break;
  }
}

}  // namespace tulle::rsockets
