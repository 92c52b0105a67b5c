#pragma once

// Events for an application on a real descriptor. The descriptor polls, selects and epolls as
// readable while an event waits, and honours an O_NONBLOCK that the application sets on it. The
// class is thread-safe.

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/growing_ring.h"
#include "base/result.h"

namespace tulle::live {

class EventChannel {
 public:
  struct Item {
    void* object = nullptr;
    std::uint32_t type = 0;  // the reader defines its meaning
  };

  static Result<std::unique_ptr<EventChannel>> create();
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  int fd() const { return fd_; }
  // Returns false if there is no memory for the event, which is then lost.
  bool push(Item item);
  // Makes room for that many events, so that pushing them cannot fail.
  void reserve(std::size_t events);
  // Takes the oldest event. Blocks while there is none, unless the descriptor is O_NONBLOCK.
  // Returns 0, or the errno of the read: EAGAIN, or EINTR if a signal came first.
  int pop(Item& item);
  // Forgets the waiting events of an object that goes away. Returns the number of forgotten events.
  int forget(void* object);

 private:
  explicit EventChannel(int fd) : fd_(fd) {}
  int fd_;
  std::mutex mutex_;
  GrowingRing<Item> items_;
};

}  // namespace tulle::live
