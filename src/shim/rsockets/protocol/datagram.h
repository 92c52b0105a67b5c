#pragma once

// The headers in front of datagrams (wire.h has their layout), written and read.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shim/rsockets/protocol/wire.h"

namespace tulle::rsockets {

// A header that is ready to be sent.
struct HeaderBytes {
  std::array<std::byte, datagram_header_max_bytes> bytes{};
  std::size_t length = 0;

  std::span<const std::byte> span() const { return std::span(bytes).first(length); }
};

// The sender is an address of IPv4 or IPv6.
HeaderBytes datagram_header(const sockaddr& sender);
HeaderBytes udp_header(const sockaddr& sender, std::uint32_t qp_number, bool has_data);

struct ReceivedDatagram {
  sockaddr_storage sender = {};
  std::span<const std::byte> data;
};
// Returns nothing if the bytes are not an rsocket's datagram.
std::optional<ReceivedDatagram> read_datagram(std::span<const std::byte> bytes);

struct ReceivedOverUdp {
  std::uint32_t qp_number = 0;  // the sender's
  bool has_data = false;        // without data, it only tells the number
  std::span<const std::byte> data;
};
// Returns nothing if the bytes are not an rsocket's datagram from an address of this family.
std::optional<ReceivedOverUdp> read_udp(std::span<const std::byte> bytes, sa_family_t family);

}  // namespace tulle::rsockets
