#pragma once

// The interface between a queue pair and its transport.
//
// A QueuePair (queue_pair.h) keeps what every transport has: the ladder of states, the attributes,
// the two work queues and the completions. Its Engine keeps the protocol: what a request becomes on
// the wire, and what an arriving packet does. Each transport implements one Engine in a separate
// folder and describes itself in a Transport row (transport.h).
//
// An engine has no input or output. The queue pair hands it packets and deadlines, and pulls
// packets from it. Each of these calls returns the queue pair's Agenda, so that the adapter asks a
// queue pair once for each packet.

#include <cstdint>

#include "base/time.h"
#include "rdma/transport/packet_io.h"
#include "rdma/verbs/types.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"
#include "rdma/wire/tcp.h"

namespace tulle::transport {

class QueuePair;

// An agenda says what a queue pair wants from its adapter after a call.
struct Agenda {
  bool packet = false;   // pull only: the call filled in a packet
  bool answers = false;  // an answer is due, which must not wait behind other queue pairs' requests
  bool work = false;     // a pull may find a packet; false: not until something else happens
  Time deadline = Time::never();  // when handle_deadline is due
};

class Engine {
 public:
  Engine() = default;
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- the ladder of states (IBTA 10.3.1) ---

  // The queue pair has gone from INIT to RTR, and from RTR to RTS.
  virtual void start_receiving(QueuePair&) {}
  virtual void start_sending(QueuePair&) {}
  // The queue pair has entered RTS from any state: requests may have been posted meanwhile.
  virtual void resume_sending(QueuePair&) {}
  // Returns true if every request that has started is done (IBTA 10.3.1.5, SQD).
  virtual bool drained(const QueuePair&) const { return true; }
  // The queue pair has failed or is about to be destroyed. The engine stops sending requests; the
  // queue pair flushes them.
  virtual void stop_sending(QueuePair&) {}
  // The application moved the queue pair to ERROR: answers that wait are dropped too.
  virtual void abort(QueuePair&) {}
  // The queue pair returns to RESET; the work queues still hold their requests.
  virtual void reset(QueuePair&) = 0;

  // --- work ---

  // Checks what only this transport asks of a request. The queue pair has checked that the
  // transport offers the operation, and its address handle.
  virtual verbs::VerbsStatus check(const QueuePair&, const verbs::SendRequest&) const {
    return verbs::VerbsStatus::ok;
  }
  // A request was added to the end of the send queue, or to the receive queue.
  virtual void send_posted(QueuePair&) {}
  virtual void receive_posted(QueuePair&, const verbs::ReceiveRequest&) {}
  // Gives back a receive request that was taken for a message which will not complete, so that the
  // queue pair can flush it. Returns false if the engine holds none.
  virtual bool release_receive(QueuePair&, std::uint64_t& /*wr_id*/) { return false; }

  // --- packets and time ---

  // A packet with IBTA's headers came. The engine drops a packet of another transport.
  virtual Agenda handle_packet(Time now, QueuePair&, const wire::Packet&, Payload,
                               const wire::Path&);
  // Finds where handle_packet() would write the payload of this packet, and the bytes that follow
  // it in its message, if the packet came now: as many of them as have a place, `bytes` at most.
  // Returns false if the packet is not the next of a message, or if the engine does not tell.
  virtual bool find_placement(const QueuePair&, const wire::Packet&, const wire::Path&,
                              std::uint32_t /*bytes*/, Placement&) const {
    return false;
  }
  // A TCP segment came, for transports over TCP.
  virtual Agenda handle_segment(Time now, QueuePair&, const wire::Tcp&, Payload, const wire::Path&);
  // Fills in the next packet to send, if there is one: Agenda::packet tells.
  virtual Agenda pull(Time now, QueuePair&, OutgoingPacket&) = 0;
  virtual void handle_deadline(Time /*now*/, QueuePair&) {}
  virtual Agenda agenda(const QueuePair&) const = 0;
  // The clock's zero has moved (base/time.h): an engine that keeps points in time rebases them.
  virtual void rebase(Time /*by*/) {}

  // --- congestion marks (IBTA annex A10) ---

  // A switch marked this packet (FECN). Returns true if the sender must be notified by a separate
  // packet, false if the engine's next packet notifies it.
  virtual bool handle_mark(const wire::Packet&, const wire::Path&) { return true; }
  // Completes the address of that notification; the queue pair has set its connected peer's.
  virtual void address_notification(OutgoingPacket&) const {}

 protected:
  // Counts a packet that the queue pair cannot use, and returns the agenda.
  Agenda drop(const QueuePair&) const;
  // Returns the agenda of a pull that filled in a packet, or found none.
  Agenda pulled(const QueuePair& qp, bool packet) const {
    Agenda agenda = this->agenda(qp);
    agenda.packet = packet;
    return agenda;
  }
};

}  // namespace tulle::transport
