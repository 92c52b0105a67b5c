#pragma once

// Receive-side scaling: which of several receive queues a frame goes to. The hash is Toeplitz's, as
// Microsoft's specification has it ("RSS hashing functions", NDIS 6.0), over the fields that are
// asked for, in its order: source and destination address, source and destination port.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/flow_fields.h"
#include "verbs/types.h"

namespace tulle::device {

inline constexpr std::size_t receive_hash_key_bytes = 40;
using ReceiveHashKey = std::array<std::uint8_t, receive_hash_key_bytes>;

// Of at most 36 bytes: the key holds no more. For each bit of the input that is set, the 32 bits of
// the key that begin at its place.
std::uint32_t toeplitz(const ReceiveHashKey& key, std::span<const std::uint8_t> input);

enum class HashField : std::uint32_t {
  source_ipv4 = 1,
  destination_ipv4 = 2,
  source_ipv6 = 4,
  destination_ipv6 = 8,
  source_port_tcp = 16,
  destination_port_tcp = 32,
  source_port_udp = 64,
  destination_port_udp = 128,
};
using HashFields = verbs::Flags<HashField>;

struct ReceiveHash {
  ReceiveHashKey key{};
  HashFields fields;

  // Of what the frame has of the fields; 0 if that is nothing.
  std::uint32_t of(const FlowFields& frame) const;
};

}  // namespace tulle::device
