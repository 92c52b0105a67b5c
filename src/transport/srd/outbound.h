#pragma once

// What one adapter sends to another: the messages of all its queue pairs to that peer, cut into
// packets that are numbered together, sprayed over paths, answered one by one and sent again where
// no answer comes.

#include <cstdint>

#include "base/time.h"
#include "transport/packet_io.h"
#include "transport/srd/flight.h"
#include "transport/srd/message.h"
#include "transport/srd/paths.h"
#include "transport/srd/peer_key.h"
#include "transport/srd/rate_control.h"
#include "verbs/types.h"
#include "wire/packet.h"

namespace tulle::transport::srd {

class Peers;

class Outbound {
 public:
  Outbound(Peers& peers, const PeerKey& key, const verbs::AddressVector& to);

  const PeerKey key;

  void add(MessageRef message);
  // Whether it may have something to send, if it may send.
  bool has_work() { return line_first_ != no_message || flight_.has_lost(); }
  // False: not now.
  bool pull(Time now, OutgoingPacket& out);
  void handle_acknowledgement(Time now, const wire::Packet& packet);
  Time next_deadline() const;
  void handle_deadline(Time now);
  // The message completes so; what is in flight of it is not sent again.
  void fail(MessageRef message, verbs::CompletionStatus status);
  // Its queue pair has gone, or has failed: it does not complete.
  void forget(MessageRef message);

  Flight& flight() { return flight_; }
  const RateControl& rate() const { return rate_; }
  const Paths& paths() const { return paths_; }
  Context context() const { return {generation_, key.service_level}; }

  // For the carrier's lists and timers.
  Outbound* next_active = nullptr;
  Outbound* next_same_hash = nullptr;
  bool is_active = false;
  Time timer_armed_at = Time::never();

 private:
  bool pull_again(Time now, OutgoingPacket& out);
  bool pull_new(Time now, OutgoingPacket& out);
  MessageRef next_in_line();
  void leave_line();
  bool fill(MessageRef ref, std::uint32_t segment, OutgoingPacket& out);
  bool fill_send(const Message& message, std::uint32_t segment, OutgoingPacket& out) const;
  bool fill_write(const Message& message, std::uint32_t segment, OutgoingPacket& out) const;
  void fill_skip(const Message& message, OutgoingPacket& out) const;
  void send(Time now, Sequence sequence, std::uint8_t path, OutgoingPacket& out);
  void answered(Time now, Sequence sequence, Time round_trip);
  void refused(Time now, Sequence sequence, wire::Syndrome syndrome);
  void progress(MessageRef message);
  void release_or_end(MessageRef message);
  void give_up_on_late(Time now);
  void lose(Time now, Sequence sequence);
  void fail_all();
  Time timeout() const;
  Time silence() const;
  bool is_outlived(Sequence sequence) const;

  Peers& peers_;
  Flight flight_;
  Paths paths_;
  RateControl rate_;
  verbs::AddressVector to_;  // of the packet that was pulled last
  MessageRef line_first_ = no_message, line_last_ = no_message;
  std::uint32_t generation_ = 0;         // 0: nothing has been sent
  std::uint32_t numbers_ = 0;            // of messages that are put together
  Time heard_at_ = Time::zero();         // or began to listen
  Time latest_answered_ = Time::zero();  // when the latest of those that were answered was sent
  Time waits_end_ = Time::never();
  unsigned silences_ = 0;              // in a row
  std::uint32_t frame_bytes_ = 4'096;  // of the last packet
};

}  // namespace tulle::transport::srd
