#pragma once

// A link takes packets between a process's adapter and its network. A device has one link or
// several (live/links.h): on a host with RoCE, one to the processes of the host by memory, one by
// UDP, and, where a program wants them, one for the frames of RoCE v1 and one for raw packets; on a
// host of a software fabric, one to the fabric's process.
//
// The device's lock is held for all calls, unless it says otherwise.

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "base/time.h"
#include "live/driver_counters.h"
#include "rdma/device/adapter.h"
#include "rdma/wire/ethernet.h"

namespace tulle::live {

struct DeviceInfo;

// Does a part of a turn. A packet that there is no memory for is lost, as on a network. An
// exception would end the program.
template <typename Part>
void survive(Part part) {
  try {
    part();
  } catch (const std::bad_alloc&) {
  }
}

class Link {
 public:
  virtual ~Link() = default;

  // --- sending: the driver pulls datagrams from the adapter, and offers each to its links ---

  enum class Offer : std::uint8_t {
    declined,  // the datagram is for another link
    taken,     // it was sent, copied, or lost
    borrowed,  // the link uses it until flush() returns
    kept,      // it was taken, and no other may be offered until resume() returns true
  };
  enum class Flushed : std::uint8_t {
    all,
    more,   // the adapter may have datagrams again that it kept for this link
    waits,  // something waits: no other may be offered until resume() returns true
  };
  // The most datagrams between two calls of flush().
  static constexpr std::size_t batch_max = 64;

  // The pieces of a datagram are valid until the next call into the adapter other than
  // pull_datagram().
  virtual Offer offer(device::Datagram&, Time) { return Offer::declined; }
  // Sends what was taken since the last call. Called after each batch, which may be empty.
  virtual Flushed flush(Time) { return Flushed::all; }
  // Begins a turn of the driver, and sends what waits. Returns false if something still waits: the
  // links behind this one are not called in this turn.
  [[nodiscard]] virtual bool resume(Time) { return true; }
  // Returns false if the link takes no datagrams of queue pairs, and sends something else.
  virtual bool takes_datagrams() const { return true; }
  // Returns the time at which a turn must begin even if nothing comes.
  virtual Time next_deadline() const { return Time::never(); }
  // Returns the socket that was full, or -1: a turn must begin when it is writable.
  virtual int blocked_socket() const { return -1; }
  // By memory: returns true if turns must follow one another, as while a long transfer is under
  // way.
  virtual bool must_continue() const { return false; }

  // --- receiving ---

  // What receive() returns at least if more may be waiting.
  static constexpr int received_max = 8;
  // Hands what has come to the adapter, but a bounded number of packets in one call. Returns a
  // number that is positive if there were any.
  virtual int receive(device::Adapter& adapter, Time now) = 0;

  // A link by memory is looked at in each poll, since that costs no call to the kernel. Its peers
  // wake this process by the device's doorbell.
  virtual bool is_by_memory() const { return false; }
  // Returns true if the last call of receive() may have left packets in memory.
  virtual bool is_unfinished() const { return false; }
  // Must be called when the doorbell was rung, before receive().
  virtual void note_ring() {}
  // Says whether somebody calls receive() all the time, so that no peer needs to ring. The caller
  // must call receive() after it has said `false`.
  virtual void set_polled(bool) {}
  // Returns the number of packets that came and that went by memory. It never falls.
  virtual std::uint64_t packets_by_memory() const { return 0; }

  // Returns the socket that is readable when something has come; -1: there is none now.
  virtual int receiving_socket() const { return -1; }
  // Returns true if a caller that sleeps on an event channel's descriptor is woken by that socket.
  // The device's thread serves the others.
  virtual bool wakes_sleepers() const { return false; }
  // Returns false if what has come cannot be handed on now, so that nobody needs to be woken.
  virtual bool wants_wake() const { return true; }

  // --- addresses and groups ---

  virtual void set_addresses(const DeviceInfo&) {}
  // Makes packets to a multicast group come in. Returns 0 or an errno.
  virtual int join(const Gid&) { return 0; }
  virtual void leave(const Gid&) {}
  // A neighbour whose MAC address the link must know before it can send there.
  struct Neighbour {
    std::uint32_t interface_index = 0;
    Gid source;
    Gid gid;
  };
  virtual std::optional<Neighbour> unknown_neighbour(const DeviceInfo&,
                                                     const verbs::AddressVector&) const {
    return {};
  }
  virtual void set_neighbour(const Neighbour&, const wire::MacAddress&) {}

  // --- the rest of a device's life ---

  // Runs in the device's thread before anything else, without the lock.
  virtual void begin_thread() {}
  // While a capture runs, all packets must go where it sees them.
  virtual void set_captured(bool) {}
  // Adds up what the link counts by itself.
  virtual void count(DriverCounters&) {}
  virtual void rebase(Time) {}
  // The process that gave the link its network is gone for good. A socket without a use becomes
  // another name of `other`.
  virtual void lose_network(DeviceInfo&, [[maybe_unused]] int other) {}
  // Called in a forked child, which has no network: gives up what keeps ports and peers busy. A
  // descriptor keeps its number, as another name of `other`.
  virtual void forget_in_child([[maybe_unused]] int other) {}
};

}  // namespace tulle::live
