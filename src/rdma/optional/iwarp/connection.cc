#include "rdma/optional/iwarp/connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma/optional/tcp/stream.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::iwarp {

namespace {

Agreed agreed_by(const QueuePair& qp) {
  return {qp.environment.tcp->mss_bytes, qp.environment.iwarp_crc};
}

// Returns `bytes` bytes of a payload, from `skip` on.
StreamPart part_of(Payload payload, std::uint32_t skip, std::uint32_t bytes) {
  const std::uint32_t ghosts = payload.data == nullptr ? payload.bytes : payload.ghost_bytes;
  const std::uint32_t there = payload.bytes - ghosts;
  const std::uint32_t from = std::min(skip, there);
  const std::uint32_t until = std::min(skip + bytes, there);
  StreamPart part;
  if (until > from) part.bytes = {payload.data + from, until - from};
  part.ghost_bytes = bytes - (until - from);
  return part;
}

}  // namespace

Connection::Connection(QueuePair& qp)
    : tcp_(tcp::Connection::Kind::records, *qp.environment.tcp,
           tcp::endpoints_of(qp.number, qp.attributes().destination_qp), qp.environment.counters) {
  protocol_.start(qp, agreed_by(qp));
}

// Returns true if the connection is in use. A queue pair in error still tells its peer why.
bool Connection::lives(const QueuePair& qp) const {
  return !aborted_ && (qp.receives() || protocol_.is_terminating());
}

bool Connection::has_work(const QueuePair& qp) const {
  if (reset_due_) return true;
  if (!lives(qp)) return false;
  const bool takes_more = tcp_.appended() == tcp_.sent();
  return tcp_.has_work() || (takes_more && protocol_.has_more(qp));
}

Time Connection::next_deadline(const QueuePair& qp) const {
  return lives(qp) ? tcp_.next_deadline() : Time::never();
}

void Connection::handle_deadline(Time now, QueuePair& qp) {
  if (!lives(qp)) return;
  tcp_.handle_deadline(now);
  if (!tcp_.failed()) return;
  aborted_ = reset_due_ = true;  // in case the reset reaches the peer after all
  protocol_.connection_lost(qp);
}

// --- sending ---

// At most one record waits to be sent. Its successor is chosen when it has been sent.
void Connection::feed(QueuePair& qp) {
  if (tcp_.appended() != tcp_.sent() || !protocol_.has_more(qp)) return;
  Record record;
  if (!protocol_.next_record(qp, record)) return;
  TULLE_CHECK(tcp_.append_record(record.bytes, record.number));
}

bool Connection::pull_packet(Time now, QueuePair& qp, OutgoingPacket& out) {
  if (reset_due_) [[unlikely]]
    return pull_reset(qp, out);
  if (!lives(qp)) return false;
  feed(qp);
  if (!lives(qp) || !tcp_.pull_segment(now, segment_)) return false;
  tcp_.expect(now, protocol_.awaits_answers());
  if (!fill(qp, out)) {
    aborted_ = reset_due_ = true;
    protocol_.connection_lost(qp);
    return pull_reset(qp, out);
  }
  out.tcp = segment_.header;
  out.ecn_capable = segment_.ecn_capable;
  address(qp, out);
  return true;
}

// Fills in the payload. Returns false if the memory of the record is gone.
bool Connection::fill(QueuePair& qp, OutgoingPacket& out) {
  out.clear_payload();
  out.payload_bytes = segment_.bytes;
  if (segment_.bytes == 0) return true;
  if (!protocol_.fill(qp, segment_.tag, filled_)) return false;
  out.piece_count = filled_.piece_count;
  std::copy_n(filled_.pieces.begin(), filled_.piece_count, out.pieces.begin());
  out.ghost_bytes = filled_.ghost_bytes;
  return true;
}

// RFC 9293 3.5.2: a connection that no longer exists answers with a reset.
bool Connection::pull_reset(QueuePair& qp, OutgoingPacket& out) {
  reset_due_ = false;
  const auto ends = tcp::endpoints_of(qp.number, qp.attributes().destination_qp);
  out.clear_payload();
  out.tcp = {};
  out.tcp.source_port = ends.local_port;
  out.tcp.destination_port = ends.peer_port;
  out.tcp.sequence = ends.local_first + static_cast<std::uint32_t>(tcp_.sent());
  out.tcp.acknowledgement = ends.peer_first + static_cast<std::uint32_t>(tcp_.in_order());
  out.tcp.rst = out.tcp.ack = true;
  out.ecn_capable = false;
  address(qp, out);
  return true;
}

