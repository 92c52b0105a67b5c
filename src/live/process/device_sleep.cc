// Callers that sleep on an event channel, or are about to.

#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <utility>

#include "base/pause.h"
#include "live/process/device_impl.h"
#include "live/process/program_memory.h"
#include "os/cancellation.h"

namespace tulle::live {
namespace {

constexpr int pauses_between_looks = 8;  // a quarter of a microsecond
// A look takes so many times its time at most, however many packets come.
constexpr std::int64_t looks_in_row_max = 8;

}  // namespace

void Device::Impl::expect_sleeper(EventChannel& channel) {
  if (forked_ || leased_ || is_doorbell_taken_ || has_lost_port_) return;
  if (sleeper_.holder() != nullptr) return;
  const Time at = now();
  if (!sleeper_.count_arm(channel, at)) return;
  // A program whose descriptor blocks may sleep in the call, and never poll the descriptor. It must
  // not be woken without a completion.
  if (!channel.is_nonblocking()) return sleeper_.forget_arms();
  if (!channel.attach(waking_fds())) return sleeper_.defer();
  sleeper_.begin(channel, at);
  channel.rousing.begin(arrivals());
  polls_between_looks_ = polls_to_next_look_ = 0;
  watch_sockets(false);
  watch_doorbell(false);
  wake_at(at + SleeperLease::check_interval);
}

// Looks what a sleeper has not taken yet.
Device::Impl::Waiting Device::Impl::what_waits() const {
  const CancellationOff cancellation_off;
  const std::array<int, 2> fds = waking_fds();
  std::array<pollfd, 2> entries{{{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}}};
  if (poll(entries.data(), entries.size(), 0) <= 0) return {};
  return {.ring = entries[0].revents != 0, .datagram = entries[1].revents != 0};
}

// Does nothing if no channel has the lease.
void Device::Impl::end_sleepers_lease(SleeperLease::End how) {
  if (sleeper_.holder() == nullptr) return;
  if (end_awake()) wake();
  sleeper_.holder()->detach(waking_fds());
  // Whatever still waits there may have woken the program, which then takes it for an event.
  const Waiting waiting = what_waits();
  if (waiting.ring || waiting.datagram) ++other_arrivals_;
  sleeper_.end(how);
  polls_between_looks_ = polls_to_next_look_ = 0;
  watch_doorbell(true);
  watch_sockets(true);
}

// A caller sleeps inside the call, where it wakes without a lease.
void Device::Impl::stop_expecting(const EventChannel& channel) {
  if (sleeper_.is_held_by(channel)) end_sleepers_lease(SleeperLease::End::in_order);
  sleeper_.forget_arms();
}

// Peers need not ring for the program from now on, since it looks itself.
void Device::Impl::begin_awake() {
  is_awake_ = true;
  awake_since_ = now();
  tell_who_looks(true);
  wake_at(awake_since_ + SleeperLease::check_interval);  // should the caller not come back
}

// Returns true if the program was taken for awake. Packets may have come then of which nobody was
// told, and the caller must see to them.
bool Device::Impl::end_awake() {
  if (!std::exchange(is_awake_, false)) return false;
  tell_who_looks(leased_);
  return true;
}

// Leaves what is to be answered to the caller's next call, or to the thread.
void Device::Impl::take_unannounced(Time at) {
  survive([&] {
    if (links_.receive_from_memory(*adapter_, at) > 0) {
      deferred_ = true;
      wake_at(at + lease_time);
    }
    deliver_events();
  });
}

void Device::Impl::forget(EventChannel& channel) {
  if (sleeper_.is_held_by(channel)) end_sleepers_lease(SleeperLease::End::in_order);
  sleeper_.forget(channel);
}

// Does for a sleeper what the thread does when it wakes.
void Device::Impl::answer_bell() {
  const Time at = now();
  const MemoryTurn turn(at);
  sleeper_.note_coming(at);
  take_rings();
  polls_to_next_look_ = 0;  // the socket may be what woke the caller
  const std::uint64_t completions = adapter_->completions();
  survive([&] {
    bool has_received_all = false;
    for (int i = 0; i < receive_calls_max && !has_received_all; ++i) {
      has_received_all = receive(at) < Link::received_max;
    }
    handle_deadlines(at, has_received_all);
    if (adapter_->completions() != completions && !has_unsent_posts_) {
      deferred_ = true;
      deliver_events();
      wake_at(at + lease_time);  // the thread sends what the caller leaves behind
    } else {
      send(at);
    }
  });
  settle(at);
}

// Polls for packets until has_come() is true or the time is over, and longer while packets come
// other than those that it waits for. Others get the lock between two polls. Peers take the caller
// for awake meanwhile, and on until end_awake() if something came and `stays_awake` is true.
// Returns what has_come() returned last.
//
// The caller keeps its processor: on a busy machine a yield would cost it a slice of milliseconds,
// and any thread that wakes up preempts it anyway. A poll that took longer than it should was
// interrupted, and counts as one in vain, since a sleeper would have been woken sooner.
template <typename HasCome>
bool Device::Impl::look(std::unique_lock<std::mutex>& held, bool stays_awake, HasCome has_come) {
  const std::int64_t longest = busy_poll_.begin().to_nanoseconds();
  if (longest == 0 || forked_) return false;
  // Nobody is awake either when an exception leaves.
  struct Awake {
    explicit Awake(Impl& device) : device(device) { device.begin_awake(); }
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;
    ~Awake() {
      if (!is_kept && device.end_awake()) device.wake();
    }
    Impl& device;
    bool is_kept = false;
  };
  Awake awake(*this);
  const auto take = [&](Time at) {
    const std::uint64_t completions = adapter_->completions();
    survive([&] {
      receive_before_deadlines(at);
      if (adapter_->completions() != completions && !has_unsent_posts_) {
        deferred_ = true;  // the caller has more to send with the answer
        deliver_events();
        wake_at(at + lease_time);
      } else {
        send(at);
      }
    });
    return has_come();
  };
  const std::int64_t began = DriverClock::system();
  std::int64_t moved_at = began;
  std::uint64_t moved = links_.packets_by_memory();
  bool found = false;
  for (bool is_over = false; !found && !is_over;) {
    const std::int64_t clock = DriverClock::system();
    if (std::exchange(moved, links_.packets_by_memory()) != moved) moved_at = clock;
    is_over = clock >= std::min(moved_at + longest, began + looks_in_row_max * longest);
    if (is_over) end_awake();  // senders ring from now on
    const Time at = now();
    const MemoryTurn turn(at);
    found = take(at);
    if (found && !is_over) {
      // A program that waits for another queue may sleep.
      awake.is_kept = stays_awake && adapter_->objects().armed_queues() == 0;
      if (!awake.is_kept && end_awake()) take_unannounced(at);
    }
    settle(at);
    if (found || is_over) break;
    held.unlock();
    for (int i = 0; i < pauses_between_looks; ++i) pause_processor();
    if (waiters_.load(std::memory_order_relaxed) > 0) sched_yield();
    held = lock();
  }
  busy_poll_.end(DriverClock::system() < moved_at + longest);
  return found;
}

bool Device::Impl::look_before_sleep(std::unique_lock<std::mutex>& held,
                                     const EventChannel& channel,
                                     const verbs::CompletionQueue& queue) {
  if (!sleeper_.is_held_by(channel) || !queue.is_armed()) return false;
  // The program handles what it found, and arms the queue again before it sleeps.
  if (!look(held, true, [&] { return queue.size() > 0; })) return false;
  sleeper_.note_coming(now());
  return true;
}

// Gives the doorbell back to the thread when a caller no longer sleeps at it, also if the caller's
// thread is cancelled there.
class Device::Impl::DoorbellTurn {
 public:
  explicit DoorbellTurn(Impl& device) : device_(device) {}
  DoorbellTurn(const DoorbellTurn&) = delete;
  DoorbellTurn& operator=(const DoorbellTurn&) = delete;
  ~DoorbellTurn() {
    if (!is_taken_) return;
    const auto held = device_.lock();
    end();
  }
  // The caller holds the lock for these two.
  bool begin() { return is_taken_ = device_.take_doorbell(); }
  void end() {
    if (std::exchange(is_taken_, false)) device_.leave_doorbell();
  }
  bool is_taken() const { return is_taken_; }

