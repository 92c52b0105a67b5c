#pragma once

// A queue pair that is a TCP socket. It has the functions of a kernel's socket and the interface of
// a queue pair, so that code that plays traffic on queue pairs can play it over TCP. It is not one
// of IBTA's transports, and verbs programs cannot use it.
//
// A SEND is a write to the socket. It completes when the peer has acknowledged its last byte. (A
// write returns when the socket has taken the bytes, which would say nothing about their arrival.)
// A receive request is a read that waits for all of its bytes (MSG_WAITALL): it completes when they
// have come in order. Messages have no bounds in the stream.
//
// The socket's two buffers are between the application's requests and the connection. `write` fills
// one and `read` empties the other. This happens at once, unless the driver accounts for its cost
// (Environment::sockets_wait).

#include <cstdint>
#include <memory>
#include <utility>

#include "rdma/optional/tcp/connection.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/transport.h"
#include "rdma/verbs/receive_queue.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::tcp {

// Returns the ports of a connection between two queue pairs, and its first sequence numbers. They
// are not negotiated: both ends derive them from the queue pair numbers.
Endpoints endpoints_of(QpNumber local, QpNumber peer);
StreamPorts ports_of(QpNumber local, QpNumber peer);  // of both rows of streams

class Stream {
 public:
  explicit Stream(QueuePair& qp);

  void handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                      bool congestion_experienced);
  bool pull_packet(Time now, QueuePair& qp, OutgoingPacket& out);
  // An acknowledgement waits its turn like data.
  static constexpr bool has_answers() { return false; }
  bool has_work(const QueuePair& qp) const;
  Time next_deadline(const QueuePair& qp) const;
  void handle_deadline(Time now, QueuePair& qp);
  void rebase(Time by) { connection_.rebase(by); }
  // A SEND was posted; it is the last request in the send queue.
  void posted(QueuePair& qp);
  // A receive request for `bytes` was posted.
  void posted_receive(QueuePair& qp, std::uint64_t bytes);

  // writable() returns the number of bytes that the application wants to write and the socket has
  // room for. write() moves them.
  std::uint64_t writable() const;
  void write(std::uint64_t bytes);
  // readable() returns the number of bytes that have come in order and that a read waits for.
  // read() moves them.
  std::uint64_t readable() const;
  void read(QueuePair& qp, std::uint64_t bytes);
  bool drained() const { return connection_.acknowledged() == posted_; }

  const Connection& connection() const { return connection_; }
  // Gives back the receive request that has been begun.
  bool release_receive(std::uint64_t& wr_id) {
    wr_id = receive_.wr_id;
    return std::exchange(holds_receive_, false);
  }

  bool listed = false;  // the socket is among the environment's waiting sockets

 private:
  void move(QueuePair& qp, bool asleep);
  void complete_sends(QueuePair& qp);
  void take_receives(QueuePair& qp);
  bool fill_payload(QueuePair& qp, const Segment& segment, OutgoingPacket& out);
  void store(const Arrival& arrival, Payload payload);
  bool place(QueuePair& qp, std::uint32_t bytes);
  void fail(QueuePair& qp, verbs::CompletionStatus status);

  Connection connection_;
  Offset posted_ = 0;  // end of the bytes of all SENDs posted
  Offset read_ = 0;
  std::uint64_t wanted_ = 0;  // bytes of posted receive requests that are not filled
  verbs::Receive receive_;
  bool holds_receive_ = false;
  std::uint64_t receive_filled_ = 0;
  Segment segment_;
  // The socket's memory, allocated when there are bytes to hold: received bytes, each at its offset
  // modulo the buffer's length, and the segment to send.
  std::unique_ptr<std::byte[]> received_;
  std::unique_ptr<std::byte[]> sending_;
};

}  // namespace tulle::transport::tcp
