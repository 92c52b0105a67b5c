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

namespace tulle::sim {

// A process says this to all others between two rounds.
struct RoundReport {
  std::uint64_t round = 0;  // number of the meeting, counted from 1
  // Start of the earliest round in which something is to happen there, also by what it has sent, in
  // ps.
  std::int64_t earliest_round = 0;
  // The earliest such event, if that round goes on after the time until which all play, or the
  // round's start, which is no later. In ps.
  std::int64_t earliest_event = 0;
  std::uint64_t goes_on = 1;  // 0: its application does not go on
};

// Begins a message with the report.
void begin_message(const RoundReport& report, Bytes& message);
// Adds what has crossed to a part of the process that gets the message, if anything has.
void add_crossing(std::uint32_t part, const Crossing& crossing, Bytes& message);

// A part's share of a message, as bytes.
struct CrossingBytes {
  std::uint32_t part = 0;
  std::span<const std::byte> bytes;
};
struct RoundMessage {
  RoundReport report;
  std::vector<CrossingBytes> crossings;
};
// Finds the shares in a message. Returns nothing if it is damaged. The bytes of the message must
// outlive the result.
std::optional<RoundMessage> read_message(std::span<const std::byte> message);
// Puts a share's contents into a crossing, in place of what was there. Returns false if they are
// damaged; whether the events fit the network is not looked at (Part::accepts()).
[[nodiscard]] bool read_crossing(std::span<const std::byte> bytes, Crossing& crossing);

}  // namespace tulle::sim
