#pragma once

// The driver: one lock around the adapter, its sockets, and a thread that makes progress while no
// caller does.
//
// Who watches the socket. A caller that polls finds datagrams itself. After some calls of
// progress() in a row the device's thread therefore stops watching the socket, where each datagram
// would wake it only to find the lock taken. Instead it checks once a millisecond whether the
// caller still polls. This state is a lease. The lease ends when a check finds no call in the last
// millisecond, or at once with hand_over(). Without a lease the thread sleeps until a datagram or a
// deadline: an idle process uses no processor time.
//
// A program may also poll for a while and then spin on its memory, which the driver cannot see from
// any call. A lease would then cost a millisecond for each message. So polls count only while
// arriving datagrams find a caller polling, and a lease that ends with datagrams waiting makes the
// next lease harder to get.
//
// A caller that sleeps on the descriptor of an event channel has a lease too: what peers wake is
// attached to that descriptor, and the thread does not watch it. Otherwise each message would wake
// the thread first, and the thread the caller. The thread checks once a millisecond, and
// SleeperLease says when the lease ends.
//
// Before a caller sleeps, it looks for packets itself for a while (BusyPoll), and peers need not
// wake it.
//
// An answer to a datagram that brought a completion waits for the caller's next call, which comes
// at once and has more to send with it. The acknowledgement is thus not in the way of the program's
// reply. Any call sends the answer, and so does the end of the program: the peer waits for it, and
// a queue pair that has been destroyed can no longer send it.

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "live/bell.h"
#include "live/clock.h"
#include "live/fabric/messages.h"
#include "live/links.h"
#include "live/message/counters_page.h"
#include "live/path/packets/capture_tap.h"
#include "live/process/agent_link.h"
#include "live/process/busy_poll.h"
#include "live/process/device.h"
#include "live/process/network.h"
#include "live/process/sleeper_lease.h"
#include "live/settings.h"
#include "os/event_loop.h"
#include "os/unique_fd.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

class Device::Impl {
 public:
  // What the host agent, or a fabric's process, granted for one device.
  struct Grant {
    DeviceInfo info;
    QpNumber first_qp;
    std::uint32_t qp_count = 0;
    CountersPage counters;
    AgentLink agent;
    std::unique_ptr<Network> network;
    Bell bell;  // where peers by memory ring
  };
  Impl(Grant grant, const Settings& settings, EventSink sink);
  ~Impl();
  Result<void> start();
  void forget_in_child();

  const DeviceInfo& info() const { return info_; }
  std::unique_lock<std::mutex> lock();
  // Gives up after that time, and returns a lock that holds nothing.
  std::unique_lock<std::mutex> lock_within(std::chrono::milliseconds patience);
  device::Adapter& adapter() { return *adapter_; }

  // Takes the lock itself.
  int take_event(EventChannel& channel, EventChannel::Item& item, bool may_sleep);

  // The caller holds the lock, which others may have meanwhile. A program that is about to sleep
  // on the channel looks for a completion for a while. Returns true if the queue has one.
  bool look_before_sleep(std::unique_lock<std::mutex>& held, const EventChannel& channel,
                         const verbs::CompletionQueue& queue);

  // The caller holds the lock for the functions below.
  Time now();  // a time that was told before is of no use after the next call
  void transmit();
  void transmit_later() {
    if (forked_) return;
    has_unsent_posts_ = true;
    wake_at(now() + strict_delay);
  }
  void keep_refusal(const std::string& text) {
    if (!forked_) page_.keep_refusal(text);  // the page belongs to the parent
  }
  void progress();
  void hand_over();
  void expect_sleeper(EventChannel& channel);
  void forget(EventChannel& channel);
  void publish(Time at);  // publishes the counters
  void send_deferred() {
    if ((deferred_ || has_unsent_posts_) && !forked_) transmit();
  }
  // Sends what is due to peers, and leaves work that was posted a moment ago.
  void send_answers() {
    if (deferred_ && !has_unsent_posts_ && !forked_) transmit();
  }
  int join(const Gid& group);
  void leave(const Gid& group);
  int resolve(const verbs::AddressVector& to);  // takes the lock itself
  int may_use_packets();
  int open_packets();
  int watch(const device::FlowRule& rule);
  void unwatch(const device::FlowRule& rule);
  bool vain_polls_are_many() const {
    return vain_polls_ > 0 && vain_polls_ % vain_polls_before_yield == 0;
  }

 private:
  // About ten times as many polls as a reply takes on an idle machine, so that the caller never
  // yields there.
  static constexpr std::uint32_t vain_polls_before_yield = 128;
  static constexpr Time lease_time = Time::milliseconds(1);
  // A strict device sends this long after work was posted, unless the program polls before.
  static constexpr Time strict_delay = Time::microseconds(50);
  static constexpr std::uint32_t polls_before_lease_min = 64;
  static constexpr std::uint32_t polls_before_lease_max = 4'096;
  static constexpr int receive_calls_max = 4;  // in a row, before pending datagrams are sent
  static constexpr std::uint32_t polls_between_looks_max = 63;
  // A ring of the shortest packets is empty after so many calls of receive().
  static constexpr int turns_before_deadlines_max = 16;

