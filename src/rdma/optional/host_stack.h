#pragma once

// The cost of a kernel's network stack for a host: processor time between the wire and an adapter's
// queue pairs, and between these and the application. This is a decorator that works with any
// transport. With streams it is kernel TCP, with reliable connections Soft-RoCE, and with iWARP
// over TCP software iWARP. An adapter that does all this in hardware has no such stack.
//
// The host's cores are a resource. Each core does one job after the other, the kernel's before the
// application's (soft interrupts come before processes). The effect of a job happens at its end:
//
//   receive    takes up to 64 frames that the adapter has ready (NAPI), after the interrupt that
//              announces them, which may wait (ethtool's rx-usecs and rx-frames). The frames of one
//              flow among them climb the stack as one packet (GRO).
//   transmit   sends the data of a queue pair, up to a chunk that the adapter or the driver cuts
//              into frames (TSO, GSO), or a single packet if neither does.
//   socket     is a system call of a stream's application: it copies between the application's
//              memory and the socket. An application that slept is woken first.
//
// A connection's frames are received by one core (RSS), and its application runs on another (or on
// the same, if there is only one). A core that makes a queue pair ready to send also does the
// sending.
//
// Frames belong to the driver. This class knows only their handles.

#include <cstdint>
#include <vector>

#include "base/growing_ring.h"
#include "base/ids.h"
#include "base/time.h"
#include "rdma/device/adapter.h"

namespace tulle::device {

struct HostStackSettings {
  std::uint32_t cores = 0;        // 0: the host has no such stack
  bool application_apart = true;  // true: on the next core; false: on the core that receives
  // Time of an application's call for entry and exit, and the bytes that one call moves.
  Time system_call;
  std::uint32_t call_bytes = 131'072;
  // Rate at which payload is copied between application and kernel. At the default, copies cost
  // practically nothing.
  std::int64_t copy_bits_per_second = 1'000'000'000'000'000;
  // Time down the stack: of a chunk, for TCP, IP, queueing discipline and driver; and of each
  // frame, where the kernel cuts the chunk (GSO) and the adapter does not (TSO).
  Time transmit;
  Time transmit_frame;
  std::uint32_t chunk_bytes = 65'536;  // 0: each frame is a chunk
  // Time up the stack: the interrupt and the start of the soft interrupt; the driver's part for
  // each frame; IP, TCP and the socket for a packet, which with `merges` consists of several frames
  // of one flow; and the time of an acknowledgement.
  Time interrupt;
  Time receive_frame;
  Time receive;
  Time acknowledgement;
  bool merges = true;
  // An interrupt waits for this time, or until there are this many frames (0: the time alone
  // counts).
  Time interrupt_delay;
  std::uint32_t interrupt_frames = 0;
  Time wake_up;  // the scheduler's work for a sleeping application
  // A core that was idle for `idle_after` begins its next job `idle_exit` later, as it must leave
  // its idle state (the processor's C-states). The delay counts as no processor time.
  Time idle_exit;
  Time idle_after;
  std::uint32_t receive_ring_frames = 1'024;  // per core
  // Limit for frames that wait for the link; senders wait beyond it.
  std::uint32_t transmit_queue_bytes = 1 << 20;
};

class HostStack {
 public:
  using FrameHandle = std::uint32_t;
  static constexpr FrameHandle no_frame = 0xFFFF'FFFF;

  // The services that the driver provides.
  class Driver {
   public:
    virtual ~Driver() = default;
    // Hands the frame's packet to the adapter. The handle is not used again.
    virtual void deliver(FrameHandle frame) = 0;
    // Returns a frame for the datagram that the adapter has just produced.
    virtual FrameHandle keep(const Datagram& datagram) = 0;
  };

  struct Counters {
    Time busy_kernel;       // of all cores together
    Time busy_application;  // with system calls and copies
    Time busy_most;         // of the busiest core
    std::uint64_t interrupts = 0;
    std::uint64_t receive_ring_drops = 0;
  };

  HostStack(const HostStackSettings& settings, Adapter& adapter, Driver& driver);

  // Takes in a frame that has arrived at the adapter. `flow` must come from flow_of(). Returns
  // false if there is no room and the frame is lost.
  [[nodiscard]] bool arrive(Time now, FrameHandle frame, std::uint32_t flow,
                            std::uint32_t payload_bytes);
  // Must be called when the application has called the adapter, or a timer of the adapter has run
  // out.
  void attend(Time now);
  // Does all work that is due.
  void run(Time now);
  Time next_deadline() const;
  // The next frame for the link, in order.
  bool has_frame() const { return !outgoing_.empty(); }
  FrameHandle front() const { return outgoing_.front().frame; }
  FrameHandle pull(Time now);
  // Returns the value by which cores are chosen. It depends on the local end of a connection, of
  // which frames may name only TCP's port.
  static std::uint32_t flow_of(QpNumber local) {
    return (local.value & 0xFFFF) * 0x9E37'79B9u >> 8;
  }

  Counters counters() const;
  // Fetches what the next work of this host will touch into the processor's cache.
  void prefetch() const;

 private:
  struct Received {
    FrameHandle frame = no_frame;
    std::uint32_t flow = 0;
    std::uint32_t payload_bytes = 0;
  };
  struct Outgoing {
    FrameHandle frame = no_frame;
    std::uint32_t bytes = 0;
  };
  struct Job {
    enum class Kind : std::uint8_t { receive, transmit, socket };
    Kind kind{};
    QpNumber qp = {};
    bool asleep = false;  // socket
    std::uint64_t called_bytes = 0;
  };
  struct alignas(64) Core {
    Time free_at = Time::never();
    Time interrupt_at = Time::never();  // of the receive queue
    bool busy = false;
    bool of_application = false;
    // NAPI state of the core's receive queue.
    bool polling = false;
    bool interrupted = false;  // the next receive job pays for it
    std::uint32_t polled_in_row = 0;
    Time idle_since = Time::seconds(-1);
    Time busy_time;
    Job job;
    GrowingRing<Job> kernel;
    GrowingRing<Job> application;
    GrowingRing<Received> ring;
    // State of the current job.
    std::vector<Received> batch;
    std::vector<Outgoing> cut;
    std::uint64_t bytes = 0;
    bool reads = false;
  };

  Core& receiving_core(std::uint32_t flow) { return cores_[flow % cores_.size()]; }
  Core& application_core(std::uint32_t flow);
  void begin_next(Time now, Core& core);
  static bool take_job(Core& core);
  Time begin(Time now, Core& core);
  Time begin_receive(Core& core);
  Time begin_transmit(Time now, Core& core);
  Time begin_socket(Core& core);
  void finish(Time now, Core& core);
  void finish_receive(Core& core);
  void finish_transmit(Core& core);
  void finish_socket(Core& core);
  void take_ready(Core* core);
  void take_sockets();
  void interrupt(Time now, Core& core);
  Time copying(std::uint64_t bytes) const;
  static std::uint32_t flow_of(const transport::QueuePair& qp) { return flow_of(qp.number); }

  const HostStackSettings settings_;
  Adapter& adapter_;
  Driver& driver_;
  std::vector<Core> cores_;
  GrowingRing<Outgoing> outgoing_;
  std::uint64_t outgoing_bytes_ = 0;
  GrowingRing<QpNumber> held_back_;  // senders that wait until the link's queue drains
  Datagram datagram_;
  Counters counters_;
};

}  // namespace tulle::device
