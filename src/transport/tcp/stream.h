#pragma once

// A queue pair that is a TCP socket: what a kernel offers, in the clothes of a queue pair, so that
// what plays traffic on queue pairs can play it over TCP. Not one of IBTA's transports, and not
// offered to verbs programs.
//
// A SEND is a write to the socket. It completes when its last byte is acknowledged by the other end
// (a write returns when the socket has taken the bytes; that would say nothing of their arrival). A
// receive request is a read that waits for all of its bytes (MSG_WAITALL): it completes when they
// have come in order. Messages have no bounds in the stream.
//
// Between the application's requests and the connection stand the socket's two buffers, which
// `write` and `read` fill and empty. Where nobody accounts for what that costs
// (Environment::sockets_wait) it happens at once.

#include <cstdint>
#include <memory>

#include "transport/packet_io.h"
#include "transport/tcp/connection.h"
#include "verbs/receive_queue.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::tcp {

// The ports of a connection between two queue pairs, and its first sequence numbers, which nobody
// negotiates here: both ends derive them from the queue pairs' numbers.
Endpoints endpoints_of(QpNumber local, QpNumber peer);

class Stream {
 public:
  explicit Stream(QueuePair& qp);

  void handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                      bool congestion_experienced);
  bool pull_packet(Time now, QueuePair& qp, OutgoingPacket& out);
  bool has_work(const QueuePair& qp) const;
  Time next_deadline() const { return connection_.next_deadline(); }
  void handle_deadline(Time now, QueuePair& qp);
  // A SEND was posted, the last of the queue.
  void posted(QueuePair& qp);
  // A receive request was, for so many bytes.
  void posted_receive(QueuePair& qp, std::uint64_t bytes);

  // Bytes that the application wants to write and the socket has room for; and moves them.
  std::uint64_t writable() const;
  void write(std::uint64_t bytes);
  // Bytes that have come in order and that a read waits for; and reads them.
  std::uint64_t readable() const;
  void read(QueuePair& qp, std::uint64_t bytes);
  bool drained() const { return connection_.acknowledged() == posted_; }

  const Connection& connection() const { return connection_; }
  // A receive request that was begun; for flushing.
  bool holds_receive() const { return holds_receive_; }
  const verbs::Receive& receive() const { return receive_; }
  void forget_receive() { holds_receive_ = false; }

  bool listed = false;  // among the environment's sockets that wait

 private:
  void move(QueuePair& qp, bool asleep);
  void complete_sends(QueuePair& qp);
  void take_receives(QueuePair& qp);
  bool fill_payload(QueuePair& qp, const Segment& segment, OutgoingPacket& out);
  void store(const Arrival& arrival, Payload payload);
  bool place(QueuePair& qp, std::uint32_t bytes);
  void fail(QueuePair& qp, verbs::CompletionStatus status);

  Connection connection_;
  Offset posted_ = 0;  // end of what SENDs hold
  Offset read_ = 0;
  std::uint64_t wanted_ = 0;  // bytes of receive requests that were posted and are not filled
  verbs::Receive receive_;
  bool holds_receive_ = false;
  std::uint64_t receive_filled_ = 0;
  Segment segment_;
  // The socket's memory, if there are bytes to hold: what came, at its offset modulo the buffer's
  // length; and the segment to send.
  std::unique_ptr<std::byte[]> received_;
  std::unique_ptr<std::byte[]> sending_;
};

}  // namespace tulle::transport::tcp
