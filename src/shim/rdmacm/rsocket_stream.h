#pragma once

// A stream over a reliable connection (rsocket_wire.h describes the protocol). rsocket_stream.cc
// connects and closes, rsocket_transfer.cc moves data, rsocket_maps.cc handles memory that the peer
// writes directly, and rsocket_options.cc handles options.

#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "shim/rdmacm/rsocket.h"
#include "shim/rdmacm/rsocket_wire.h"

namespace tulle::shim::rdmacm {

class Stream final : public Socket, public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(const SocketSettings& settings) : Socket(settings) {}
  ~Stream() override;
  int open(int domain);

  int fd() const override { return id_->channel->fd; }
  int bind(const sockaddr* address, socklen_t bytes) override;
  int listen(int backlog) override;
  int accept(std::shared_ptr<Socket>& out) override;
  int connect(const sockaddr* address, socklen_t bytes) override;
  int shutdown(int how) override;
  void close() override;
  int receive(std::span<const iovec> into, int flags, sockaddr_storage* from,
              std::size_t& bytes) override;
  int send(std::span<const iovec> from, int flags, const sockaddr* to, socklen_t address_bytes,
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
    accepting,
    connected,
    refused,       // was never connected
    disconnected,  // ended by either side
    broken,        // ended by a failure
  };
  using Lock = std::unique_lock<std::mutex>;

  bool is_connected() const { return state_ == State::connected; }
  bool is_opening() const {
    return state_ >= State::resolving_address && state_ <= State::accepting;
  }
  bool was_connected() const {
    return is_connected() || state_ == State::disconnected || state_ == State::broken;
  }

  // Connecting. advance() returns EAGAIN while a step is under way.
  int start_step();
  int advance();
  int finish_step();
  int fail_connecting(int error);
  int ensure_connected(int call_flags, Lock& lock);
  int create_endpoint();
  ConnectionData connection_data() const;
  int take_connection_data(const rdma_cm_event& event);
  int answer_request(Id& request);  // for a stream that a listener made
  void accept_requests();
  void deliver(std::shared_ptr<Stream> stream, int error);
  void end(State state, int error);
  void notice_disconnect();

  // Progress. The caller holds the lock.
  void poll_completions();
  void handle_sent(const ibv_wc& completion);
  void handle_message(std::uint32_t message);
  int post_receives(std::uint32_t count);
  void update_credits();
  void send_credits();
  // Returns 0, EAGAIN if it may not block, or EINTR. Releases the lock while it sleeps.
  int await(Lock& lock, bool may_block, const std::function<bool()>& condition);
  int sleep(Lock& lock);

  bool can_send() const;
  bool can_control() const { return controls_sent_ != controls_allowed_; }
  bool has_data() const { return !arrived_.empty(); }
  bool all_sent() const { return posted_ == 0; }
  int await_room(Lock& lock, int call_flags);
  int post(ibv_send_wr& request);
  int post_write(std::span<const std::byte> bytes, MessageType type, std::uint32_t value,
                 std::uint64_t address, std::uint32_t key, bool with_immediate,
                 std::uint32_t ring_bytes = 0);
  void take_ring(std::uint32_t bytes);  // at its head
  int post_control(Control control);
  int send_piece(std::span<const iovec> from, std::size_t offset, std::size_t left,
                 std::size_t piece_max, std::size_t& sent);
  std::size_t receive_arrived(std::span<const iovec> into, std::size_t done, bool peek);

  // Maps. The caller holds the lock.
  int send_maps(Lock& lock, int call_flags);
  const MapEntry* find_map(std::uint64_t offset) const;
  TargetEntry& target() const;
  MapEntry* maps() const;

  int set_socket_option(int option, const void* value, socklen_t bytes);
  int set_tcp_option(int option, int value);
  int set_rdma_option(int option, const void* value, socklen_t bytes);
  int get_socket_option(int option, int& value);
  int get_tcp_option(int option, int& value) const;
  int get_rdma_option(int option, int& value) const;
  int get_route(void* value, socklen_t& bytes) const;
  void schedule_keep_alive();

  Id* id_ = nullptr;
  std::mutex mutex_;
  Sleepers sleepers_;
  bool is_armed_ = false;
  State state_ = State::idle;
  bool readable_ = false;
  bool writable_ = false;
  bool is_closed_ = false;
  int error_ = 0;            // SO_ERROR
  bool is_waiting_ = false;  // a step of connecting waits for its event
  int retries_ = 0;
  sockaddr_storage destination_ = {};
  std::vector<std::byte> route_;  // RDMA_ROUTE, for the next connect

  // Listening. A stream that a listener made points to its listener. A listener has connections on
  // their way, and those that wait for accept().
  std::weak_ptr<Stream> listener_;
  std::list<std::shared_ptr<Stream>> accepting_;
  std::deque<std::shared_ptr<Stream>> accepted_;
  int accepted_fd_ = -1;

  // Sending.
  RegisteredBuffer send_buffer_;  // a ring, and behind it slots for control messages
  std::uint32_t send_head_ = 0;
  std::uint32_t send_free_bytes_ = 0;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t sends_free_ = 0;  // entries of the send queue that data may take
  std::uint32_t posted_ = 0;      // work requests that are not completed
  std::uint32_t controls_sent_ = 0;
  std::uint32_t controls_allowed_ = 0;
  std::uint16_t messages_sent_ = 0;
  std::uint16_t messages_allowed_ = 0;
  std::uint32_t target_index_ = 0;
  RegisteredBuffer targets_;    // the list that the peer writes, and behind it the maps
  bool swaps_entries_ = false;  // the peer's byte order is not this host's

  // Receiving.
  RegisteredBuffer receive_buffer_;
  std::deque<std::uint32_t> arrived_;  // unread bytes of each message, oldest first
  std::uint32_t read_offset_ = 0;
  std::uint32_t free_offset_ = 0;  // start of the half that is offered next
  std::uint32_t read_bytes_ = 0;   // bytes read, and not offered again yet
  std::uint16_t messages_read_ = 0;
  std::uint16_t credits_due_ = 0;  // count of messages read at which credits are sent
  std::uint32_t remote_index_ = 0;
  TargetEntry remote_targets_;  // the peer's list
  TargetEntry remote_maps_;     // the maps behind it; `bytes` is their number

  struct Map {
    std::uint64_t offset = 0;
    ibv_mr* region = nullptr;
    std::int32_t index = -1;  // in the peer's list; -1: the peer has no entry
    bool is_told = true;
  };
  std::list<Map> maps_;

  int reuse_address_ = 0;
  int keep_alive_ = 0;
  int keep_alive_seconds_ = 0;  // 0: the system's value
  int out_of_band_inline_ = 0;
  int no_delay_ = 0;
  int only_ipv6_ = 0;
  bool lingers_ = false;
  int linger_seconds_ = 0;
};

}  // namespace tulle::shim::rdmacm
