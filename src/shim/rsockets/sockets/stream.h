#pragma once

// A stream over a reliable connection: the driver of shim/rsockets/protocol/stream.h. stream.cc
// connects and closes, stream_transfer.cc moves data, and stream_maps.cc handles memory that the
// peer writes directly.

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "shim/rsockets/protocol/stream.h"
#include "shim/rsockets/sockets/backlog.h"
#include "shim/rsockets/sockets/mapped_memory.h"
#include "shim/rsockets/sockets/socket.h"
#include "shim/rsockets/sockets/stream_endpoint.h"
#include "shim/rsockets/sockets/stream_options.h"

namespace tulle::rsockets {

class Stream final : public Socket, public std::enable_shared_from_this<Stream> {
 public:
  static constexpr std::size_t half_open_max = Backlog<Stream>::half_open_max;
  static constexpr std::size_t half_open_min = Backlog<Stream>::half_open_min;

  Stream(const SocketSettings& settings, std::unique_ptr<Connection> connection)
      : Socket(settings),
        connection_(std::move(connection)),
        options_(*connection_, settings_),
        endpoint_(*this, *connection_) {}
  ~Stream() override;

  int fd() const override { return connection_->events_fd(); }
  int bind(const sockaddr_storage& address) override;
  int listen(int backlog) override;
  int accept(std::shared_ptr<Socket>& out) override;
  int connect(const sockaddr_storage& address) override;
  int shutdown(int how) override;
  void close() override;
  int receive(std::span<const iovec> into, int flags, sockaddr_storage* from,
              std::size_t& bytes) override;
  int send(std::span<const iovec> from, int flags, const sockaddr_storage* to,
           std::size_t& bytes) override;
  short ready(short events) override;
  int arm() override;
  void drain() override;
  int local_name(sockaddr_storage& out) override;
  int peer_name(sockaddr_storage& out) override;
  int set_option(int level, int option, const void* value, socklen_t bytes) override;
  int get_option(int level, int option, void* value, socklen_t& bytes) override;
  int set_flags(int flags) override;
  void on_readable() override;
  void on_time() override;

  int map(void* buffer, std::size_t bytes, int protection, std::int64_t& offset);
  int unmap(void* buffer, std::size_t bytes);
  int write_mapped(const std::byte* from, std::size_t count, std::int64_t offset, int flags,
                   std::size_t& bytes);

 private:
  enum class State : std::uint8_t {
    idle,
    bound,
    listening,
    resolving_address,
    resolving_route,
    connecting,
    accepting,    // half-open
    established,  // the protocol knows whether the connection still holds
    refused,      // was never connected
  };
  using Lock = StreamEndpoint::Lock;

  bool is_connected() const { return endpoint_.is_connected(); }
  bool is_opening() const {
    return state_ >= State::resolving_address && state_ <= State::accepting;
  }
  bool was_connected() const { return state_ == State::established; }

  // Connecting. advance() returns EAGAIN while a step is under way.
  int start_step();
  int advance();
  int finish_step();
  int fail_connecting(int error);
  // The stream is connected, or failed with `error`: tells its listener, if one made it. Releases
  // the lock.
  void end_opening(Lock& lock, int error);
  int ensure_connected(int call_flags, Lock& lock);
  int answer_request();  // for a stream that a listener made
  void accept_requests();
  void answer(const std::shared_ptr<Stream>& stream);
  void add_half_open(const std::shared_ptr<Stream>& stream);
  void make_room();
  void deliver(std::shared_ptr<Stream> stream, int error);
  void notice_disconnect();
  // Returns true once there is nothing to wait for.
  bool say_goodbye(Lock& lock, std::chrono::milliseconds longest);
  void wait_in_background();

  StreamEndpoint::Patience patience(int call_flags) const {
    return {!never_blocks(call_flags), settings_.polling};
  }

  void schedule_keep_alive();
  void keep_alive();

  std::unique_ptr<Connection> connection_;
  std::mutex mutex_;
  State state_ = State::idle;
  bool is_closed_ = false;
  int error_ = 0;            // SO_ERROR of a connection that was refused
  bool is_waiting_ = false;  // a step of connecting waits for its event
  int retries_ = 0;
  sockaddr_storage destination_ = {};

  std::weak_ptr<Stream> listener_;  // that has made this stream
  Backlog<Stream> backlog_;         // of a listener

  StreamOptions options_;
  StreamEndpoint endpoint_;
  MappedMemory maps_;
};

}  // namespace tulle::rsockets
