#pragma once

// A queue pair's iWARP engine on a TCP connection of the adapter's own. Each FPDU is a record and
// gets a separate segment each time it is sent (RFC 5044 5, "MPA-aware TCP"). So a segment that
// comes early can be kept as a whole, and neither end ever searches for the beginning of an FPDU.
//
// The connection exists from the beginning, like those of all queue pairs here: what MPA's start
// frames would have agreed upon (mpa_setup.h) is given. It ends with a TERMINATE. It ends with a
// reset if this side has ended the queue pair, since memory that would have to be sent again no
// longer belongs to it.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"
#include "rdma/optional/iwarp/protocol.h"
#include "rdma/optional/tcp/connection.h"
#include "rdma/transport/packet_io.h"

namespace tulle::transport::iwarp {

class Connection {
 public:
  explicit Connection(QueuePair& qp);

  Protocol& protocol() { return protocol_; }
  const Protocol& protocol() const { return protocol_; }
  const tcp::Connection& connection() const { return tcp_; }

  void handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                      bool congestion_experienced);
  bool pull_packet(Time now, QueuePair& qp, OutgoingPacket& out);
  bool has_work(const QueuePair& qp) const;
  // The application has ended the queue pair, so the peer's must end too.
  void abort() {
    if (!aborted_ && !protocol_.terminated()) aborted_ = reset_due_ = true;
  }
  bool drained() const { return protocol_.drained(); }
  bool release_receive(std::uint64_t& wr_id) { return protocol_.release_receive(wr_id); }
  bool has_answers() const { return reset_due_ || protocol_.has_answers(); }
  Time next_deadline(const QueuePair& qp) const;
  void handle_deadline(Time now, QueuePair& qp);
  void rebase(Time by) { tcp_.rebase(by); }

 private:
  // A segment that came ahead of a missing one. `memory` holds what is not a ghost.
  struct Early {
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    std::uint32_t ghost_bytes = 0;  // ghosts among them, at the end
    std::unique_ptr<std::byte[]> memory;
  };

  bool lives(const QueuePair& qp) const;
  void feed(QueuePair& qp);
  bool fill(QueuePair& qp, OutgoingPacket& out);
  bool pull_reset(QueuePair& qp, OutgoingPacket& out);
  void address(const QueuePair& qp, OutgoingPacket& out) const;
  bool asks(const QueuePair& qp, const wire::Tcp& header) const;
  void take_in(QueuePair& qp, const tcp::Arrival& arrival, Payload payload);
  void keep(const tcp::Arrival& arrival, Payload payload);
  void deliver(QueuePair& qp, StreamPart part);

  tcp::Connection tcp_;
  Protocol protocol_;
  tcp::Segment segment_;
  FilledRecord filled_;
  std::uint64_t delivered_ = 0;                       // bytes of the peer's stream
  std::vector<Early> early_;                          // in the order of offsets
  std::vector<std::unique_ptr<std::byte[]>> memory_;  // free, for further early segments
  bool aborted_ = false;
  bool reset_due_ = false;
};

}  // namespace tulle::transport::iwarp
