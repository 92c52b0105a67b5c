#pragma once

// Messages between processes, as they arrive.

#include <cstddef>
#include <cstdint>

#include "base/packed.h"
#include "sim/round_message.h"

namespace tulle::sim {

inline Bytes joined(const Pieces& pieces) {
  Bytes bytes;
  for (const auto& piece : pieces) Packer(bytes).add_all(piece);
  return bytes;
}

// Returns a message with the report alone.
inline Bytes message_of(const RoundReport& report) {
  OutgoingMessage message;
  message.begin(report);
  return joined(message.pieces());
}

// Adds what crosses to a part to a message.
inline void add_share(std::uint32_t part, const Crossing& crossing, Bytes& message) {
  OutgoingMessage with;
  with.begin({});
  with.add(part, crossing);
  const Bytes bytes = joined(with.pieces());
  Packer(message).add_all(std::span(bytes).subspan(message_of({}).size()));
}

}  // namespace tulle::sim
