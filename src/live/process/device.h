#pragma once

// A process's part of a live device: an adapter, the sockets that the host agent handed over, and
// the thread that makes progress when no caller does. A process has one object for each device,
// shared by all contexts that are open on the device.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/likeness.h"
#include "live/message/device_info.h"
#include "live/path/memory/shared_regions.h"
#include "live/process/event_channel.h"
#include "rdma/device/adapter.h"

namespace tulle::device {
struct FlowRule;
}

namespace tulle::live {

// Returns the devices of this host, as the host agent lists them; starts a host agent if none is
// running. The error is one line for a person.
Result<std::vector<DeviceInfo>> devices();

class Device {
 public:
  // Called for each event of the adapter and of its port, with the device's lock held, by whichever
  // thread made progress.
  using EventSink = void (*)(const device::Event& event);

  // Returns the process's device of that name. The first caller opens it, and the last reference
  // closes it.
  static Result<std::shared_ptr<Device>> open(const std::string& name, EventSink sink);
  ~Device();

  // The addresses and the port's state change while the device is open, so the caller reads them
  // with the lock held.
  const DeviceInfo& info() const;

  // Takes the device's lock. The caller must hold it for every call below and every use of the
  // adapter and its objects.
  [[nodiscard]] std::unique_lock<std::mutex> lock();
  // Takes the lock for posting and polling, which themselves send any deferred datagrams
  // (live/process/device_impl.h).
  [[nodiscard]] std::unique_lock<std::mutex> lock_for_work();
  device::Adapter& adapter();
  // Returns the time on the clock of live/clock.h. The caller holds the lock.
  Time now();

  // Lets peers map memory that the caller is about to register, where the program has chosen that
  // (live/path/memory/shared_regions.h). The caller keeps the hold until the region is registered.
  // The caller does not hold the lock for these two calls, which may take long.
  static SharedRegions::Hold share_memory(const void* memory, std::uint64_t bytes);
  // Called when regions have been deregistered.
  static void tidy_memory();

  // Sends the adapter's pending datagrams and hands out its events. The caller calls this after
  // posting work or modifying a queue pair.
  void transmit();
  // The same after posting work. A strict device sends a moment later, or in the next call, like an
  // adapter that reads a request and its data when it comes to them.
  void transmit_posted();
  // A strict device writes to the program's memory also when the program polls, and when an object
  // ends. The caller keeps this meanwhile (live/process/program_memory.h).
  [[nodiscard]] std::shared_ptr<void> memory_turn();
  // Returns true if the device is to be as strict as hardware (TULLE_STRICT).
  static bool is_strict();
  // Returns the adapter whose limits the device has (TULLE_LIKE), or null.
  static const Likeness* likeness();
  // Keeps the reason for which a verb was refused, for `tulle status`, and writes it to standard
  // error if TULLE_EXPLAIN asks for it. Needs no lock.
  void keep_refusal(const std::string& text);
  // Makes progress on behalf of a caller that polls: receives, runs due timers, transmits and hands
  // out events. While callers poll, the device's thread stays out of their way.
  void progress();
  // Called when a caller polled and found nothing. If this has happened often in a row, gives the
  // lock and the processor to other threads, takes the lock back, and returns true: the caller must
  // poll again. On a machine with more pollers than cores, the peer may be waiting for a processor.
  // By then the empty poll is out of date, and the program might continue with an event that came
  // after the completion, such as the end of its connection.
  [[nodiscard]] bool let_others_run(std::unique_lock<std::mutex>& held);
  // Called when a caller is about to sleep or has armed a completion queue. The device's thread
  // takes over at once.
  void hand_over();
  // Called when a caller has armed a completion queue whose events go to the channel, and may now
  // sleep on the channel's descriptor. If the descriptor is O_NONBLOCK, the caller itself wakes
  // from the third time in a row on when something comes, and not the device's thread.
  void expect_sleeper(EventChannel& channel);
  // Called when a caller polled a queue of the channel and found nothing. If it has armed the queue
  // and sleeps on the channel's descriptor next, it looks for packets for a while first
  // (Settings::busy_poll_microseconds). Others may have the lock meanwhile. Returns true if the
  // queue has a completion: the caller must look again.
  [[nodiscard]] bool look_before_sleep(std::unique_lock<std::mutex>& held,
                                       const EventChannel& channel,
                                       const verbs::CompletionQueue& queue);
  // Takes the channel's next event, and sleeps while there is none, unless the channel's descriptor
  // is O_NONBLOCK. Returns 0; EAGAIN; EINTR if a signal came first; or ENOMSG if the channel's
  // descriptor was readable for packets that brought no event. After ENOMSG the caller must raise
  // an event, or call again with `may_sleep`: an application that polled the descriptor expects
  // that this call returns at once. The caller does not hold the lock.
  [[nodiscard]] int take_event(EventChannel& channel, EventChannel::Item& item, bool may_sleep);
  // Must be called before a channel is destroyed that was named in a call above.
  void forget(EventChannel& channel);
  // Finds the way to a peer, where that takes a question on the link: RoCE v1 needs the neighbour's
  // MAC address. Called before a queue pair is connected or an address handle is made, without the
  // lock. Takes a second at most. Returns 0 or an errno, such as EHOSTUNREACH.
  [[nodiscard]] int resolve(const verbs::AddressVector& to);
  // Brings the published counters up to date now, because the process may end without another call.
  void publish();
  // join() makes the device's socket receive datagrams that are sent to a multicast group on the
  // device's interfaces, and leave() stops this. join() returns 0 or an errno: EADDRNOTAVAIL if no
  // interface has an address of the group's family, ENOBUFS if the host allows no more groups
  // (net.ipv4.igmp_max_memberships).
  [[nodiscard]] int join(const Gid& group);
  void leave(const Gid& group);

  // Returns 0 if this process may use raw packets, which go over the interface of the first GID.
  // Otherwise returns EPERM, or EOPNOTSUPP if that interface has no Ethernet frames.
  [[nodiscard]] int may_use_packets();
  // Must be called before the first raw packet queue pair is created. Returns 0 or an errno.
  [[nodiscard]] int open_packets();
  // watch() must be called before a flow is created, and unwatch() when the flow has been
  // destroyed. watch() returns 0 or an errno.
  [[nodiscard]] int watch(const device::FlowRule& rule);
  void unwatch(const device::FlowRule& rule);

  class Impl;
  Impl& impl() { return *impl_; }
  // Makes a device of what open() puts together. A caller with a separate network
  // (live/process/network.h) uses it directly; such a device is not shared by name.
  static Result<std::shared_ptr<Device>> start(std::unique_ptr<Impl> impl);

 private:
  explicit Device(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tulle::live
