#pragma once

// A stream's end of a connection: its queue pair with the memory of that, and the protocol over
// both, which says what to post and is told of completions. The caller has a lock around it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "shim/rsockets/protocol/stream.h"
#include "shim/rsockets/sockets/device.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {

class StreamEndpoint {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // `socket` is who reports edges. Both must outlive this object.
  StreamEndpoint(const Socket& socket, Connection& connection)
      : socket_(socket), connection_(connection) {}

  // Opens the queue pair, unless it is open, and starts the protocol. The sizes become those that
  // there are.
  int open(SocketSettings& settings);
  bool has_send_buffer() const { return !send_buffer_.bytes().empty(); }
  bool has_receive_buffer() const { return !receive_buffer_.bytes().empty(); }
  // The peer has answered, or confirmed the answer.
  void establish();
  bool is_connected() const { return is_established_ && protocol_.is_connected(); }
  // Closes the queue pair, and then gives its memory back.
  void close();

  StreamProtocol& protocol() { return protocol_; }
  const StreamProtocol& protocol() const { return protocol_; }

  // Returns 0, or an errno after which the stream is broken.
  int post(const StreamWrite& write);
  // Wakes all threads that wait.
  void wake() { sleepers_.wake(); }
  void poll_completions();
  // Takes completions, and tells the peer of room.
  void make_progress();
  // Flushes posted work requests, which wakes all threads that wait for completions.
  void stop();

  // These release the lock while they sleep. They return 0, EAGAIN if they may not block, EINTR, or
  // an error of the connection. A call polls for `polling` before it sleeps.
  struct Patience {
    bool may_block = false;
    std::chrono::microseconds polling{};
  };
  int await(Lock& lock, Patience patience, const std::function<bool()>& condition);
  int await_room(Lock& lock, Patience patience);
  // Waits until so many bytes can be read, or no more come.
  int await_data(Lock& lock, Patience patience, std::size_t count);

  // Notifies the peer of new maps, before anything that is sent after they were made.
  int send_maps(Lock& lock, Patience patience);

  // Returns the descriptor that becomes readable with the next completion.
  int arm();
  // Takes the events of completions, unless a thread that sleeps on them will.
  void drain() {
    if (!sleepers_.has_one_on_descriptor()) take_events();
  }

  // Sends what keeps the connection alive, if there is room for it.
  void send_keep_alive();
  // Shuts one side or both (SHUT_RD, SHUT_WR, SHUT_RDWR). What the peer must be told of it is sent
  // by try_goodbye().
  void shut(int how);
  bool has_goodbye() const { return goodbye_.has_value(); }
  // Sends that once there is room for it. Returns true once there is nothing to wait for. The peer
  // may never take what was sent: it may be stopped, or hostile.
  bool try_goodbye();

 private:
  void fail(int error);
  void take_events();

  const Socket& socket_;
  Connection& connection_;
  StreamProtocol protocol_;
  Sleepers sleepers_;
  RegisteredBuffer send_buffer_;
  RegisteredBuffer receive_buffer_;
  RegisteredBuffer targets_;
  std::optional<Control> goodbye_;  // to be sent once there is room for it
  bool is_armed_ = false;
  bool is_established_ = false;
};

}  // namespace tulle::rsockets
