#pragma once

// What a kernel's network stack costs a host: processor time between the wire and an adapter's
// queue pairs, and between these and the application. A decorator, whatever the transport: with
// streams it is kernel TCP, with reliable connections Soft-RoCE, with iWARP over TCP software
// iWARP; an adapter that does all this itself has none.
//
// The host's cores are a resource. Each does one job after the other, the kernel's before the
// application's (soft interrupts come before processes), and what a job is for happens at its end:
//
//   receive    up to 64 frames that the adapter had ready (NAPI), after the interrupt that
//              announces them, which may wait (ethtool's rx-usecs and rx-frames). What one flow
//              sent in a row climbs the stack as one packet (GRO).
//   transmit   what a queue pair has to send, up to a chunk that the adapter or the driver cuts
//              into frames (TSO, GSO); a packet each where neither does.
//   socket     a system call of a stream's application: copies between its memory and the socket.
//              An application that slept is woken first.
//
// A connection's frames are received by one core (RSS), and its application runs on another one (or
// the same, where there is one only). Who makes a queue pair ready to send sends on its own core.
//
// Frames are the driver's; here they are handles.

#include <cstdint>
#include <deque>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "device/adapter.h"

namespace tulle::device {

struct HostStackSettings {
  std::uint32_t cores = 0;        // 0: there is no such stack
  bool application_apart = true;  // its core is the next one; else the core that receives
  // Of an application's call, its entry and exit, and how much one moves.
  Time system_call;
  std::uint32_t call_bytes = 131'072;
  // Of payload between application and kernel. More than any: copies cost nothing.
  std::int64_t copy_bits_per_second = 1'000'000'000'000'000;
  // Down the stack: TCP, IP, queueing discipline and driver, of a chunk; and of each frame, where
  // the kernel cuts the chunk (GSO) and the adapter does not (TSO).
  Time transmit;
  Time transmit_frame;
  std::uint32_t chunk_bytes = 65'536;  // 0: each frame is a chunk
  // Up: the interrupt and the soft interrupt's beginning; the driver's part of each frame; IP, TCP
  // and the socket of a packet, which several frames of one flow are with `merges`; and of an
  // acknowledgement.
  Time interrupt;
  Time receive_frame;
  Time receive;
  Time acknowledgement;
  bool merges = true;
  // An interrupt waits so long, or for so many frames (0: not for frames).
  Time interrupt_delay;
  std::uint32_t interrupt_frames = 0;
  Time wake_up;  // of a sleeping application: the scheduler's work
  // A core that had nothing to do for `idle_after` begins a job so much later, which costs no time
  // of it: it has to leave its idle state (the processor's C-states).
  Time idle_exit;
  Time idle_after;
  std::uint32_t receive_ring_frames = 1'024;     // of each core's queue
  std::uint32_t transmit_queue_bytes = 1 << 20;  // that wait for the link, then senders wait
};

class HostStack {
 public:
  using FrameHandle = std::uint32_t;
  static constexpr FrameHandle no_frame = 0xFFFF'FFFF;

  // What the driver does for it.
  class Driver {
   public:
    virtual ~Driver() = default;
    // Hands the frame's packet to the adapter; the handle is not used again.
    virtual void deliver(FrameHandle frame) = 0;
    // A frame for what the adapter has just given out.
    virtual FrameHandle keep(const Datagram& datagram) = 0;
  };

  struct Counters {
    Time busy_kernel;       // all cores together
    Time busy_application;  // with system calls and copies
    Time busy_most;         // of the busiest core
    std::uint64_t interrupts = 0;
    std::uint64_t receive_ring_drops = 0;
  };

  HostStack(const HostStackSettings& settings, Adapter& adapter, Driver& driver);

  // A frame has come to the adapter; `flow` as flow_of() has it. False:
  // there is no room, and it is lost.
  [[nodiscard]] bool arrive(Time now, FrameHandle frame, std::uint32_t flow,
                            std::uint32_t payload_bytes);
  // The application has called, or a timer of the adapter ran out.
  void attend(Time now);
  // What is due.
  void run(Time now);
  Time next_deadline() const;
  // The next frame for the link, in turn.
  bool has_frame() const { return !outgoing_.empty(); }
  FrameHandle front() const { return outgoing_.front().frame; }
  FrameHandle pull(Time now);
  // What cores are chosen by: the local end of a connection, of which frames may name no more than
  // TCP's port.
  static std::uint32_t flow_of(QpNumber local) {
    return (local.value & 0xFFFF) * 0x9E37'79B9u >> 8;
  }

  Counters counters() const;

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
    QpNumber qp;
    bool asleep = false;  // socket
    std::uint64_t called_bytes = 0;
  };
  struct Core {
    std::deque<Job> kernel;
    std::deque<Job> application;
    bool busy = false;
    bool of_application = false;
    Job job;
    Time free_at = Time::never();
    Time idle_since = Time::seconds(-1);
    Time busy_time;
    // NAPI of its receive queue.
    std::deque<Received> ring;
    bool polling = false;
    Time interrupt_at = Time::never();
    std::uint32_t polled_in_row = 0;
    bool interrupted = false;  // the next receive job pays for it
    // Of the job under way.
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
  std::deque<Outgoing> outgoing_;
  std::uint64_t outgoing_bytes_ = 0;
  std::deque<QpNumber> held_back_;  // senders that wait for the link's queue
  Datagram datagram_;
  Counters counters_;
};

}  // namespace tulle::device
