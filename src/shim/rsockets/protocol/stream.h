#pragma once

// One side of a stream (wire.h describes the protocol), without input or output. Its driver hands
// it the completions of its queue pair, and posts the writes that it returns.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shim/rsockets/protocol/sizes.h"
#include "shim/rsockets/protocol/stream_maps.h"
#include "shim/rsockets/protocol/stream_receiver.h"
#include "shim/rsockets/protocol/stream_sender.h"
#include "shim/rsockets/protocol/wire.h"

namespace tulle::rsockets {

// Memory that a stream works on. It stays where it is while the stream lives.
struct StreamMemory {
  std::span<std::byte> send;  // StreamSender::buffer_bytes()
  ExposedMemory receive;      // an even number of bytes
  ExposedMemory targets;      // StreamProtocol::targets_bytes()
};

class StreamProtocol {
 public:
  static std::size_t targets_bytes(const SocketSizes& sizes);

  // `sizes` are those that the device granted.
  void start(const StreamMemory& memory, const SocketSizes& sizes);
  // Returns what this side says about itself when it connects or accepts.
  ConnectionData own_data() const;
  // Returns true if a peer that says this of itself speaks the protocol.
  static bool is_known(std::span<const std::byte> peer_data);
  // Connects the stream to a peer that says this of itself. Returns 0 or ENOTSUP.
  int open(std::span<const std::byte> peer_data);

  bool is_connected() const { return phase_ == Phase::connected; }
  bool is_disconnected() const { return phase_ == Phase::disconnected; }
  bool is_broken() const { return phase_ == Phase::broken; }
  bool is_readable() const { return is_readable_; }  // more may arrive
  bool is_writable() const { return is_writable_; }
  bool has_shut_writing() const { return has_shut_writing_; }  // this side, by shut()
  int error() const { return error_; }
  int take_error();

  // Ends a stream that is connected: in order, or by a failure.
  void disconnect(int error);
  void fail(int error);
  // Shuts one side or both (SHUT_RD, SHUT_WR, SHUT_RDWR). Returns what to send the peer.
  std::optional<Control> shut(int how);

  bool has_data() const { return receiver_.has_data(); }
  std::size_t waiting_bytes() const { return receiver_.waiting_bytes(); }
  bool is_full() const { return receiver_.is_full(); }
  std::size_t read(std::span<const iovec> into, std::size_t done, bool peek) {
    return receiver_.read(into, done, peek);
  }
  std::size_t skip(std::size_t room, std::size_t done, bool peek) {
    return receiver_.skip(room, done, peek);
  }

  bool can_send() const { return sender_.can_send(); }
  bool can_control() const { return sender_.can_control(); }
  bool all_sent() const { return sender_.all_sent(); }
  StreamWrite write_data(std::span<const iovec> from, std::size_t offset, std::size_t bytes) {
    return sender_.write_data(from, offset, bytes);
  }
  StreamWrite write_control(Control control) { return sender_.write_control(control); }
  // Returns credits for the peer, if some are due and may be sent now.
  std::optional<StreamWrite> next_credits();

  StreamMaps& maps() { return maps_; }
  const StreamMaps& maps() const { return maps_; }
  // The caller may call these two while can_send(). The second returns nothing if the peer has
  // mapped nothing at the offset. The first returns nothing if entries do not fit inline.
  std::optional<StreamWrite> write_map();
  std::optional<StreamWrite> write_mapped(std::span<const std::byte> from, std::uint64_t offset);

  // Completions: a posted write was sent, or failed; the peer wrote `bytes` with a message. A
  // message that the peer was not allowed to send breaks the stream (EPROTO).
  void handle_sent(std::uint64_t work_id, bool succeeded);
  void handle_message(std::uint32_t message, std::size_t bytes);

 private:
  enum class Phase : std::uint8_t { unconnected, connected, disconnected, broken };

  void end(Phase phase, int error);
  bool accept_message(MessageType type, std::uint32_t value, std::size_t bytes);
  bool accept_control(std::uint32_t value);

  SocketSizes sizes_;
  ExposedMemory targets_;
  StreamReceiver receiver_;
  StreamSender sender_;
  StreamMaps maps_;
  Phase phase_ = Phase::unconnected;
  bool is_readable_ = false;
  bool is_writable_ = false;
  bool has_shut_writing_ = false;
  int error_ = 0;
  bool peer_shut_ = false;      // the peer said that it sends nothing more
  bool swaps_entries_ = false;  // the peer's byte order is not this host's
  TargetEntry peer_targets_;    // the peer's list
  std::uint32_t peer_index_ = 0;
};

}  // namespace tulle::rsockets
