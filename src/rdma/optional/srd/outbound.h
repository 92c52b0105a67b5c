#pragma once

// The packets that one adapter sends to another. The messages of all its queue pairs to that peer
// are cut into packets, which are numbered together and sprayed over paths. The peer answers each
// packet. A packet without an answer is sent again.

#include <cstdint>

#include "base/time.h"
#include "rdma/optional/srd/flight.h"
#include "rdma/optional/srd/message.h"
#include "rdma/optional/srd/paths.h"
#include "rdma/optional/srd/peer_key.h"
#include "rdma/optional/srd/rate_control.h"
#include "rdma/transport/packet_io.h"
#include "rdma/verbs/types.h"
#include "rdma/wire/packet.h"

namespace tulle::transport::srd {

class Peers;

class Outbound {
 public:
  Outbound(Peers& peers, const PeerKey& key, const verbs::AddressVector& to);

  const PeerKey key;

  void add(MessageRef message);
  // Returns true if there may be a packet to send, as soon as the rate and the window allow it.
  bool has_work() { return line_first_ != no_message || flight_.has_lost(); }
  // Returns false if no packet can be sent now.
  bool pull(Time now, OutgoingPacket& out);
  void handle_acknowledgement(Time now, const wire::Packet& packet);
  Time next_deadline() const;
  void handle_deadline(Time now);
  // Completes the message with this status. Its packets in flight are not sent again.
  void fail(MessageRef message, verbs::CompletionStatus status);
  // The queue pair of the message is gone or has failed, so the message does not complete.
  void forget(MessageRef message);

  Flight& flight() { return flight_; }
  const RateControl& rate() const { return rate_; }
  const Paths& paths() const { return paths_; }
  void rebase(Time by) {
    tulle::rebase(by, timer_armed_at, heard_at_, latest_answered_, waits_end_);
    flight_.rebase(by);
    paths_.rebase(by);
    rate_.rebase(by);
  }
  Context context() const { return {generation_, key.service_level}; }

  // The members below belong to the carrier's lists and timers.
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
  verbs::AddressVector to_;  // address of the packet that was pulled last
  MessageRef line_first_ = no_message, line_last_ = no_message;
  std::uint32_t generation_ = 0;         // 0: nothing has been sent
  std::uint32_t numbers_ = 0;            // numbers given to messages that need reassembly
  Time heard_at_ = Time::zero();         // time of the last answer, or when waiting for one began
  Time latest_answered_ = Time::zero();  // sending time of the latest packet that was answered
  Time waits_end_ = Time::never();
  unsigned silences_ = 0;              // silences in a row
  std::uint32_t frame_bytes_ = 4'096;  // length of the last packet's frame
};

}  // namespace tulle::transport::srd
