#pragma once

// Sockets over RDMA: what streams and datagrams have in common, the table that finds them, and the
// service that makes progress for them when no caller does.
//
// A socket's descriptor is a real one, but it only names the socket: programs wait with rpoll and
// rselect. Each socket has one lock. The locks of the table, the service and the gate are taken for
// an instant each, and never while a socket is called.

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "rsockets/protocol/sizes.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {

using Clock = std::chrono::steady_clock;

// Defaults. Files in /etc/rdma/rsocket change them, as rsocket(7) describes.
struct SocketSettings : rsockets::SocketSizes {
  std::chrono::microseconds polling{10};   // polling time before a call blocks
  std::chrono::milliseconds wake_up{500};  // after which rpoll looks again, whatever happens
};
const SocketSettings& default_settings();

// Marks the identifier of a work request as that of a receive.
inline constexpr std::uint64_t receive_flag = std::uint64_t{1} << 63;

// Functions return 0 or an errno, except for fd(), arm() and flags().
class Socket {
 public:
  explicit Socket(const SocketSettings& settings) : settings_(settings) {}
  virtual ~Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  virtual int fd() const = 0;
  virtual int bind(const sockaddr* address, socklen_t bytes) = 0;
  virtual int listen(int backlog) = 0;
  virtual int accept(std::shared_ptr<Socket>& out) = 0;
  virtual int connect(const sockaddr* address, socklen_t bytes) = 0;
  virtual int shutdown(int how) = 0;
  // After this call the descriptor may stand for something else.
  virtual void close() = 0;

  // The caller may pass null for `from`.
  virtual int receive(std::span<const iovec> into, int flags, sockaddr_storage* from,
                      std::size_t& bytes) = 0;
  virtual int send(std::span<const iovec> from, int flags, const sockaddr* to,
                   socklen_t address_bytes, std::size_t& bytes) = 0;

  // Makes progress, and returns those of poll's events that hold.
  virtual short ready(short events) = 0;
  // Returns a descriptor that becomes readable once that may have changed. The caller must call
  // ready() once more after this.
  virtual int arm() = 0;
  // Takes the events that made the descriptor readable.
  virtual void drain() = 0;

  virtual int local_name(sockaddr_storage& out) = 0;
  virtual int peer_name(sockaddr_storage& out) = 0;
  virtual int set_option(int level, int option, const void* value, socklen_t bytes) = 0;
  virtual int get_option(int level, int option, void* value, socklen_t& bytes) = 0;
  virtual int set_flags(int flags) = 0;
  int flags() const { return flags_; }

  // The service calls these two: on_readable() when the watched descriptor is readable, on_time()
  // when the timer is due.
  virtual void on_readable() = 0;
  virtual void on_time() {}

 protected:
  bool never_blocks(int call_flags) const {
    return (flags_ & O_NONBLOCK) != 0 || (call_flags & MSG_DONTWAIT) != 0;
  }

  SocketSettings settings_;
  int flags_ = 0;
};

// rsocket_table.cc: finds sockets by their descriptors.
void add_socket(std::shared_ptr<Socket> socket);
std::shared_ptr<Socket> find_socket(int fd);    // null if there is none
std::shared_ptr<Socket> remove_socket(int fd);  // null if there is none

// rsocket_service.cc: one thread a process, which starts with the first socket that needs it.
void watch(int fd, const std::shared_ptr<Socket>& socket);
void set_timer(int fd, Clock::time_point due);  // for a descriptor that is watched
void forget(int fd);

// rsocket_poll.cc: wakes threads in rpoll, because only one thread saw what happened to a socket.
void wake_pollers();

// rsocket_epoll.cc: closes a poll set. Returns false if the descriptor is not one of a set.
bool close_poll_set(int fd);

// Waits until a descriptor is readable. Returns 0 or EINTR.
int wait_readable(int fd);

// Threads that wait for one socket. One of them waits on a descriptor, the others wait for that
// thread.
class Sleepers {
 public:
  // Releases the lock while it sleeps. Returns 0 or EINTR.
  int sleep(std::unique_lock<std::mutex>& lock, int fd);
  void wake() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
  bool has_one_on_descriptor_ = false;
};

// Makes the queue pair of an id, with one completion queue that serves both directions and a
// completion channel that never blocks a reader.
int create_queue_pair(Id& id, const SocketSettings& settings, ibv_qp_init_attr& attributes);
void set_queue_sizes(const Id& id, SocketSettings& settings);
// Takes all events of a completion channel. Returns true if there was one.
bool take_completion_events(ibv_comp_channel& channel);

// Memory that is registered with a device, in whole pages.
class RegisteredBuffer {
 public:
  RegisteredBuffer() = default;
  ~RegisteredBuffer() { reset(); }
  RegisteredBuffer(const RegisteredBuffer&) = delete;
  RegisteredBuffer& operator=(const RegisteredBuffer&) = delete;

  int create(ibv_pd* pd, std::size_t bytes, int access);
  void reset();
  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const {
    return {data_, region_ != nullptr ? region_->length : std::size_t{0}};
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }
  ibv_mr* region() const { return region_; }

 private:
  std::byte* data_ = nullptr;
  ibv_mr* region_ = nullptr;
};

// rsocket_stream.cc, rsocket_datagram.cc
int create_stream(int domain, std::shared_ptr<Socket>& out);
int create_datagram(int domain, std::shared_ptr<Socket>& out);

}  // namespace tulle::shim::rdmacm
