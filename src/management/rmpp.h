#pragma once

// Transactions of many packets (RMPP, IBTA 13.6): a datagram longer than 256 bytes goes in
// segments, which the receiver acknowledges. Both ends are state machines without input or output.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "management/packet.h"

namespace tulle::management {

// True if a program wants its datagram to be a transaction of many packets. The sender sets version
// and type.
bool asks_for_rmpp(Request mad);
// True if the datagram is a segment or an acknowledgement of such a transaction.
bool is_rmpp(Request mad);

bool is_first_segment(Request mad);

// A transaction of many packets that lasts longer than this ends, however it progresses: what it
// keeps is for others, too. The largest table takes seconds.
inline constexpr Time transaction_life_max = Time::seconds(120);

class RmppSender {
 public:
  static constexpr Time patience = Time::seconds(2);  // until a window is sent again
  static constexpr int tries_max = 4;
  // Segments that are sent without an acknowledgement, whatever the receiver says. Linux's window
  // has at most 1,024.
  static constexpr std::uint32_t window_max = 1'024;

  // `bytes` is the whole datagram: headers and data. The packet says where it goes.
  RmppSender(Time now, const Packet& packet, std::vector<std::byte> bytes);

  // Returns true if an acknowledgement, stop or abort belongs to this transaction.
  bool owns(const Packet& answer) const;
  // Returns true if the transaction goes to this LID and has this transaction ID.
  bool is_for(Lid destination, std::uint64_t transaction) const;
  Lid destination() const { return packet_.destination; }
  void receive(Time now, const Packet& answer);
  // Returns the next packet to send, if the window has one.
  std::optional<Packet> take_packet();
  bool is_over() const { return is_over_; }
  std::size_t bytes() const { return bytes_.size(); }
  Time deadline() const { return is_over_ ? Time::zero() : deadline_; }
  void expire(Time now);
  void rebase(Time by) { tulle::rebase(by, end_, deadline_); }

 private:
  Packet segment(std::uint32_t number) const;

  Packet packet_;
  std::vector<std::byte> bytes_;
  std::size_t data_offset_;
  std::uint32_t segments_;
  std::uint32_t next_ = 1;          // segment to send next
  std::uint32_t acknowledged_ = 0;  // all segments up to this one
  std::uint32_t window_end_ = 1;    // last segment that may be sent
  int tries_left_ = tries_max;
  Time end_;  // of its life
  Time deadline_;
  bool is_over_ = false;
};

class RmppReceiver {
 public:
  static constexpr std::uint32_t window = 64;
  static constexpr Time patience = Time::seconds(10);

  RmppReceiver(Time now, const Packet& first);

  bool owns(const Packet& packet) const;
  // Takes a segment. Returns the answer to send, if there is one. A datagram of more than
  // `bytes_max` is refused.
  std::optional<Packet> receive(Time now, const Packet& packet, std::size_t bytes_max);
  std::size_t bytes() const { return bytes_.size(); }
  // Returns the whole datagram once all segments have come. The transaction stays for a while,
  // since its last acknowledgement may be lost.
  bool take_whole(std::vector<std::byte>& bytes);
  void drop_bytes() { bytes_ = {}; }
  bool is_over(Time now) const { return now >= deadline_; }
  Time deadline() const { return deadline_; }
  void rebase(Time by) { tulle::rebase(by, end_, deadline_); }
  const Packet& first() const { return first_; }

 private:
  Packet acknowledgement() const;
  Packet abort(std::uint8_t status) const;

  Packet first_;
  std::vector<std::byte> bytes_;
  std::size_t data_offset_;
  std::uint32_t received_ = 0;  // segments, all in order
  std::uint32_t window_end_ = window;
  Time end_;  // of its life, until it is whole
  Time deadline_;
  bool is_whole_ = false;
  bool is_taken_ = false;
};

}  // namespace tulle::management
