// The device's thread. It makes progress while no caller does, and answers the host agent.

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/on_throw.h"
#include "live/fabric/client.h"
#include "live/message/protocol.h"
#include "live/process/device_impl.h"
#include "live/process/program_memory.h"

namespace tulle::live {
namespace {

constexpr int batches_in_row_max = 64;
constexpr std::size_t rings_in_row_max = 16;
constexpr int yields_max = 100;
constexpr int naps_max = 50;
constexpr int nap_microseconds = 50;
constexpr Time reconnect_time = Time::milliseconds(200);
constexpr int no_memory_pause_microseconds = 10'000;
// Interval between checks whether an address that went away is still in use.
constexpr Time gids_interval = Time::milliseconds(100);
// A caller that polls calls far more often than this.
constexpr Time nobody_polls = Time::microseconds(10);
constexpr Time long_lease = Time::milliseconds(20);

// Asks for a short time slice (Linux 6.12 and later). When the thread is woken, it then preempts an
// application that spins on memory, rather than wait for the end of that application's slice of
// some milliseconds.
void ask_for_short_slice() {
#ifdef SYS_sched_setattr
  struct {
    std::uint32_t size = 48;
    std::uint32_t policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000;  // nanoseconds
    std::uint64_t deadline = 0;
    std::uint64_t period = 0;
  } attributes;
  static_assert(sizeof(attributes) == 48);
  errno = 0;
  // The raw system call returns 20 - nice.
  const long nice = syscall(SYS_getpriority, 0 /* PRIO_PROCESS */, 0);
  if (nice > 0) attributes.nice = static_cast<std::int32_t>(20 - nice);
  syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

}  // namespace

Result<void> Device::Impl::start_thread() {
  // Signals are blocked in the new thread: they belong to the application. Faults are the thread's
  // own (live/process/program_memory.h).
  sigset_t others;
  sigset_t before;
  sigfillset(&others);
  sigdelset(&others, SIGSEGV);
  sigdelset(&others, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  Result<void> result;
  const OnThrow undo([&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    result = Error{std::string("cannot start the device's thread: ") + error.what(),
                   error.code().value()};
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  // Peers that connect from now on find that this process lives.
  if (result) {
    running_.wait(false);
    SharedRegions::of_process().note_own_thread(1);
  }
  return result;
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
  wake();
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
      wake();
    }
  }
}

void Device::Impl::wait_and_handle() {
  let_others_in();
  const bool is_alone = agent_.socket() < 0 && agent_.may_reconnect();
  Time longest = is_alone ? reconnect_time : Time::never();
  if (gids_held_.any()) longest = gids_interval;
  const auto events = loop_.wait(longest);
  if (gids_held_.any()) look_after_gids();
  if (is_alone && DriverClock::system() >= reconnect_at_) {
    if (agent_.reconnect(info_)) watch(agent_.socket(), EPOLLIN);
    reconnect_at_ = DriverClock::system() + reconnect_time.to_nanoseconds();
  }
  for (const epoll_event& event : events) handle_wake(static_cast<int>(event.data.u64));
}

void Device::Impl::handle_wake(int fd) {
  if (fd == agent_.socket()) return handle_agent();
  if (fd == timer_.get()) return handle_timer();
  if (fd == wakeup_.get()) {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t taken = read(wakeup_.get(), &count, sizeof(count));
  }
  // The thread wakes because the socket is readable, because a socket that was full is writable, or
  // because a caller left work behind.
  for (int i = 0; i < batches_in_row_max; ++i) {
    {
      const auto held = lock();
      // A caller may have come to sleep at the doorbell after this thread woke. The caller would
      // sleep on if this thread took the ring.
      if (i == 0 && fd == doorbell_.get() && !is_doorbell_taken_) take_rings();
      const Time at = now();
      const MemoryTurn turn(at);
      const std::uint64_t received = counters_.receive_calls;
      int calls = 0;
      survive([&] { calls = move_data(at); });
      if (counters_.receive_calls != received && at > last_poll_ + nobody_polls) polls_in_row_ = 0;
      settle(at);
      if (leased_ || calls < receive_calls_max) return;
    }
    let_others_in();
  }
}

// Takes what was said, in one call. Peers may do anything with their end.
void Device::Impl::take_rings() {
  std::array<mmsghdr, rings_in_row_max> rings{};
  const int taken = recvmmsg(doorbell_.get(), rings.data(), rings.size(), MSG_DONTWAIT, nullptr);
  if (taken <= 0) return;
  other_arrivals_ += static_cast<std::uint64_t>(taken);
  links_.note_ring();
}

void Device::Impl::handle_timer() {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t taken = read(timer_.get(), &count, sizeof(count));
  const auto held = lock();
  const Time at = now();
  const MemoryTurn turn(at);
  timer_at_ = Time::never();
  if (leased_) {
    const bool must_continue = links_.must_continue();
    survive([&] {
      if (must_continue && adapter_->next_deadline() <= at) receive_before_deadlines(at);
      if (must_continue || deferred_ || has_unsent_posts_) send(at);
    });
    if (at < last_poll_ + lease_time) {
      wake_at(last_poll_ + lease_time);
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
  set_leased(false);
  polls_in_row_ = 0;
  watch_sockets(true);
  const std::uint64_t received = counters_.receive_calls;
  move_data(at);
  if (counters_.receive_calls != received) {
    polls_before_lease_ = std::min(polls_before_lease_ * 2, polls_before_lease_max);
  } else if (at > leased_at_ + long_lease) {
    polls_before_lease_ = polls_before_lease_min;
  }
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

// Yields to callers that wait for the lock. A mutex that is released and taken again at once is not
// fair: a waiter would sleep on. On a busy machine the waiter gets its processor late, and a yield
// returns at once, so that this thread then sleeps for some milliseconds at most.
void Device::Impl::let_others_in() {
  const auto is_awaited = [this] { return waiters_.load(std::memory_order_relaxed) > 0; };
  for (int i = 0; i < yields_max && is_awaited(); ++i) sched_yield();
  for (int i = 0; i < naps_max && is_awaited(); ++i) usleep(nap_microseconds);
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
      handle_change(changed.device, changed.version);
    } else if (info_.infiniband && decoded(message->bytes, of_port)) {
      handle_change(of_port);
    } else if (decode(message->bytes, start) && !message->fds.empty()) {
      auto ring = CaptureRing::map(std::move(message->fds[0]));
      if (ring) tap_.open(std::move(*ring), start.snap_length);
      set_captured();
    }
  }
}

void Device::Impl::tell(verbs::EventType type) {
  device::Event event;
  event.kind = device::Event::Kind::asynchronous;
  event.type = type;
  sink_(event);
}

// The caller holds the lock.
void Device::Impl::handle_change(const PortChanged& changed) {
  using verbs::EventType;
  const InfinibandPort before = *info_.infiniband;
  const InfinibandPort& now = changed.port;
  const bool was_active = info_.port_active;
  const DeviceInfo as_now = device_of(info_.name, {info_.node_guid, now, {}});
  const bool has_other_gids = as_now.gids != info_.gids;
  info_ = as_now;
  set_gids();
  set_port();
  // A kernel tells of these in the order in which its driver's firmware does; no program relies on
  // an order.
  if (now.lid != before.lid || now.lmc != before.lmc) tell(EventType::lid_change);
  if (now.sm_lid != before.sm_lid || now.sm_sl != before.sm_sl) tell(EventType::sm_change);
  if (now.pkeys != before.pkeys) tell(EventType::pkey_change);
  if (has_other_gids) tell(EventType::gid_change);
  if (info_.port_active != was_active) {
    tell(info_.port_active ? EventType::port_active : EventType::port_error);
  }
  if (changed.must_register_anew) tell(EventType::client_reregister);
}

// The caller holds the lock.
void Device::Impl::handle_change(const DeviceInfo& changed, std::uint32_t version) {
  using verbs::EventType;
  const bool has_turned = changed.port_active != info_.port_active;
  const bool has_other_gids = changed.gids != info_.gids;
  info_.port_active = changed.port_active;
  info_.gids = changed.gids;
  set_gids();
  if (has_turned) tell(info_.port_active ? EventType::port_active : EventType::port_error);
  if (has_other_gids) tell(EventType::gid_change);
  version_ = version;
  gids_held_ = adapter_->withdrawn_gids();
  agent_.tell_held(version_, gids_held_);
}

void Device::Impl::look_after_gids() {
  const auto held = lock();
  const Time at = now();
  if (at < gids_looked_at_ + gids_interval) return;
  gids_looked_at_ = at;
  set_gids();
  if (adapter_->withdrawn_gids() == gids_held_) return;
  gids_held_ = adapter_->withdrawn_gids();
  agent_.tell_held(version_, gids_held_);
}

// A child that the program made by its own system call has all descriptors, and the loop would
// report those that are only closed.
void Device::Impl::handle_loss_of_agent() {
  const auto held = lock();
  loop_.forget(agent_.socket());
  agent_.close();
  tap_.close();  // the capturing program knew of this process from the lost host agent
  set_captured();
  // The socket may be readable now for no packet, so the caller that polled it must not wait for
  // one.
  ++other_arrivals_;
  end_sleepers_lease(SleeperLease::End::in_order);
  if (agent_.may_reconnect()) return;
  has_lost_port_ = true;
  const bool was_active = info_.port_active;
  for (const Watched& watched : watched_) loop_.forget(watched.fd);
  links_.lose_network(info_, wakeup_.get());
  if (was_active && !info_.port_active) tell(verbs::EventType::port_error);
  tell(verbs::EventType::device_fatal);
}

}  // namespace tulle::live
