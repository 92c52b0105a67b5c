#pragma once

// Events for an application on a real descriptor: it polls, selects and epolls as readable while an
// event waits, and honours O_NONBLOCK set on it by the application. Thread-safe.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "base/result.h"

namespace tulle::live {

class EventChannel {
 public:
  struct Item {
    void* object = nullptr;
    std::uint32_t type = 0;  // the reader's meaning
  };

  static Result<std::unique_ptr<EventChannel>> create();
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  int fd() const { return fd_; }
  void push(Item item);
  // The oldest event. Blocks while there is none, unless the descriptor is O_NONBLOCK. Returns 0,
  // or the errno of the read: EAGAIN, or EINTR where a signal came first.
  int pop(Item& item);
  // Forgets waiting events of an object that goes away; returns how many.
  int forget(void* object);

 private:
  explicit EventChannel(int fd) : fd_(fd) {}
  int fd_;
  std::mutex mutex_;
  std::deque<Item> items_;
};

}  // namespace tulle::live
