#pragma once

// The message that a process sends to another one after each round (sim/processes.h): when its next
// round would be, and what has crossed from its parts to those of the other one.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/packed.h"
#include "sim/crossing.h"
#include "sim/processes.h"

namespace tulle::sim {

// A process says this to all others between two rounds.
struct RoundReport {
  std::uint64_t round = 0;  // number of the meeting, counted from 1
  // Start of the earliest round in which something is to happen there, also by what it has sent, in
  // ps.
  std::int64_t earliest_round = 0;
  // The earliest such event, if that round continues after the time until which all play, or the
  // round's start, which is no later. In ps.
  std::int64_t earliest_event = 0;
  std::uint64_t goes_on = 1;  // 0: its application does not continue
};

// A message on its way out. Long lists stay where they are until it is sent.
class OutgoingMessage {
 public:
  // Begins a message with the report, in place of what there was.
  void begin(const RoundReport& report);
  // Adds what has crossed from one part to one of the process that gets the message, if anything
  // has. The crossing must stay as it is until the message has been sent.
  void add(std::uint32_t part, const Crossing& crossing);
  // Returns the bytes of the message, in at most Processes::pieces_max pieces. They are valid until
  // something is added, or a crossing changes.
  Pieces pieces() const;

 private:
  struct Lent {
    std::size_t before = 0;  // bytes of copied_ that come first
    std::span<const std::byte> bytes;
  };
  void add_list(std::span<const std::byte> bytes);

  Bytes copied_;
  std::vector<Lent> lent_;
};

// A part's share of a message.
struct Share {
  std::uint32_t part = 0;
  CrossingView crossing;
};
struct RoundMessage {
  RoundReport report;
  std::vector<Share> shares;
};
// Finds the shares in a message, which must outlive the result. Returns nothing if it is damaged;
// whether the events fit the network is not looked at (sim/admission.h).
std::optional<RoundMessage> read_message(const Bytes& message);

}  // namespace tulle::sim