  // device_thread.cc
  Result<void> start_thread();
  void run();
  void wait_and_handle();
  void handle_wake(int fd);
  void handle_timer();
  void handle_agent();
  void handle_loss_of_agent();
  void handle_change(const DeviceInfo& changed, std::uint32_t version);
  void handle_change(const PortChanged& changed);
  void set_port();
  void tell(verbs::EventType type);
  void set_gids();
  void look_after_gids();
  void let_others_in();
  void end_lease(Time at);
  void look_after_sleeper(Time at);
  void take_rings();

  // Receives, runs due timers, transmits and hands out events. Returns the number of receive calls
  // that it made.
  int move_data(Time at);
  void handle_deadlines(Time at, bool has_received_all);
  int receive_before_deadlines(Time at);
  void send(Time at);
  int receive(Time at);
  void set_leased(bool leased);
  void tell_who_looks(bool a_caller);
  void deliver_events();
  // The second one may be -1.
  std::array<int, 2> waking_fds() const { return {doorbell_.get(), links_.waking_socket()}; }
  void answer_bell();
  template <typename HasCome>
  bool look(std::unique_lock<std::mutex>& held, bool stays_awake, HasCome has_come);
  void begin_awake();
  bool end_awake();
  bool end_awake_if_due(Time at);
  void take_unannounced(Time at);
  // Grows whenever something came that may have woken a sleeper.
  std::uint64_t arrivals() const { return counters_.receive_calls + other_arrivals_; }
  struct Waiting {
    bool ring = false;
    bool datagram = false;
  };
  Waiting what_waits() const;
  void end_sleepers_lease(SleeperLease::End how);
  class DoorbellTurn;
  [[nodiscard]] bool take_doorbell();
  void leave_doorbell();
  void take_back_doorbell();
  void stop_expecting(const EventChannel& channel);
  void watch_doorbell(bool readable);
  void settle(Time at);
  // A link's socket, and whether the thread is woken when it is readable.
  struct Watched {
    int fd = -1;
    bool is_readable = false;
  };
  void watch_sockets(bool readable);
  void watch(int fd, std::uint32_t events);
  void watch_socket(const Link& link, Watched& watched);
  void watch_changed_sockets();
  void watch_until_writable(const Link& link, Time at);
  void wake_at(Time when);
  void wake();
  void set_captured();

  DeviceInfo info_;
  Settings settings_;
  EventSink sink_;
  CountersPage page_;
  DriverCounters counters_;
  CaptureTap tap_;
  std::unique_ptr<Network> network_;
  Links links_{counters_};  // outlive the adapter, which withdraws objects from them
  std::unique_ptr<device::Adapter> adapter_;
  std::bitset<gids_max> gids_of_roce_v1_;
  std::vector<Watched> watched_;  // by link, of those by socket
  bool is_waking_socket_watched_ = true;
  BusyPoll busy_poll_;
  DriverClock clock_;

  std::mutex mutex_;
  std::atomic<int> waiters_{0};
  std::uint32_t polls_in_row_ = 0;
  std::uint32_t vain_polls_ = 0;  // polls in a row that found no datagram
  // While packets come by memory, most polls leave the socket out, since a look costs a system
  // call.
  std::uint32_t polls_between_looks_ = 0;
  std::uint32_t polls_to_next_look_ = 0;
  int turns_before_deadlines_ = 0;  // in which a deadline waited for what had come
  std::uint32_t polls_before_lease_ = polls_before_lease_min;
  bool leased_ = false;
  SleeperLease sleeper_;
  // A caller looks for packets before it sleeps; or it has looked, found something, and armed no
  // queue since. So it does not sleep, and peers need not ring.
  bool is_awake_ = false;
  Time awake_since_;
  std::uint64_t other_arrivals_ = 0;
  bool is_doorbell_taken_ = false;  // a caller sleeps at it, inside of take_event()
  pthread_t doorbell_taker_{};
  bool is_doorbell_broken_ = false;  // somebody shut it down: no caller sleeps at it any more
  bool has_lost_port_ = false;       // the host agent is gone, and the slot's socket with it
  bool has_unsent_posts_ = false;    // of a strict device, which sends later
  bool deferred_ = false;  // datagrams may be pending that wait for the caller's next call
  Time leased_at_;
  bool forked_ = false;  // this process is a child of the one that opened the device
  Time last_poll_;
  Time timer_at_ = Time::never();
  Time published_;
  UniqueFd timer_;

  AgentLink agent_;
  // Used by the device's thread: the version of the device that the host agent told last, and the
  // withdrawn addresses that were still in use at that time or at the last check.
  std::uint32_t version_ = 0;
  std::bitset<gids_max> gids_held_;
  Time gids_looked_at_;
  std::int64_t reconnect_at_ = 0;  // on the system's clock, in nanoseconds
  Time ask_again_at_;              // when an agent that did not answer is asked for peers again
  EventLoop loop_;
  UniqueFd wakeup_;
  // Local peers wake this process by this connection. They get its second end.
  UniqueFd doorbell_;
  UniqueFd doorbell_button_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};  // the thread has begun
  std::thread thread_;
};

}  // namespace tulle::live
