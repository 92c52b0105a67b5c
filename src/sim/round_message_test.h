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

// Adds what crosses to a part to a message.
inline void add_share(std::uint32_t part, const Crossing& crossing, Bytes& message) {
  OutgoingMessage without, with;
  without.begin({});
  with.begin({});
  with.add(part, crossing);
  const Bytes bytes = joined(with.pieces());
  const std::size_t before = joined(without.pieces()).size();
  Packer(message).add_all(std::span(bytes).subspan(before));
}

}  // namespace tulle::sim
