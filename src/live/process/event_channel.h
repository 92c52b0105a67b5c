#pragma once

// Events for an application on a real descriptor. The descriptor polls, selects and epolls as
// readable while an event waits, and honours an O_NONBLOCK that the application sets on it. The
// class is thread-safe.
//
// Other descriptors may be attached for a while: then a thread that sleeps on the channel's
// descriptor wakes when one of them becomes readable, which may well bring an event.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "base/growing_ring.h"
#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle::live {

class EventChannel {
 public:
  struct Item {
    void* object = nullptr;
    std::uint32_t type = 0;  // the reader defines its meaning
  };

  static Result<std::unique_ptr<EventChannel>> create();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  int fd() const { return fd_.get(); }
  bool is_nonblocking() const;
  // Returns false if there is no memory for the event, which is then lost.
  bool push(Item item);
  // Makes room for that many events, so that pushing them cannot fail.
  void reserve(std::size_t events);
  // Takes the oldest event. Blocks while there is none, unless the descriptor is O_NONBLOCK.
  // Returns 0, or the errno of the read: EAGAIN, or EINTR if a signal came first.
  int pop(Item& item);
  // Takes the oldest event. Returns false if there is none.
  bool try_pop(Item& item);
  // While this lives, its maker expects events for itself: one that is pushed does not wake those
  // who sleep on the descriptor. If the maker has not taken it by the end, they wake then.
  class Expecting {
   public:
    explicit Expecting(EventChannel& channel);
    ~Expecting();
    Expecting(const Expecting&) = delete;
    Expecting& operator=(const Expecting&) = delete;

   private:
    EventChannel& channel_;
  };
  // Makes the channel's descriptor readable while one of these is. Returns false, and attaches
  // none, if the kernel has no room.
  bool attach(std::span<const int> fds);
  void detach(std::span<const int> fds);
  // Blocks until a datagram waits at the socket or an event was pushed. `button` is a socket that
  // sends to the first one. Takes nothing. Returns 0, EINTR if a signal came first, or ECONNRESET
  // if the socket is of no use any more, perhaps because somebody else who has the button shut it
  // down.
  int await_bell(int bell, int button);

  // Tells whether something that was attached may have made the channel's descriptor readable. The
  // lock of the device that attaches it guards this.
  class Rousing {
   public:
    // `arrivals` counts all that may have come. It never falls.
    void begin(std::uint64_t arrivals) {
      if (!std::exchange(is_attached_, true)) seen_ = arrivals;
    }
    // Returns true if something came since this was called last. This may be true once more after
    // the descriptors were detached, since the program may have polled the channel's before.
    [[nodiscard]] bool take(bool is_attached, std::uint64_t arrivals) {
      if (!std::exchange(is_attached_, is_attached)) return false;
      return std::exchange(seen_, arrivals) != arrivals;
    }

   private:
    bool is_attached_ = false;  // when this was asked last
    std::uint64_t seen_ = 0;
  };
  Rousing rousing;

  // Forgets the waiting events of an object that goes away. Returns the number of forgotten events.
  int forget(void* object);

 private:
  EventChannel(UniqueFd fd, UniqueFd count) : fd_(std::move(fd)), count_(std::move(count)) {}
  bool take_one();
  bool take(Item& item);
  void count_one();

  UniqueFd fd_;     // an epoll of `count_` and what is attached
  UniqueFd count_;  // an eventfd
  // Those that wait at a bell, and the way to wake them.
  std::atomic<int> listeners_{0};
  std::atomic<int> bell_{-1};
  std::atomic<int> button_{-1};
  std::mutex mutex_;
  GrowingRing<Item> items_;
  bool is_expecting_ = false;
  bool has_uncounted_ = false;  // `count_` does not count one of the items
};

}  // namespace tulle::live
