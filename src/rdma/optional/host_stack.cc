#include "rdma/optional/host_stack.h"

#include <algorithm>
#include <utility>

#include "base/prefetch.h"
#include "rdma/optional/tcp/engine.h"

namespace tulle::device {

namespace {

constexpr std::size_t budget_frames = 64;  // Linux's NAPI_POLL_WEIGHT
constexpr std::size_t prefetched_cores = 4;
constexpr std::uint32_t merged_bytes_max = 65'536;  // of a packet that GRO merges

}  // namespace

HostStack::HostStack(const HostStackSettings& settings, Adapter& adapter, Driver& driver)
    : settings_(settings), adapter_(adapter), driver_(driver), cores_(settings.cores) {
  adapter_.let_sockets_wait();
}

HostStack::Core& HostStack::application_core(std::uint32_t flow) {
  const std::uint32_t apart = settings_.application_apart ? 1 : 0;
  return cores_[(flow + apart) % cores_.size()];
}

Time HostStack::copying(std::uint64_t bytes) const {
  constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;  // at most 64 KiB are copied at once
  return Time{static_cast<std::int64_t>(bytes) * bits_ps_per_byte / settings_.copy_bits_per_second};
}

// --- frames and calls from outside ---

bool HostStack::arrive(Time now, FrameHandle frame, std::uint32_t flow,
                       std::uint32_t payload_bytes) {
  Core& core = receiving_core(flow);
  if (core.ring.size() >= settings_.receive_ring_frames) {
    ++counters_.receive_ring_drops;
    return false;
  }
  core.ring.push({frame, flow, payload_bytes});
  if (core.polling) return true;
  // ethtool's rx-usecs counts from the first frame, and rx-frames from the last interrupt.
  if (core.interrupt_at.is_never()) core.interrupt_at = now + settings_.interrupt_delay;
  const std::uint32_t enough = settings_.interrupt_frames;
  if (enough != 0 && core.ring.size() >= enough) core.interrupt_at = now;
  if (core.interrupt_at <= now) interrupt(now, core);
  return true;
}

void HostStack::interrupt(Time now, Core& core) {
  core.interrupt_at = Time::never();
  core.polling = true;
  core.interrupted = true;
  core.polled_in_row = 0;
  ++counters_.interrupts;
  core.kernel.push({.kind = Job::Kind::receive});
  begin_next(now, core);
}

void HostStack::attend(Time now) {
  take_sockets();
  take_ready(nullptr);
  for (Core& core : cores_) begin_next(now, core);
}

Time HostStack::next_deadline() const {
  Time next = Time::never();
  for (const Core& core : cores_) {
    next = std::min(next, core.interrupt_at);
    next = std::min(next, core.free_at);
  }
  return next;
}

void HostStack::run(Time now) {
  for (Core& core : cores_) {
    if (core.interrupt_at <= now) interrupt(now, core);
    if (core.busy && core.free_at <= now) finish(now, core);
    begin_next(now, core);
  }
  // The work of one core may have created jobs for another.
  for (Core& core : cores_) begin_next(now, core);
}

HostStack::FrameHandle HostStack::pull(Time now) {
  const Outgoing out = outgoing_.front();
  outgoing_.pop();
  outgoing_bytes_ -= out.bytes;
  if (!held_back_.empty() && outgoing_bytes_ <= settings_.transmit_queue_bytes / 2) {
    for (; !held_back_.empty(); held_back_.pop()) {
      transport::QueuePair* qp = adapter_.find_qp(held_back_.front());
      if (qp == nullptr) continue;
      receiving_core(flow_of(*qp)).kernel.push({.kind = Job::Kind::transmit, .qp = qp->number});
    }
    for (Core& core : cores_) begin_next(now, core);
  }
  return out.frame;
}

void HostStack::prefetch() const {
  constexpr std::size_t line_bytes = 64;
  const auto* begin = reinterpret_cast<const std::byte*>(cores_.data());
  const std::size_t bytes = std::min<std::size_t>(cores_.size(), prefetched_cores) * sizeof(Core);
  for (std::size_t at = 0; at < bytes; at += line_bytes) tulle::prefetch(begin + at);
}

HostStack::Counters HostStack::counters() const {
  Counters counters = counters_;
  for (const Core& core : cores_) counters.busy_most = std::max(counters.busy_most, core.busy_time);
  return counters;
}

// --- cores ---

void HostStack::begin_next(Time now, Core& core) {
  if (core.busy || !take_job(core)) return;
  const bool calls = core.job.kind == Job::Kind::socket && !core.job.asleep;
  const bool was_idle = !calls && now - core.idle_since >= settings_.idle_after;
  const Time cost = begin(now, core);
  core.busy = true;
  core.free_at = now + cost + (was_idle ? settings_.idle_exit : Time::zero());
  core.busy_time += cost;
  (core.of_application ? counters_.busy_application : counters_.busy_kernel) += cost;
}

// Soft interrupts come first. A core that has polled its budget lets a process have its turn, as
// ksoftirqd does.
bool HostStack::take_job(Core& core) {
  const bool yields = core.polled_in_row >= budget_frames && !core.application.empty();
  if (!core.kernel.empty() && !yields) {
    core.job = core.kernel.front();
    core.kernel.pop();
    core.of_application = false;
    return true;
  }
  if (core.application.empty()) return false;
  core.job = core.application.front();
  core.application.pop();
  core.of_application = true;
  core.polled_in_row = 0;
  return true;
}

Time HostStack::begin(Time now, Core& core) {
  switch (core.job.kind) {
    case Job::Kind::receive:
      return begin_receive(core);
    case Job::Kind::transmit:
      return begin_transmit(now, core);
    case Job::Kind::socket:
      break;
  }
  return begin_socket(core);
}

void HostStack::finish(Time now, Core& core) {
  core.busy = false;
  core.free_at = Time::never();
  core.idle_since = now;
  switch (core.job.kind) {
    case Job::Kind::receive:
      finish_receive(core);
      break;
    case Job::Kind::transmit:
      finish_transmit(core);
      break;
    case Job::Kind::socket:
      finish_socket(core);
      break;
  }
  take_sockets();
  take_ready(&core);
}

// --- receiving ---

// The frames of one flow in a batch climb the stack as one packet of up to 64 KiB, at which the
// batch ends.
Time HostStack::begin_receive(Core& core) {
  Time cost = std::exchange(core.interrupted, false) ? settings_.interrupt : Time::zero();
  std::uint32_t bytes = 0;
  const std::size_t most = settings_.merges ? budget_frames : 1;
  while (!core.ring.empty() && core.batch.size() < most && bytes < merged_bytes_max) {
    const Received received = core.ring.front();
    core.ring.pop();
    const bool joins = received.payload_bytes > 0 &&
                       std::any_of(core.batch.begin(), core.batch.end(), [&](const Received& each) {
                         return each.flow == received.flow && each.payload_bytes > 0;
                       });
    cost += settings_.receive_frame;
    if (received.payload_bytes == 0) {
      cost += settings_.acknowledgement;
    } else if (!joins) {
      cost += settings_.receive;
    }
    bytes += received.payload_bytes;
    core.batch.push_back(received);
  }
  core.polled_in_row += static_cast<std::uint32_t>(core.batch.size());
  return cost;
}

void HostStack::finish_receive(Core& core) {
  for (const Received& received : core.batch) driver_.deliver(received.frame);
  core.batch.clear();
  if (core.ring.empty()) {
    core.polling = false;
    return;
  }
  core.kernel.push({.kind = Job::Kind::receive});
}

// --- sending ---

void HostStack::take_ready(Core* core) {
  while (transport::QueuePair* qp = adapter_.take_ready()) {
    Core& on = core != nullptr ? *core : receiving_core(flow_of(*qp));
    on.kernel.push({.kind = Job::Kind::transmit, .qp = qp->number});
  }
}

Time HostStack::begin_transmit(Time now, Core& core) {
  core.cut.clear();
  transport::QueuePair* qp = adapter_.find_qp(core.job.qp);
  if (qp == nullptr) return Time::zero();
  if (outgoing_bytes_ >= settings_.transmit_queue_bytes) {
    held_back_.push(qp->number);
    return Time::zero();
  }
  const bool is_stream = transport::tcp::Engine::stream_of(*qp) != nullptr;
  const std::uint32_t chunk = is_stream ? settings_.chunk_bytes : 0;
  Time cost;
  std::uint32_t bytes = 0;
  while (adapter_.pull_datagram_of(now, *qp, datagram_)) {
    if (core.cut.empty()) cost += settings_.transmit;
    if (chunk != 0 && datagram_.payload_bytes > 0) cost += settings_.transmit_frame;
    // Data of sockets was copied when the application wrote it. Verbs in software copy when they
    // send.
    if (!is_stream) cost += copying(datagram_.payload_bytes);
    core.cut.push_back({driver_.keep(datagram_), datagram_.payload_bytes});
    bytes += datagram_.payload_bytes;
    if (bytes >= chunk || datagram_.payload_bytes == 0) break;
  }
  return cost;
}

void HostStack::finish_transmit(Core& core) {
  for (const Outgoing& out : core.cut) {
    outgoing_.push(out);
    outgoing_bytes_ += out.bytes;
  }
  const bool sent = !core.cut.empty();
  core.cut.clear();
  transport::QueuePair* qp = adapter_.find_qp(core.job.qp);
  if (qp == nullptr || !sent) return;
  adapter_.make_ready(*qp);  // the queue pair may have more to send in its next turn
}

// --- the application ---

void HostStack::take_sockets() {
  while (const auto waiting = adapter_.take_waiting_socket()) {
    const transport::QueuePair* qp = adapter_.find_qp(waiting->qp);
    if (qp == nullptr) continue;
    application_core(flow_of(*qp))
        .application.push(
            {.kind = Job::Kind::socket, .qp = waiting->qp, .asleep = waiting->asleep});
  }
}

Time HostStack::begin_socket(Core& core) {
  core.bytes = 0;
  transport::QueuePair* qp = adapter_.find_qp(core.job.qp);
  transport::tcp::Stream* stream = qp == nullptr ? nullptr : transport::tcp::Engine::stream_of(*qp);
  if (stream == nullptr) return Time::zero();
  // A call is done in parts, so that the stack below has something to do meanwhile.
  constexpr std::uint64_t part_max = 65'536;
  core.reads = stream->readable() > 0;
  core.bytes = std::min(core.reads ? stream->readable() : stream->writable(), part_max);
  Time cost = std::exchange(core.job.asleep, false) ? settings_.wake_up : Time::zero();
  if (core.job.called_bytes == 0) cost += settings_.system_call;
  core.job.called_bytes += core.bytes;
  if (core.job.called_bytes >= settings_.call_bytes) core.job.called_bytes = 0;
  return cost + copying(core.bytes);
}

void HostStack::finish_socket(Core& core) {
  transport::QueuePair* qp = adapter_.find_qp(core.job.qp);
  transport::tcp::Stream* stream = qp == nullptr ? nullptr : transport::tcp::Engine::stream_of(*qp);
  if (stream == nullptr) return;
  if (core.reads) {
    stream->read(*qp, core.bytes);
  } else {
    stream->write(core.bytes);
  }
  adapter_.make_ready(*qp);
  if (stream->readable() == 0 && stream->writable() == 0) {
    stream->listed = false;  // the application sleeps until there is more
    return;
  }
  core.application.push(core.job);
}

}  // namespace tulle::device
