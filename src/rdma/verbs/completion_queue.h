#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ring.h"
#include "base/time.h"
#include "rdma/verbs/types.h"

namespace tulle::verbs {

class CompletionQueue;

// The completion queues that owe their application an event, oldest first. The list is intrusive,
// so that raising an event on the packet path allocates nothing.
struct CompletionEvents {
  CompletionQueue* first = nullptr;
  CompletionQueue* last = nullptr;

  std::size_t armed = 0;  // queues

  void add(CompletionQueue& cq);
  CompletionQueue* take();
  void remove(CompletionQueue& cq);

  // Queues whose event waits for more completions or for the end of a period (moderate()). The
  // driver keeps time: `tell` tells it when a queue begins to wait. The driver then calls
  // raise_due, and calls it again at the time that raise_due returns.
  std::vector<CompletionQueue*> held;
  std::size_t moderated = 0;  // queues that hold events back; there is room for all in `held`
  void (*tell)(void* context) = nullptr;
  void* tell_context = nullptr;
  void hold(CompletionQueue& cq);
  // Raises the events that are due. Returns the time of the next call.
  Time raise_due(Time now);
  void rebase(Time by);
};

// The driver's clock, which stamps completions where the application asks for stamps.
class CompletionClock {
 public:
  virtual ~CompletionClock() = default;
  virtual std::uint64_t nanoseconds() const = 0;
};

// IBTA 10.2.6. An overflow is not survivable: the queue is in error from then on and reports it
// once.
class CompletionQueue {
 public:
  CompletionQueue(std::uint32_t entries, CompletionEvents& events, void* cookie)
      : cookie(cookie), ring_(entries), events_(events) {}
  ~CompletionQueue() {
    events_.remove(*this);
    std::erase(events_.held, this);
    if (moderation_ != nullptr) --events_.moderated;
    become(Armed::no);
  }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  std::uint32_t capacity() const { return ring_.capacity(); }
  std::uint32_t size() const { return ring_.size(); }
  bool overrun() const { return overrun_; }

  // Returns false if the queue is full. The completion is then lost and the queue overrun.
  bool push(const Completion& completion);
  // Moves the oldest completions into `out` and returns their number.
  std::uint32_t poll(std::span<Completion> out);
  // The next completion (if solicited_only, the next solicited or failed one) raises one event.
  void arm(bool solicited_only);
  // Keeps the queued completions. Returns false if they do not fit.
  [[nodiscard]] bool resize(std::uint32_t entries);
  // Drops the completions of a queue pair that is destroyed.
  void forget(QpNumber qp);

  bool is_armed() const { return armed_ != Armed::no; }
  // Raises an event at once, whether or not a completion has come or the queue is armed.
  void raise();
  // Delays an event until `count` completions have come since the queue was armed, or until
  // `period` has passed since the first of them. With a count of 0 or 1 or no period, events are
  // not delayed.
  void moderate(std::uint32_t count, Time period);

  // Stamps each completion from now on when it is queued. The queue must be empty.
  void keep_times(const CompletionClock& clock);
  // Returns the time at which the completion that was polled last was queued; 0 unless times are
  // kept.
  std::uint64_t nanoseconds_of_last() const { return times_ != nullptr ? times_->of_last : 0; }

  void* cookie = nullptr;
  std::uint32_t users = 0;  // queue pairs
  bool overrun_told = false;

 private:
  friend struct CompletionEvents;
  enum class Armed : std::uint8_t { no, solicited, any };
  // Time stamps, in a ring that stays in step with the completions' ring.
  struct Times {
    const CompletionClock* clock;
    Ring<std::uint64_t> ring;
    std::uint64_t of_last = 0;
  };

  struct Moderation {
    std::uint32_t count = 0;
    Time period;
    std::uint32_t waiting = 0;  // completions that wait; 0: no event is held
    Time due = Time::never();   // never: raise_due has not seen it yet
  };

  void become(Armed armed) {
    if (armed_ != Armed::no) --events_.armed;
    if (armed != Armed::no) ++events_.armed;
    armed_ = armed;
  }

  Ring<Completion> ring_;
  std::unique_ptr<Times> times_;
  std::unique_ptr<Moderation> moderation_;
  CompletionEvents& events_;
  CompletionQueue* next_event_ = nullptr;
  bool event_waits_ = false;
  bool overrun_ = false;
  Armed armed_ = Armed::no;
};

}  // namespace tulle::verbs
