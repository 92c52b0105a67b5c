#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ring.h"
#include "base/time.h"
#include "verbs/types.h"

namespace tulle::verbs {

class CompletionQueue;

// The completion queues that owe their application an event, oldest first: an intrusive list, so
// that raising an event on the packet path allocates nothing.
struct CompletionEvents {
  CompletionQueue* first = nullptr;
  CompletionQueue* last = nullptr;

  void add(CompletionQueue& cq);
  CompletionQueue* take();
  void remove(CompletionQueue& cq);

  // Queues whose event waits for more completions, or for the end of a period (moderate()). Who
  // keeps time is told when one begins to wait, and calls raise_due: then, and when it says.
  std::vector<CompletionQueue*> held;
  void (*tell)(void* context) = nullptr;
  void* tell_context = nullptr;
  void hold(CompletionQueue& cq);
  // Raises what is due; when to call again.
  Time raise_due(Time now);
};

// What completions are stamped by, where somebody asks for stamps: the driver's.
class CompletionClock {
 public:
  virtual ~CompletionClock() = default;
  virtual std::uint64_t nanoseconds() const = 0;
};

// IBTA 10.2.6. An overflow is not survivable: the queue is in error from then on and says so once.
class CompletionQueue {
 public:
  CompletionQueue(std::uint32_t entries, CompletionEvents& events, void* cookie)
      : cookie(cookie), ring_(entries), events_(events) {}
  ~CompletionQueue() {
    events_.remove(*this);
    std::erase(events_.held, this);
  }
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  std::uint32_t capacity() const { return ring_.capacity(); }
  std::uint32_t size() const { return ring_.size(); }
  bool overrun() const { return overrun_; }

  // False: the queue is full; the completion is lost and the queue overrun.
  bool push(const Completion& completion);
  // Moves the oldest completions into `out`; returns how many.
  std::uint32_t poll(std::span<Completion> out);
  // The next completion (solicited_only: the next solicited or failed one) raises one event.
  void arm(bool solicited_only);
  // Keeps what is queued; false: it does not fit.
  [[nodiscard]] bool resize(std::uint32_t entries);
  // Drops the completions of a queue pair that goes away.
  void forget(QpNumber qp);

  // An event waits until `count` completions have come since the queue was armed, or `period` has
  // passed since the first of them; 1 and no period: not at all.
  void moderate(std::uint32_t count, Time period);

  // From now on each completion is stamped when it is queued. While the queue is empty.
  void keep_times(const CompletionClock& clock);
  // When the completion was queued that was polled last; 0 unless times are kept.
  std::uint64_t nanoseconds_of_last() const { return times_ != nullptr ? times_->of_last : 0; }

  void* cookie = nullptr;
  std::uint32_t users = 0;  // queue pairs
  bool overrun_told = false;

 private:
  friend struct CompletionEvents;
  enum class Armed : std::uint8_t { no, solicited, any };
  // Beside the ring and in step with it.
  struct Times {
    const CompletionClock* clock;
    Ring<std::uint64_t> ring;
    std::uint64_t of_last = 0;
  };

  struct Moderation {
    std::uint32_t count = 0;
    Time period;
    std::uint32_t waiting = 0;  // completions; none: the event is not held
    Time due = Time::never();   // never: not yet looked at
  };

  void raise();

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
