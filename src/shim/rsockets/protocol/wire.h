#pragma once

// The protocol between two rsockets, as rdma-core's librdmacm/docs/rsocket describes it and its
// rsocket.c has it on the wire.
//
// A stream is a reliable connection. Each side exposes a receive buffer in two halves, and a list
// of two entries into which the peer writes where the peer's free half is. Data goes by RDMA WRITE
// with immediate into the half that the list names. A message without data consists of the
// immediate alone. A half is filled to its end before the next is used.
//
// A datagram over UD starts with a header that holds its sender's address. Until a peer's queue
// pair is known, datagrams go over UDP between the same addresses, with another header.

#include <endian.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"

namespace tulle::rsockets {

// --- streams ---

// An entry of either list is written in the byte order of the host that reads it.
struct TargetEntry {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(TargetEntry) == 16);

struct MapEntry {
  std::uint64_t offset = 0;
  TargetEntry target;
};
static_assert(sizeof(MapEntry) == 24);

inline constexpr std::uint32_t target_entries = 2;

struct BigEndianEntry {
  be64 address;
  be32 key;
  be32 bytes;
};

inline constexpr std::uint8_t connection_version = 1;
inline constexpr std::uint8_t flag_big_endian = 1u << 0;
inline constexpr std::uint8_t flag_maps = 1u << 1;

// The private data of a connect request and of its answer.
struct ConnectionData {
  std::uint8_t version = connection_version;
  std::uint8_t flags = 0;
  be16 credits;  // number of receives that are posted
  std::array<std::uint8_t, 3> reserved{};
  std::uint8_t scaled_maps = 0;  // number of maps behind the list that the peer may write
  BigEndianEntry targets;        // the list; `bytes` is its number of entries
  BigEndianEntry buffer;         // the first entry of the list
};
static_assert(sizeof(ConnectionData) == 40 && alignof(ConnectionData) == 1);

// A count of maps travels in eight bits: exact up to 128, above that in steps of 256.
constexpr std::uint8_t to_scaled(std::uint32_t value) {
  constexpr std::uint32_t exact_max = 1u << 7;
  return static_cast<std::uint8_t>(value <= exact_max ? value : exact_max | value >> 8);
}
constexpr std::uint32_t from_scaled(std::uint8_t value) {
  constexpr std::uint32_t exact_max = 1u << 7;
  return value <= exact_max ? value : (value & ~exact_max) << 8;
}

// The immediate: three bits of type, 29 bits of value.
enum class MessageType : std::uint8_t {
  data = 0,     // value: the number of bytes written
  direct = 2,   // never sent: marks a work request
  credits = 4,  // value: the limit for the peer's 16-bit count of messages
  map = 6,      // value: the index of the map that was written
  control = 7,  // value: a Control
};
enum class Control : std::uint32_t { disconnect = 0, keep_alive = 1, shutdown = 2 };

inline constexpr std::uint32_t message_value_mask = 0x1FFF'FFFF;

constexpr std::uint32_t to_message(MessageType type, std::uint32_t value) {
  return static_cast<std::uint32_t>(type) << 29 | (value & message_value_mask);
}
constexpr MessageType type_of(std::uint32_t message) {
  return static_cast<MessageType>(message >> 29);
}
constexpr std::uint32_t value_of(std::uint32_t message) { return message & message_value_mask; }

// --- datagrams ---

// The header in front of each datagram over UD. With IPv4 it is the first eight bytes.
struct DatagramHeader {
  std::uint8_t version = 4;
  std::uint8_t length = 0;
  be16 port;
  // IPv4: the address; IPv6: flow information and the address.
  std::array<std::uint8_t, 20> address{};
};
static_assert(sizeof(DatagramHeader) == 24 && alignof(DatagramHeader) == 1);
inline constexpr std::uint8_t datagram_header_ipv4_bytes = 8;
inline constexpr std::uint8_t datagram_header_ipv6_bytes = 24;

// The header in front of each datagram over UDP.
struct UdpHeader {
  be32 tag = 0x5555'5555;
  std::uint8_t version = 4;
  std::uint8_t operation = 0;  // MessageType::data with data; ::control without
  std::uint8_t length = 0;
  std::uint8_t reserved = 0;
  be32 qp_number;  // the sender's
  std::array<std::uint8_t, 16> address{};
};
static_assert(sizeof(UdpHeader) == 28 && alignof(UdpHeader) == 1);
inline constexpr std::uint32_t udp_tag = 0x5555'5555;
inline constexpr std::uint8_t udp_header_ipv4_bytes = 16;
inline constexpr std::uint8_t udp_header_ipv6_bytes = 28;

inline constexpr std::size_t datagram_header_max_bytes = 28;  // of either kind

}  // namespace tulle::rsockets
