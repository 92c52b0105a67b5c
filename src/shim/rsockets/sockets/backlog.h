#pragma once

// The backlog of a listening stream: requests that are being answered, half-open streams, and those
// that wait for accept(). The caller has a lock around it.
//
// A stream that a listener made is half-open once its request is answered, until the peer confirms
// the answer. An honest peer does so within a round trip; requests from invented addresses never
// are confirmed. A listener has so many half-open streams, or as many as its backlog if that is
// more: enough for a burst of honest peers. Each takes about eight descriptors, and all of them at
// most half of those that the process may have. The oldest one ends for a new one, and for one for
// which there is no descriptor or memory.

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <utility>

namespace tulle::rsockets {

template <typename Stream>
class Backlog {
 public:
  using Reference = std::shared_ptr<Stream>;
  static constexpr std::size_t half_open_max = 128;
  static constexpr std::size_t half_open_min = 8;
  static constexpr std::size_t unanswered_max = 64;  // others wait with the agent
  static constexpr std::size_t descriptors_each = 8;

  Backlog() = default;
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;
  ~Backlog() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Returns 0 or an errno. A call that got no memory may be made again.
  int open(int size) {
    size_ = static_cast<std::size_t>(std::clamp(size, 1, SOMAXCONN));
    if (fd_ < 0) fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    return fd_ < 0 ? errno : 0;
  }
  // Readable while a stream waits for accept(), and once the listener is stopped.
  int fd() const { return fd_; }

  // --- requests ---

  // Returns false if no request may be taken until the program accepts, or some are answered. What
  // nobody accepts waits with the connection manager, which has a bound.
  bool may_take_request() {
    is_full_ = accepted_.size() >= size_ || unanswered_ >= unanswered_max;
    return !is_full_;
  }
  // Returns true once after that has become possible again.
  bool take_room() { return std::exchange(is_full_, false); }
  // A request is about to be answered; it was answered.
  void begin_answer() { ++unanswered_; }
  void end_answer() { --unanswered_; }

  // --- half-open streams ---

  void add_half_open(Reference stream) { half_open_.push_back(std::move(stream)); }
  void remove_half_open(const Reference& stream) { half_open_.remove(stream); }
  // Takes the oldest half-open stream out if there are so many. The caller lets that one end
  // without the lock.
  Reference take_half_open(std::size_t count) {
    if (half_open_.size() < count) return nullptr;
    Reference oldest = std::move(half_open_.front());
    half_open_.pop_front();
    return oldest;
  }
  std::size_t most_half_open() const {
    const std::size_t wanted = std::max(size_, half_open_max);
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return half_open_min;
    return std::clamp<std::size_t>(files.rlim_cur / descriptors_each / 2, half_open_min, wanted);
  }

  // Returns true if this process may have as many further descriptors as a stream.
  bool has_descriptors() const {
    std::array<int, descriptors_each> copies;
    for (int& copy : copies) copy = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    for (const int copy : copies) {
      if (copy >= 0) ::close(copy);
    }
    return std::ranges::all_of(copies, [](int copy) { return copy >= 0; });
  }

  // --- streams that wait for accept() ---

  bool is_empty() const { return accepted_.empty(); }
  void add(Reference stream) {
    accepted_.push_back(std::move(stream));
    signal();
  }
  // Returns null if none waits.
  Reference take() {
    if (accepted_.empty()) return nullptr;
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t taken = read(fd_, &ignored, sizeof ignored);
    Reference stream = std::move(accepted_.front());
    accepted_.pop_front();
    return stream;
  }

  // --- the end ---

  // The program has shut the listener down.
  void stop() {
    is_stopped_ = true;
    signal();
  }
  bool is_stopped() const { return is_stopped_; }
  // What is left when the listener closes. The caller lets go of it without the lock.
  struct Left {
    std::list<Reference> half_open;
    std::deque<Reference> accepted;
  };
  Left take_all() { return {std::exchange(half_open_, {}), std::exchange(accepted_, {})}; }

 private:
  void signal() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }

  std::list<Reference> half_open_;  // the oldest first
  std::deque<Reference> accepted_;
  int fd_ = -1;
  std::size_t size_ = 0;
  std::size_t unanswered_ = 0;  // requests that threads are about to answer
  bool is_full_ = false;
  bool is_stopped_ = false;
};

}  // namespace tulle::rsockets
