#pragma once

// Receive-side scaling: chooses one of several receive queues for a frame. The hash is Toeplitz's,
// as Microsoft's specification defines it ("RSS hashing functions", NDIS 6.0). It covers the
// requested fields in this order: source and destination address, source and destination port.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/device/flow_fields.h"
#include "rdma/verbs/types.h"

namespace tulle::device {

inline constexpr std::size_t receive_hash_key_bytes = 40;
using ReceiveHashKey = std::array<std::uint8_t, receive_hash_key_bytes>;

// Returns the Toeplitz hash of at most 36 bytes, for which the key suffices. Each set bit of the
// input contributes the 32 bits of the key that begin at the bit's place.
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

  // Returns the hash of the requested fields that the frame has, or 0 if it has none.
  std::uint32_t of(const FlowFields& frame) const;
};

}  // namespace tulle::device
