#pragma once

// The packets that one adapter receives from another. It records which of the numbered packets have
// come, and holds the messages that have arrived in part.

#include <array>
#include <cstdint>

#include "base/time.h"
#include "rdma/optional/srd/flight.h"
#include "rdma/optional/srd/peer_key.h"
#include "rdma/transport/packet_io.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/types.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::srd {

class Peers;

// A message of several packets that has not arrived completely.
struct Partial {
  QueuePair* qp = nullptr;
  std::uint32_t number = 0;
  std::uint32_t next = ~0u;
  std::uint32_t length = 0;
  std::uint64_t arrived_bytes = 0;
  std::uint32_t immediate = 0;
  bool is_write = false;
  bool has_immediate = false;
  bool solicited = false;
  bool holds_receive = false;
  QpNumber source;
  verbs::Receive receive;
};
inline constexpr std::uint32_t no_partial = ~0u;

// An answer that must be sent.
struct Answer {
  std::uint32_t inbound = 0;
  Sequence sequence = 0;
  Time came_at = Time::zero();
  QpNumber source;  // source of the packet, to which the answer goes
  Pkey pkey;
  std::uint8_t path = 0;
  wire::Syndrome syndrome;
};

class Inbound {
 public:
  Inbound(Peers& peers, std::uint32_t index, const PeerKey& key)
      : key(key), peers_(peers), index_(index) {}

  const PeerKey key;
  Inbound* next_same_hash = nullptr;

  void handle_packet(Time now, QueuePair* qp, const wire::Packet& packet, Payload payload,
                     const wire::Path& path);
  void fill(Time now, const Answer& answer, OutgoingPacket& out);
  // Drops the partial messages of a queue pair that is being destroyed or has failed.
  void forget(const QueuePair& qp);
  // Ends this generation of numbers if its sender has been silent for so long that it has given up
  // or is gone, and messages of it have arrived in part. Returns true if it ended: the receive
  // requests that those messages held are back in their queues.
  bool end_if_silent(Time now);
  void rebase(Time by) { tulle::rebase(by, heard_at_); }

 private:
  // The outcome of the checks of a new packet.
  enum class Verdict : std::uint8_t {
    accepted,
    ignored,  // not answered, so that the sender tries again
    not_ready,
    bad_destination,
    bad_request,
    bad_access,
    failed,  // the receiver itself is at fault
  };
  static wire::Syndrome syndrome_of(Verdict verdict);

  void begin(Time now, std::uint32_t generation, const wire::Path& path);
  Verdict accept(QueuePair* qp, const wire::Packet& packet, Payload payload);
  Verdict accept_send(QueuePair& qp, const wire::Packet& packet, Payload payload);
  Verdict accept_segment(QueuePair& qp, const wire::Packet& packet, Payload payload);
  Verdict accept_write(QueuePair& qp, const wire::Packet& packet, Payload payload);
  Verdict accept_immediate(QueuePair& qp, const wire::Packet& packet);
  static Verdict check_receive(QueuePair& qp, std::uint64_t bytes);
  Partial* find(std::uint32_t number);
  Partial& begin_partial(QueuePair& qp, const wire::Packet& packet);
  void complete_if_there(Partial& partial);
  void drop(std::uint32_t number);
  void drop_partials();
  void remove(std::uint32_t* at);
  bool has(Sequence sequence) const;
  std::uint64_t last_64(Sequence until) const;
  void mark(Sequence sequence);

  Peers& peers_;
  std::uint32_t index_;
  std::uint32_t generation_ = 0;  // generation of the sender's numbers; 0: no packet has come
  Sequence next_ = 0;             // the first missing number
  bool is_over_ = false;          // the generation has ended, and packets of it are dropped
  Time heard_at_ = Time::zero();
  std::uint32_t first_partial_ = no_partial;
  std::uint32_t partials_ = 0;
  verbs::AddressVector to_;                                // address of the answers
  std::array<std::uint64_t, window_packets / 64> came_{};  // a bit for each number from next_ on
};

}  // namespace tulle::transport::srd
