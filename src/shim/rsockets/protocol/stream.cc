#include "shim/rsockets/protocol/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tulle::rsockets {
namespace {

// Writes to the peer's maps are in pieces, so that the ring is never full of one.
constexpr std::size_t mapped_piece_max = 64 << 10;

TargetEntry swapped(const TargetEntry& entry) {
  return {__builtin_bswap64(entry.address), __builtin_bswap32(entry.key),
          __builtin_bswap32(entry.bytes)};
}

TargetEntry to_entry(const BigEndianEntry& entry) {
  return {entry.address, entry.key, entry.bytes};
}

}  // namespace

std::size_t StreamProtocol::targets_bytes(const SocketSizes& sizes) {
  return target_entries * sizeof(TargetEntry) + sizes.maps * sizeof(MapEntry);
}

void StreamProtocol::start(const StreamMemory& memory, const SocketSizes& sizes) {
  constexpr std::size_t list_bytes = target_entries * sizeof(TargetEntry);
  sizes_ = sizes;
  targets_ = memory.targets;
  receiver_.start(memory.receive, sizes.receive_queue);
  sender_.start(memory.send, memory.targets.bytes.first(list_bytes), sizes);
  maps_.start(memory.targets.bytes.subspan(list_bytes));
}

ConnectionData StreamProtocol::own_data() const {
  ConnectionData data;
  data.flags = flag_maps;
  if constexpr (std::endian::native == std::endian::big) data.flags |= flag_big_endian;
  data.credits = static_cast<std::uint16_t>(sizes_.receive_queue);
  data.scaled_maps = to_scaled(sizes_.maps);
  data.targets = {targets_.address(), targets_.key, target_entries};
  data.buffer = {receiver_.buffer().address(), receiver_.buffer().key, receiver_.half_bytes()};
  return data;
}

bool StreamProtocol::is_known(std::span<const std::byte> peer_data) {
  ConnectionData data;
  if (peer_data.size() < sizeof data) return false;
  std::memcpy(&data, peer_data.data(), sizeof data);
  return data.version == connection_version && data.targets.bytes != 0;
}

int StreamProtocol::open(std::span<const std::byte> peer_data) {
  if (!is_known(peer_data)) return ENOTSUP;
  ConnectionData data;
  std::memcpy(&data, peer_data.data(), sizeof data);
  peer_targets_ = to_entry(data.targets);
  peer_index_ = 1 % peer_targets_.bytes;
  const bool is_big = (data.flags & flag_big_endian) != 0;
  swaps_entries_ = is_big != (std::endian::native == std::endian::big);
  if ((data.flags & flag_maps) != 0) {
    TargetEntry maps = peer_targets_;
    maps.address += sizeof(TargetEntry) * std::uint64_t{peer_targets_.bytes};
    maps.bytes = from_scaled(data.scaled_maps);
    maps_.open(maps);
  }
  sender_.open(to_entry(data.buffer), data.credits);
  phase_ = Phase::connected;
  is_readable_ = is_writable_ = true;
  return 0;
}

int StreamProtocol::take_error() { return std::exchange(error_, 0); }

void StreamProtocol::end(Phase phase, int error) {
  if (!is_connected()) return;
  phase_ = phase;
  is_readable_ = is_writable_ = false;
  if (error != 0) error_ = error;
}

void StreamProtocol::disconnect(int error) { end(Phase::disconnected, error); }

void StreamProtocol::fail(int error) { end(Phase::broken, error); }

std::optional<Control> StreamProtocol::shut(int how) {
  if (!is_connected()) return std::nullopt;
  if (how != SHUT_WR) is_readable_ = false;
  if (how != SHUT_RD) is_writable_ = false;
  if (how != SHUT_RD) has_shut_writing_ = true;
  if (is_writable_) return std::nullopt;
  return is_readable_ ? Control::shutdown : Control::disconnect;
}

std::optional<StreamWrite> StreamProtocol::next_credits() {
  if (!is_connected() || !can_control() || !receiver_.is_offer_due()) return std::nullopt;
  const StreamReceiver::Offer offer = receiver_.next_offer();
  if (!offer.has_half) return sender_.write_credits(offer.credits);
  TargetEntry half = {offer.address, receiver_.buffer().key, receiver_.half_bytes()};
  if (swaps_entries_) half = swapped(half);
  const std::uint64_t entry = peer_targets_.address + std::uint64_t{peer_index_} * sizeof half;
  peer_index_ = (peer_index_ + 1) % peer_targets_.bytes;
  return sender_.write_credits(offer.credits, half, entry, peer_targets_.key);
}

std::optional<StreamWrite> StreamProtocol::write_map() {
  if (!sender_.fits_inline(sizeof(MapEntry))) return std::nullopt;
  StreamMaps::News news = maps_.take_news();
  if (swaps_entries_) {
    news.entry = {__builtin_bswap64(news.entry.offset), swapped(news.entry.target)};
  }
  return sender_.write_map(news.entry, news.index, news.address, news.key);
}

std::optional<StreamWrite> StreamProtocol::write_mapped(std::span<const std::byte> from,
                                                        std::uint64_t offset) {
  const std::optional<TargetEntry> to = maps_.find(offset);
  if (!to) return std::nullopt;
  return sender_.write_direct(from.first(std::min(from.size(), mapped_piece_max)), *to);
}

void StreamProtocol::handle_sent(std::uint64_t work_id, bool succeeded) {
  sender_.handle_sent(work_id);
  constexpr std::uint32_t goodbye =
      to_message(MessageType::control, static_cast<std::uint32_t>(Control::disconnect));
  if (StreamSender::message_of(work_id) == goodbye) disconnect(0);
  if (!succeeded) fail(EIO);
}

void StreamProtocol::handle_message(std::uint32_t message, std::size_t bytes) {
  if (!is_connected()) return;
  if (!accept_message(type_of(message), value_of(message), bytes)) fail(EPROTO);
}

// Returns false if the peer was not allowed to send the message.
bool StreamProtocol::accept_message(MessageType type, std::uint32_t value, std::size_t bytes) {
  switch (type) {
    case MessageType::data:
      return value == bytes && !peer_shut_ && receiver_.handle_data(value);
    case MessageType::credits:
      return (bytes == 0 || bytes == sizeof(TargetEntry)) &&
             sender_.allow(static_cast<std::uint16_t>(value), bytes != 0);
    case MessageType::map:
      return bytes == sizeof(MapEntry) && maps_.learn(value) && receiver_.handle_empty();
    case MessageType::control:
      return accept_control(value);
    default:
      return false;
  }
}

bool StreamProtocol::accept_control(std::uint32_t value) {
  switch (static_cast<Control>(value)) {
    case Control::disconnect:
      disconnect(0);
      return true;
    case Control::keep_alive:
      return true;
    case Control::shutdown:
      peer_shut_ = true;
      is_readable_ = false;
      if (!is_writable_) disconnect(0);
      return true;
    default:
      return false;
  }
}

}  // namespace tulle::rsockets
