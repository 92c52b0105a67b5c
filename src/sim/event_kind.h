#pragma once

// The kinds of a network's events, and how an event's place names one of them and a link's end.

#include <cstdint>

#include "sim/event.h"

namespace tulle::sim {

// The kinds of events, in the order in which they happen at one time and node.
enum class EventKind : std::uint8_t {
  fault,
  control,
  arrival,
  port_free,
  deadline,
  application,
  pause_end,
  pause_renewal,
  watchdog,
  slow_arrival,  // arrival at a host with an intake
  taken_in,      // a host with an intake has taken in a frame
  notice,        // arrival of a notice from a switch
  stack_work,    // work of a host's kernel
};

// The low bits of an event's place are its kind, and the others are the index of a link's end.
inline constexpr unsigned kind_bits = 4;

constexpr Event event_at(std::int64_t at, std::uint32_t end, EventKind kind, std::uint32_t datum) {
  return {at, datum, end << kind_bits | static_cast<std::uint32_t>(kind)};
}
constexpr EventKind kind_of(const Event& event) {
  return static_cast<EventKind>(event.place & ((1u << kind_bits) - 1));
}
constexpr std::uint32_t end_index_of(const Event& event) { return event.place >> kind_bits; }

}  // namespace tulle::sim
