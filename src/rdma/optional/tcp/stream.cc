#include "rdma/optional/tcp/stream.h"

#include <algorithm>
#include <cstring>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::tcp {

using verbs::CompletionStatus;
using verbs::QpState;

namespace {

// SplitMix64's last step (Steele, Lea and Flood 2014).
std::uint32_t mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9;
  x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EB;
  return static_cast<std::uint32_t>(x ^ x >> 31);
}

wire::TcpSequence first_of(QpNumber from, QpNumber to) {
  return wire::TcpSequence(mix(std::uint64_t{from.value} << 32 | to.value));
}

// The offset in the stream at which a SEND's bytes begin. It is kept in the operand of atomics.
std::uint64_t& place_of(SendWqe& wqe) { return wqe.compare_add; }
std::uint64_t place_of(const SendWqe& wqe) { return wqe.compare_add; }

}  // namespace

Endpoints endpoints_of(QpNumber local, QpNumber peer) {
  return {static_cast<std::uint16_t>(local.value), static_cast<std::uint16_t>(peer.value),
          first_of(local, peer), first_of(peer, local)};
}

StreamPorts ports_of(QpNumber local, QpNumber peer) {
  const Endpoints ends = endpoints_of(local, peer);
  return {ends.local_port, ends.peer_port};
}

Stream::Stream(QueuePair& qp)
    : connection_(Connection::Kind::bytes, *qp.environment.tcp,
                  endpoints_of(qp.number, qp.attributes().destination_qp),
                  qp.environment.counters) {}

// --- sending ---

void Stream::posted(QueuePair& qp) {
  SendWqe& wqe = qp.send_queue[qp.send_queue.size() - 1];
  place_of(wqe) = posted_;
  posted_ += wqe.length;
  complete_sends(qp);  // a SEND without bytes has nothing to wait for
  move(qp, false);
}

std::uint64_t Stream::writable() const {
  return std::min(posted_ - connection_.appended(), connection_.room());
}

void Stream::write(std::uint64_t bytes) {
  bytes = std::min(bytes, writable());
  connection_.append(bytes, connection_.appended() + bytes < posted_);
}

bool Stream::has_work(const QueuePair& qp) const { return qp.receives() && connection_.has_work(); }

Time Stream::next_deadline(const QueuePair& qp) const {
  return qp.state() == QpState::error ? Time::never() : connection_.next_deadline();
}

bool Stream::pull_packet(Time now, QueuePair& qp, OutgoingPacket& out) {
  if (!has_work(qp) || !connection_.pull_segment(now, segment_)) return false;
  out.headers = OutgoingPacket::Headers::tcp;
  out.tcp = segment_.header;
  out.ecn_capable = segment_.ecn_capable;
  out.to = &qp.attributes().address;
  out.packet.destination_qp = qp.attributes().destination_qp;
  if (fill_payload(qp, segment_, out)) return true;
  fail(qp, CompletionStatus::local_protection_error);
  return false;
}

// Fills in the payload from the SENDs that hold its bytes. Returns false on a local protection
// error.
bool Stream::fill_payload(QueuePair& qp, const Segment& segment, OutgoingPacket& out) {
  out.clear_payload();
  if (segment.bytes == 0) return true;
  const SendQueue& sends = qp.send_queue;
  std::uint32_t low = 0, high = sends.size();
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (place_of(sends[middle]) <= segment.offset ? low : high) = middle;
  }
  std::uint32_t filled = 0;
  for (std::uint32_t i = low; filled < segment.bytes; ++i) {
    TULLE_CHECK(i < sends.size());
    const SendWqe& wqe = sends[i];
    const std::uint64_t at = segment.offset + filled - place_of(wqe);
    if (at >= wqe.length) continue;
    const auto part = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(wqe.length - at, segment.bytes - filled));
    if (!gather(qp, wqe, static_cast<std::uint32_t>(at), part, out)) return false;
    if (out.piece_count > 0) {
      if (sending_ == nullptr) {
        sending_ = std::make_unique<std::byte[]>(connection_.settings().mss_bytes);
      }
      std::byte* to = sending_.get() + filled;
      for (const auto& piece : std::span(out.pieces).first(out.piece_count)) {
        to = std::copy(piece.begin(), piece.end(), to);
      }
    }
    filled += part;
  }
  const bool ghost = out.piece_count == 0;
  out.clear_payload();
  out.payload_bytes = segment.bytes;
  if (!ghost) out.pieces[out.piece_count++] = {sending_.get(), segment.bytes};
  return true;
}