 private:
  Impl& device_;
  bool is_taken_ = false;
};

// While a caller sleeps inside the call, the doorbell is the caller's alone: two who watch it would
// take rings from each other. The thread still watches the UDP socket.
int Device::Impl::take_event(EventChannel& channel, EventChannel::Item& item, bool may_sleep) {
  DoorbellTurn turn(*this);
  const bool is_first = !may_sleep;  // no event was made up for this call
  int error = 0;
  for (;;) {
    {
      auto held = lock();
      if (!turn.is_taken()) take_back_doorbell();
      send_deferred();
      hand_over();
      const bool has_lease = sleeper_.is_held_by(channel);
      bool has_come = false;
      {
        const EventChannel::Expecting expecting(channel);
        if (has_lease || turn.is_taken()) answer_bell();
        // Another thread may have taken what made the descriptor readable, or ended the lease.
        has_come = channel.rousing.take(has_lease, arrivals());
        turn.end();
        if (channel.try_pop(item)) {
          if (has_lease && is_first) sleeper_.note_event();
          return 0;
        }
      }
      send_deferred();
      if (error != 0 && error != ECONNRESET) return error;
      if (has_lease && has_come && sleeper_.count_vain_wake()) {
        end_sleepers_lease(SleeperLease::End::failed);
      }
      if (has_come && !may_sleep) return ENOMSG;
      if (channel.is_nonblocking()) return EAGAIN;
      if (error == ECONNRESET) is_doorbell_broken_ = true;
      stop_expecting(channel);
      if (look(held, false, [&] { return channel.try_pop(item); })) return 0;
      if (!turn.begin()) break;
    }
    error = channel.await_bell(doorbell_.get(), doorbell_button_.get());
    may_sleep = true;
  }
  return channel.pop(item);
}

// Returns false if the doorbell is of no use, or another caller has it.
bool Device::Impl::take_doorbell() {
  if (forked_ || !links_.has_memory() || is_doorbell_taken_ || is_doorbell_broken_) return false;
  end_sleepers_lease(SleeperLease::End::in_order);
  is_doorbell_taken_ = true;
  doorbell_taker_ = pthread_self();
  watch_doorbell(false);
  return true;
}

// A thread may have left the call with siglongjmp(3).
void Device::Impl::take_back_doorbell() {
  if (is_doorbell_taken_ && pthread_equal(doorbell_taker_, pthread_self()) != 0) leave_doorbell();
}

void Device::Impl::leave_doorbell() {
  is_doorbell_taken_ = false;
  if (sleeper_.holder() == nullptr) watch_doorbell(true);
}

}  // namespace tulle::live
