#pragma once

// Sockets over RDMA: what streams and datagrams have in common, the table that finds them, and the
// service that makes progress for them when no caller does.
//
// A socket's descriptor is a real one, but it only names the socket: programs wait with rpoll and
// rselect. Each socket has one lock. The locks of the table, the service and the gate are taken for
// an instant each, and never while a socket is called.

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "shim/rsockets/protocol/sizes.h"
#include "shim/rsockets/sockets/device.h"

namespace tulle::rsockets {

using Clock = std::chrono::steady_clock;

// Returns the process's own T. It is never destroyed, because other threads may use it while the
// process ends. A forked child has a new one: its parent's sockets and threads are not the child's,
// and what the child does must not end a connection of its parent.
template <typename T>
T& of_process() {
  static std::atomic<T*> instance = [] {
    pthread_atfork(nullptr, nullptr, [] { instance = new T; });
    return new T;
  }();
  return *instance.load();
}

// Defaults. Files in /etc/rdma/rsocket change them, as rsocket(7) describes.
struct SocketSettings : SocketSizes {
  std::chrono::microseconds polling{10};   // polling time before a call blocks
  std::chrono::milliseconds wake_up{500};  // after which rpoll looks again, whatever happens
  // The longest life of a half-open stream (stream.h), which no file changes. A request says for
  // how long its answer is repeated, up to 18 minutes; Linux's requests say 64 s.
  std::chrono::milliseconds half_open{64'000};
};
const SocketSettings& default_settings();

// Functions return 0 or an errno, except for fd(), arm() and flags(). An address is one of IPv4 or
// IPv6.
class Socket {
 public:
  explicit Socket(const SocketSettings& settings) : settings_(settings) {}
  virtual ~Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  virtual int fd() const = 0;
  virtual int bind(const sockaddr_storage& address) = 0;
  virtual int listen(int backlog) = 0;
  virtual int accept(std::shared_ptr<Socket>& out) = 0;
  virtual int connect(const sockaddr_storage& address) = 0;
  virtual int shutdown(int how) = 0;
  // After this call the descriptor may refer to something else.
  virtual void close() = 0;

  // The caller may pass null for `from` and `to`, and has checked the flags (call_flags.h). Of a
  // datagram, receive() gives the length, which may be more than there is room for.
  virtual int receive(std::span<const iovec> into, int flags, sockaddr_storage* from,
                      std::size_t& bytes) = 0;
  virtual int send(std::span<const iovec> from, int flags, const sockaddr_storage* to,
                   std::size_t& bytes) = 0;

  // Makes progress, and returns those of poll's events that hold.
  virtual short ready(short events) = 0;
  // Returns a descriptor that becomes readable once that may have changed. The caller must call
  // ready() once more after this.
  virtual int arm() = 0;
  // Takes the events that made the descriptor readable, unless a thread that sleeps on it will.
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

  // The poll sets in which the socket reports edges (poll_set.h).
  std::atomic<std::uint32_t> edge_sets = 0;

 protected:
  bool never_blocks(int call_flags) const {
    return (flags_ & O_NONBLOCK) != 0 || (call_flags & MSG_DONTWAIT) != 0;
  }

  SocketSettings settings_;
  int flags_ = 0;
};

// table.cc: finds sockets by their descriptors.
void add_socket(std::shared_ptr<Socket> socket);
std::shared_ptr<Socket> find_socket(int fd);    // null if there is none
std::shared_ptr<Socket> remove_socket(int fd);  // null if there is none

// service.cc: one thread a process, which starts with the first socket that needs it.
void watch(int fd, const std::shared_ptr<Socket>& socket);
void set_timer(int fd, Clock::time_point due);  // for a descriptor that is watched
void forget(int fd);

// aside.cc: starts a thread that blocks all signals: the program's are for the program's threads.
// Throws std::bad_alloc if the system gives no thread.
void start_thread(std::function<void()> run);
// Runs the work on one of a few threads that may wait, which take work of the same kind in order.
// Returns false if too much waits already, or there is no memory.
enum class Aside { answers, ways };  // to connection requests; to peers of datagrams
bool run_aside(Aside kind, std::function<void()> work);

// poll_set.cc: data or a connection came or was taken (EPOLLIN), or there was no room to send
// (EPOLLOUT): poll sets that report edges report the next one. The caller may hold the socket's
// lock.
void note_edge(const Socket& socket, std::uint32_t event);

// poll.cc: wakes threads in rpoll, because only one thread saw what happened to a socket.
void wake_pollers();

// wait.cc: waits until a descriptor is readable. Returns 0, or EINTR after a signal whose handler
// has no SA_RESTART.
int wait_readable(int fd);

// Threads that wait for one socket. One of them waits on a descriptor, the others wait for that
// thread. It alone takes what made the descriptor readable: if another thread did, it would sleep
// on, whatever that thread saw.
class Sleepers {
 public:
  // Releases the lock while it sleeps. Returns 0 or EINTR.
  int sleep(std::unique_lock<std::mutex>& lock, int fd, const std::function<void()>& take_events);
  void wake() { changed_.notify_all(); }
  bool has_one_on_descriptor() const { return on_descriptor_ != std::thread::id{}; }

 private:
  std::condition_variable changed_;
  std::thread::id on_descriptor_;
};

// Memory that is registered with a device, in whole pages.
class RegisteredBuffer {
 public:
  RegisteredBuffer() = default;
  ~RegisteredBuffer() { reset(); }
  RegisteredBuffer(const RegisteredBuffer&) = delete;
  RegisteredBuffer& operator=(const RegisteredBuffer&) = delete;

  int create(QueuePair& queue_pair, std::size_t bytes, bool peer_writes);
  void reset();
  std::span<std::byte> bytes() const { return {data_, bytes_}; }
  std::uint32_t local_key() const { return region_->local_key(); }
  std::uint32_t remote_key() const { return region_->remote_key(); }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<MemoryRegion> region_;
};

// Make a socket of a domain, AF_INET or AF_INET6. The device stays.
int create_stream(Device& device, int domain, std::shared_ptr<Socket>& out);
int create_datagram(Device& device, int domain, std::shared_ptr<Socket>& out);

}  // namespace tulle::rsockets
