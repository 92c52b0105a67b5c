#pragma once

// A stream over a reliable connection: the driver of shim/rsockets/protocol/stream.h. stream.cc
// connects and closes, stream_transfer.cc moves data, stream_maps.cc handles memory that the peer
// writes directly, and stream_options.cc handles options.

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "shim/rsockets/protocol/stream.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {

class Stream final : public Socket, public std::enable_shared_from_this<Stream> {
 public:
  // A stream that a listener made is half-open once its request is answered, until the peer
  // confirms the answer. An honest peer does so within a round trip; requests from invented
  // addresses never are confirmed. A listener has so many half-open streams, or as many as its
  // backlog if that is more: enough for a burst of honest peers. Each takes about eight
  // descriptors, and all of them at most half of those that the process may have. The oldest one
  // ends for a new one, and for one for which there is no descriptor or memory.
  static constexpr std::size_t half_open_max = 128;
  static constexpr std::size_t half_open_min = 8;

  Stream(const SocketSettings& settings, std::unique_ptr<Connection> connection)
      : Socket(settings), connection_(std::move(connection)) {}
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
  using Lock = std::unique_lock<std::mutex>;

  bool is_connected() const { return was_connected() && protocol_.is_connected(); }
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
  int create_endpoint();
  int answer_request();  // for a stream that a listener made
  void accept_requests();
  void answer(const std::shared_ptr<Stream>& stream);
  void add_half_open(const std::shared_ptr<Stream>& stream);
  // Takes the oldest half-open stream out if there are so many. The caller holds the lock, and lets
  // that one end without it.
  std::shared_ptr<Stream> take_half_open(std::size_t count);
  std::size_t most_half_open() const;
  void make_room();
  void deliver(std::shared_ptr<Stream> stream, int error);
  void fail(int error);
  void notice_disconnect();
  // Ending. try_goodbye() returns true once there is nothing to wait for. The caller holds the
  // lock.
  bool try_goodbye();
  bool say_goodbye(Lock& lock, std::chrono::milliseconds longest);
  void wait_in_background();

  // Progress. The caller holds the lock.
  void poll_completions();
  void make_progress();
  int post_receives(std::uint32_t count);
  // Returns 0, EAGAIN if it may not block, or EINTR. Releases the lock while it sleeps.
  int await(Lock& lock, bool may_block, const std::function<bool()>& condition);
  void take_events();
  int await_room(Lock& lock, int call_flags);
  // Returns 0, or an errno after which the stream is broken.
  int post(const StreamWrite& write);
  int send_maps(Lock& lock, int call_flags);

  int set_socket_option(int option, const void* value, socklen_t bytes);
  int set_tcp_option(int option, int value);
  int set_rdma_option(int option, const void* value, socklen_t bytes);
  int get_socket_option(int option, int& value);
  int get_tcp_option(int option, int& value) const;
  int get_rdma_option(int option, int& value) const;
  int get_route(void* value, socklen_t& bytes) const;
  void schedule_keep_alive();
  void keep_alive();

  std::unique_ptr<Connection> connection_;
  std::mutex mutex_;
  Sleepers sleepers_;
  bool is_armed_ = false;
  State state_ = State::idle;
  bool is_closed_ = false;
  std::optional<Control> goodbye_;  // to be sent once there is room for it
  int error_ = 0;                   // SO_ERROR of a connection that was refused
  bool is_waiting_ = false;         // a step of connecting waits for its event
  int retries_ = 0;
  sockaddr_storage destination_ = {};
  std::vector<std::byte> route_;  // RDMA_ROUTE, for the next connect

  // Listening. A stream that a listener made points to its listener. A listener has half-open
  // streams, the oldest first, and those that wait for accept(). The latter fill its backlog.
  std::weak_ptr<Stream> listener_;
  std::list<std::shared_ptr<Stream>> half_open_;
  std::deque<std::shared_ptr<Stream>> accepted_;
  int accepted_fd_ = -1;
  std::size_t backlog_ = 0;
  std::size_t unanswered_ = 0;  // requests that threads are about to answer
  bool is_full_ = false;        // requests wait until the program accepts, or some are answered
  bool has_stopped_ = false;    // the program has shut the listener down

  StreamProtocol protocol_;
  RegisteredBuffer send_buffer_;
  RegisteredBuffer receive_buffer_;
  RegisteredBuffer targets_;
  struct Map {
    std::span<std::byte> memory;
    std::unique_ptr<MemoryRegion> region;
  };
  std::list<Map> maps_;  // of the program's memory

  int reuse_address_ = 0;
  int keep_alive_ = 0;
  int keep_alive_seconds_ = 0;  // 0: the system's value
  int out_of_band_inline_ = 0;
  int no_delay_ = 0;
  int only_ipv6_ = 0;
  bool lingers_ = false;
  int linger_seconds_ = 0;
};

}  // namespace tulle::rsockets
