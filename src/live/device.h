#pragma once

// This process's part of a live device: an adapter, the sockets that the host agent handed over,
// and the thread that makes progress when no caller does. One a process and device, shared by all
// contexts that are open on it.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/adapter.h"

namespace tulle::device {
struct FlowRule;
}

namespace tulle::live {

struct GidEntry {
  Gid gid;
  std::uint32_t interface_index = 0;
  std::string interface;

  // False: a hole, which an address that went away has left.
  bool in_use() const { return gid != Gid{}; }
  bool operator==(const GidEntry&) const = default;
};

// A device as the agent describes it.
struct DeviceInfo {
  std::string name;                // "tulle0" unless TULLE_DEVICE says otherwise
  std::uint64_t node_guid = 0;     // host order
  std::uint32_t mtu_bytes = 1024;  // active path MTU: what fits the interface
  bool port_active = true;
  std::vector<GidEntry>
      gids;  // by GID index: IPv4 first, then what came later (live/agent/gid_table.h)
};

// The devices of this host, from the agent (which is started if there is none). The error is one
// line for a person.
Result<std::vector<DeviceInfo>> devices();

class Device {
 public:
  // Called with the device's lock held, by whichever thread made progress,
  // for each event of the adapter and of its port.
  using EventSink = void (*)(const device::Event& event);

  // The process's device of that name: opened by the first caller, closed with the last reference.
  static Result<std::shared_ptr<Device>> open(const std::string& name, EventSink sink);
  ~Device();

  // The addresses, and whether the port is active, change while the device is open: read them with
  // the lock held.
  const DeviceInfo& info() const;

  // Every call below, and every use of the adapter and its objects, is made with this lock held.
  [[nodiscard]] std::unique_lock<std::mutex> lock();
  // The same for posting and polling, which send what was deferred themselves (live/device_impl.h).
  [[nodiscard]] std::unique_lock<std::mutex> lock_for_work();
  device::Adapter& adapter();
  Time now() const;  // CLOCK_MONOTONIC

  // Sends what the adapter has to send, and hands out its events.
  // Call after work was posted or a QP modified.
  void transmit();
  // A caller that polls makes progress itself: receives, runs what is due, transmits, hands out
  // events. While callers poll, the device's thread stays out of their way.
  void progress();
  // A caller polled and found nothing. Where that has happened often in a row, gives the lock and
  // the processor to whoever else wants them, takes the lock back, and returns true: look again. On
  // a machine with more pollers than cores the peer may be the one that waits for a processor, and
  // "nothing" would be old news by then: the program may go on to an event that came after the
  // completion, such as the end of its connection.
  [[nodiscard]] bool let_others_run(std::unique_lock<std::mutex>& held);
  // A caller is about to sleep, or armed a completion queue:
  // the device's thread takes over at once.
  void hand_over();
  // The counters are to be true now: a process may end without another word.
  void publish();
  // What is sent to a multicast group on the device's interfaces comes here too, or no longer. 0,
  // or the errno: EADDRNOTAVAIL where no interface has an address of the group's family, ENOBUFS
  // where the host allows no more (net.ipv4.igmp_max_memberships).
  [[nodiscard]] int join(const Gid& group);
  void leave(const Gid& group);

  // Raw packets go by the interface of the first GID. 0: this process may have them; else EPERM, or
  // EOPNOTSUPP where that interface has no Ethernet frames.
  [[nodiscard]] int may_use_packets() const;
  // Before the first raw packet queue pair is made. 0, or the errno.
  [[nodiscard]] int open_packets();
  // Before a flow is made, and when it has gone. 0, or the errno.
  [[nodiscard]] int watch(const device::FlowRule& rule);
  void unwatch(const device::FlowRule& rule);

  class Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Device(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tulle::live