void Stream::complete_sends(QueuePair& qp) {
  while (!qp.send_queue.empty()) {
    const SendWqe wqe = qp.send_queue.front();
    if (place_of(wqe) + wqe.length > connection_.acknowledged()) return;
    qp.send_queue.pop();
    qp.complete(wqe, CompletionStatus::success, wqe.length);
  }
  if (qp.state() == QpState::sqd) qp.sent_all();
}

// --- receiving ---

void Stream::handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                            bool congestion_experienced) {
  if (!qp.receives()) {
    ++qp.environment.counters.dropped_packets;
    return;
  }
  const Arrival arrival =
      connection_.handle_segment(now, header, payload.bytes, congestion_experienced);
  if (arrival.bytes > 0) store(arrival, payload);
  complete_sends(qp);
  move(qp, true);
}

void Stream::handle_deadline(Time now, QueuePair& qp) {
  connection_.handle_deadline(now);
  if (connection_.failed()) fail(qp, CompletionStatus::retry_exceeded_error);
}

void Stream::store(const Arrival& arrival, Payload payload) {
  if (payload.data == nullptr) return;
  const std::uint32_t room = connection_.receive_buffer_bytes();
  if (received_ == nullptr) received_ = std::make_unique<std::byte[]>(room);
  const auto at = static_cast<std::uint32_t>(arrival.offset % room);
  const std::uint32_t first = std::min(arrival.bytes, room - at);
  std::memcpy(received_.get() + at, payload.data + arrival.skip, first);
  std::memcpy(received_.get(), payload.data + arrival.skip + first, arrival.bytes - first);
}

void Stream::posted_receive(QueuePair& qp, std::uint64_t bytes) {
  wanted_ += bytes;
  if (wanted_ == 0) take_receives(qp);  // a request for no bytes, with none waiting before it
  move(qp, false);
}

std::uint64_t Stream::readable() const { return std::min(connection_.in_order() - read_, wanted_); }

void Stream::read(QueuePair& qp, std::uint64_t bytes) {
  bytes = std::min(bytes, readable());
  while (bytes > 0) {
    if (!holds_receive_) take_receives(qp);
    if (!holds_receive_) break;
    const auto part = static_cast<std::uint32_t>(
        std::min({bytes, receive_.length() - receive_filled_, std::uint64_t{1} << 30}));
    if (!place(qp, part)) return fail(qp, CompletionStatus::local_protection_error);
    bytes -= part;
    take_receives(qp);
  }
  connection_.consumed(read_);
}

// Moves on to the next receive request that needs bytes. Full requests complete.
void Stream::take_receives(QueuePair& qp) {
  for (;;) {
    if (!holds_receive_) {
      if (!qp.take_receive(receive_)) return;
      holds_receive_ = true;
      receive_filled_ = 0;
    }
    if (receive_filled_ < receive_.length()) return;
    holds_receive_ = false;
    verbs::Completion completion;
    completion.wr_id = receive_.wr_id;
    completion.opcode = verbs::CompletionOpcode::receive;
    completion.byte_length = static_cast<std::uint32_t>(receive_filled_);
    qp.complete_receive(completion);
  }
}

// Copies bytes out of the socket's memory. Bytes of a ghost are only counted.
bool Stream::place(QueuePair& qp, std::uint32_t bytes) {
  const std::uint32_t room = connection_.receive_buffer_bytes();
  for (std::uint32_t left = bytes; left > 0;) {
    const auto at = static_cast<std::uint32_t>(read_ % room);
    const std::uint32_t part = std::min(left, room - at);
    const std::byte* from = received_ == nullptr ? nullptr : received_.get() + at;
    if (!scatter(qp, receive_, receive_filled_, {from, part})) {
      return false;
    }
    read_ += part;
    receive_filled_ += part;
    wanted_ -= part;
    left -= part;
  }
  return true;
}

// Moves bytes between the application and the socket, at once or when the driver gets to it. A
// sleeping writer is woken when a third of the socket's memory is free (Linux's
// sk_stream_write_space).
void Stream::move(QueuePair& qp, bool asleep) {
  Environment& environment = qp.environment;
  if (!environment.sockets_wait) {
    write(writable());
    return read(qp, readable());
  }
  const std::uint64_t enough = asleep ? connection_.settings().send_buffer_bytes / 3 : 0;
  const bool anything = readable() > 0 || (writable() > 0 && connection_.room() >= enough);
  if (!anything || listed) return;
  listed = true;
  environment.waiting_sockets.push({qp.number, asleep});
}

void Stream::fail(QueuePair& qp, CompletionStatus status) {
  if (!qp.send_queue.empty()) {
    const SendWqe wqe = qp.send_queue.front();
    qp.send_queue.pop();
    qp.complete(wqe, status);
  }
  qp.enter_error();
}

}  // namespace tulle::transport::tcp