void Connection::address(const QueuePair& qp, OutgoingPacket& out) const {
  out.headers = OutgoingPacket::Headers::tcp;
  out.to = &qp.attributes().address;
  out.packet.destination_qp = qp.attributes().destination_qp;
}

// --- receiving ---

void Connection::handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                                bool congestion_experienced) {
  if (header.rst) [[unlikely]] {
    if (aborted_) return;
    aborted_ = true;
    return protocol_.connection_lost(qp);
  }
  if (!lives(qp)) {
    // The queue pair has ended. The reset keeps the peer from continuing, and from waiting if it
    // asks.
    if (payload.bytes > 0 || asks(qp, header)) aborted_ = reset_due_ = true;
    return;
  }
  // Data behind an error is neither taken nor acknowledged, so that its sender does not consider it
  // done.
  const std::uint32_t bytes = protocol_.is_terminating() ? 0 : payload.bytes;
  const tcp::Arrival arrival = tcp_.handle_segment(now, header, bytes, congestion_experienced);
  // A TERMINATE is handled before the acknowledgement that came with it, so that it finds the
  // request that it is about.
  protocol_.begin_taking();
  if (arrival.bytes > 0) take_in(qp, arrival, payload);
  protocol_.acknowledged(qp, tcp_.acknowledged());
  protocol_.end_taking(qp);
  tcp_.expect(now, protocol_.awaits_answers());
  // The peer's TERMINATE has come. A reset closes the connection as well as two FINs would.
  if (!lives(qp)) aborted_ = reset_due_ = true;
}

// RFC 9293 3.8.4: a segment of bytes that have already come asks whether this end is there.
bool Connection::asks(const QueuePair& qp, const wire::Tcp& header) const {
  const auto ends = tcp::endpoints_of(qp.number, qp.attributes().destination_qp);
  const auto expected = ends.peer_first + static_cast<std::uint32_t>(tcp_.in_order());
  return header.sequence.distance_from(expected) < 0;
}

void Connection::take_in(QueuePair& qp, const tcp::Arrival& arrival, Payload payload) {
  if (arrival.offset != delivered_) return keep(arrival, payload);
  deliver(qp, part_of(payload, arrival.skip, arrival.bytes));
  std::size_t used = 0;
  for (; used < early_.size() && early_[used].offset <= delivered_; ++used) {
    Early& early = early_[used];
    const auto known = static_cast<std::uint32_t>(delivered_ - early.offset);
    if (known < early.bytes) {
      const Payload kept{early.memory.get(), early.bytes, early.ghost_bytes};
      deliver(qp, part_of(kept, known, early.bytes - known));
    }
    memory_.push_back(std::move(early.memory));
  }
  early_.erase(early_.begin(), early_.begin() + static_cast<std::ptrdiff_t>(used));
  tcp_.consumed(delivered_);
}

// Keeps a segment that came early. RFC 5041 5.3 would let its data be placed at once. Here the
// order is kept instead, as on a stream that comes from a socket. A segment that was cut short for
// lack of room comes again as a whole.
void Connection::keep(const tcp::Arrival& arrival, Payload payload) {
  const auto earlier = [](const Early& early, std::uint64_t at) { return early.offset < at; };
  auto place = std::lower_bound(early_.begin(), early_.end(), arrival.offset, earlier);
  const bool is_there = place != early_.end() && place->offset == arrival.offset;
  if (is_there && place->bytes >= arrival.bytes) return;
  if (!is_there) {
    place = early_.insert(place, Early{});
    place->offset = arrival.offset;
    if (memory_.empty()) {
      place->memory = std::make_unique<std::byte[]>(tcp_.settings().mss_bytes);
    } else {
      place->memory = std::move(memory_.back());
      memory_.pop_back();
    }
  }
  const StreamPart part = part_of(payload, arrival.skip, arrival.bytes);
  place->bytes = arrival.bytes;
  place->ghost_bytes = part.ghost_bytes;
  if (!part.bytes.empty()) {
    std::memcpy(place->memory.get(), part.bytes.data(), part.bytes.size());
  }
}

void Connection::deliver(QueuePair& qp, StreamPart part) {
  delivered_ += part.size();
  protocol_.receive(qp, part);
}

}  // namespace tulle::transport::iwarp
