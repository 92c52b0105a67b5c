// The device's thread. It makes progress while no caller does, and answers the host agent.

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "live/message/protocol.h"
#include "live/process/device_impl.h"
#include "live/process/program_memory.h"
#include "live/process/quiet_thread.h"

namespace tulle::live {
namespace {

constexpr int batches_in_row_max = 64;
constexpr Time reconnect_time = Time::milliseconds(200);
constexpr int no_memory_pause_microseconds = 10'000;
// A caller that polls calls far more often than this.
constexpr Time nobody_polls = Time::microseconds(10);

}  // namespace

Result<void> Device::Impl::start_thread() {
  auto thread = start_quiet_thread([this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  // Peers that connect from now on find that this process lives.
  running_.wait(false);
  SharedRegions::of_process().note_own_thread(1);
  return {};
}

Device::Impl::~Impl() {
  if (!thread_.joinable()) return;
  if (forked_) {
    thread_.detach();  // the parent's thread, absent in this child
    return;
  }
  // Once the thread ends, a thread of the program's must not be taken for it.
  SharedRegions::of_process().note_own_thread(-1);
  stopping_ = true;
  wakes_.wake();
  thread_.join();
  publish(now());  // the host agent keeps the final counts
}

void Device::Impl::run() {
  pthread_setname_np(pthread_self(), "tulle");
  ask_for_short_slice();
  links_.begin_thread();
  running_ = true;
  running_.notify_one();
  while (!stopping_) {
    try {
      wait_and_handle();
    } catch (const std::bad_alloc&) {
      // The next turn handles the rest: the descriptors tell of it once more.
      usleep(no_memory_pause_microseconds);
      wakes_.wake();
    }
  }
}

void Device::Impl::wait_and_handle() {
  mutex_.let_others_in();
  const bool is_alone = agent_.socket() < 0 && agent_.may_reconnect();
  Time longest = is_alone ? reconnect_time : Time::never();
  if (identity_.holds_withdrawn()) longest = DeviceIdentity::check_interval;
  const auto events = wakes_.wait(longest);
  if (identity_.holds_withdrawn()) {
    const auto held = lock();
    identity_.check_withdrawn(now());
  }
  if (is_alone && DriverClock::system() >= reconnect_at_) {
    if (agent_.reconnect(info())) wakes_.watch(agent_.socket(), EPOLLIN);
    reconnect_at_ = DriverClock::system() + reconnect_time.to_nanoseconds();
  }
  for (const epoll_event& event : events) handle_wake(static_cast<int>(event.data.u64));
}

void Device::Impl::handle_wake(int fd) {
  if (fd == agent_.socket()) return handle_agent();
  if (wakes_.is_timer(fd)) return handle_timer();
  wakes_.take_wake(fd);
  // The thread wakes because the socket is readable, because a socket that was full is writable, or
  // because a caller left work behind.
  for (int i = 0; i < batches_in_row_max; ++i) {
    {
      const auto held = lock();
      // A caller may have come to sleep at the doorbell after this thread woke. The caller would
      // sleep on if this thread took the ring.
      if (i == 0 && fd == doorbell_.fd() && !doorbell_.is_taken()) take_rings();
      const Time at = now();
      const MemoryTurn turn(at);
      const std::uint64_t received = counters_.receive_calls;
      int calls = 0;
      survive([&] { calls = move_data(at); });
      const bool has_received = counters_.receive_calls != received;
      if (has_received && at > last_poll_ + nobody_polls) poller_.forget_polls();
      settle(at);
      if (poller_.is_held() || calls < receive_calls_max) return;
    }
    mutex_.let_others_in();
  }
}

void Device::Impl::take_rings() {
  const std::size_t taken = doorbell_.answer();
  other_arrivals_ += taken;
  if (taken > 0) links_.note_ring();
}

void Device::Impl::handle_timer() {
  wakes_.take_timer();
  const auto held = lock();
  const Time at = now();
  const MemoryTurn turn(at);
  wakes_.end_timer();
  if (poller_.is_held()) {
    const bool must_continue = links_.must_continue();
    survive([&] {
      if (must_continue && adapter_->next_deadline() <= at) receive_before_deadlines(at);
      if (must_continue || deferred_ || has_unsent_posts_) send(at);
    });
    if (at < last_poll_ + PollerLease::check_interval) {
      wake_at(last_poll_ + PollerLease::check_interval);
      return settle(at);
    }
    survive([&] { end_lease(at); });
  } else if (sleeper_.holder() != nullptr) {
    look_after_sleeper(at);
  } else {
    end_awake_if_due(at);
    survive([&] { move_data(at); });
  }
  settle(at);
}

void Device::Impl::end_lease(Time at) {
  poller_.end();
  note_lease();
  const std::uint64_t received = counters_.receive_calls;
  move_data(at);
  poller_.end_late(at, counters_.receive_calls != received);
}

// A caller that does not come back for that long keeps peers waiting that do not ring. Returns true
// if there is one, and looks again later if it is too early to say.
bool Device::Impl::end_awake_if_due(Time at) {
  if (!is_awake_) return false;
  const Time due = awake_since_ + SleeperLease::check_interval;
  if (at >= due) return end_awake();
  wake_at(due);
  return false;
}

// A sleeper may be a program that has armed a completion queue and does something else.
void Device::Impl::look_after_sleeper(Time at) {
  if (end_awake_if_due(at)) survive([&] { move_data(at); });
  const Waiting waiting = what_waits();
  const bool waits = waiting.ring || waiting.datagram;
  // A program that polls reads what the doorbell tells of, and leaves the ring there.
  const Time seen_until = waiting.datagram ? Time::zero() : last_poll_;
  const SleeperLease::Check found = sleeper_.check(at, waits, seen_until);
  if (found == SleeperLease::Check::does_not_come) {
    end_sleepers_lease(SleeperLease::End::failed);
    survive([&] { move_data(at); });
    return;
  }
  survive([&] {
    // The acknowledgement for which a timer runs may be among what waits.
    if (adapter_->next_deadline() <= at) links_.receive_from_memory(*adapter_, at);
    if (!waits) handle_deadlines(at, !links_.is_unfinished());
    send(at);
  });
  if (found == SleeperLease::Check::goes_on) return wake_at(at + SleeperLease::check_interval);
  end_sleepers_lease(SleeperLease::End::in_order);
}

void Device::Impl::handle_agent() {
  for (;;) {
    auto message = agent_.receive();
    if (!message) {
      const int error = message.error().error_number;
      if (error == EMFILE) continue;
      if (error != EAGAIN) handle_loss_of_agent();
      return;
    }
    const auto header = peek_header(message->bytes);
    if (!header || header->version != protocol_version) continue;
    StartCapture start;
    DeviceChanged changed;
    PortChanged of_port;
    const auto held = lock();
    if (header->kind == static_cast<std::uint16_t>(MessageKind::publish)) {
      publish(now());
    } else if (header->kind == static_cast<std::uint16_t>(MessageKind::stop_capture)) {
      tap_.close();
      set_captured();
    } else if (decode(message->bytes, changed)) {
      identity_.take(changed.device, changed.version);
    } else if (info().infiniband && decoded(message->bytes, of_port)) {
      identity_.take(of_port);
    } else if (decode(message->bytes, start) && !message->fds.empty()) {
      auto ring = CaptureRing::map(std::move(message->fds[0]));
      if (ring) tap_.open(std::move(*ring), start.snap_length);
      set_captured();
    }
  }
}

// A child that the program made by its own system call has all descriptors, and the loop would
// report those that are only closed.
void Device::Impl::handle_loss_of_agent() {
  const auto held = lock();
  wakes_.forget(agent_.socket());
  agent_.close();
  tap_.close();  // the capturing program knew of this process from the lost host agent
  set_captured();
  // The socket may be readable now for no packet, so the caller that polled it must not wait for
  // one.
  ++other_arrivals_;
  end_sleepers_lease(SleeperLease::End::in_order);
  if (agent_.may_reconnect()) return;
  has_lost_port_ = true;
  wakes_.lose_links();
  identity_.lose_network(wakes_.wake_fd());
}

}  // namespace tulle::live
