#include "rdma/device/receive_hash.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::device {
namespace {

// The hash's input while it is put together.
struct Input {
  std::array<std::uint8_t, receive_hash_key_bytes - 4> bytes{};
  std::size_t size = 0;

  void add(std::span<const std::uint8_t> part) {
    std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    size += part.size();
  }
  void add(std::uint16_t port) {
    bytes[size++] = static_cast<std::uint8_t>(port >> 8);
    bytes[size++] = static_cast<std::uint8_t>(port);
  }
};

}  // namespace

std::uint32_t toeplitz(const ReceiveHashKey& key, std::span<const std::uint8_t> input) {
  TULLE_CHECK(input.size() <= key.size() - 4);
  std::uint32_t window = std::uint32_t{key[0]} << 24 | std::uint32_t{key[1]} << 16 |
                         std::uint32_t{key[2]} << 8 | key[3];
  std::uint32_t hash = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    for (int bit = 7; bit >= 0; --bit) {
      if ((input[i] >> bit & 1) != 0) hash ^= window;
      window = window << 1 | (key[i + 4] >> bit & 1u);
    }
  }
  return hash;
}

std::uint32_t ReceiveHash::of(const FlowFields& frame) const {
  Input input;
  const auto add_address = [&](FlowHeader header, HashField field, const auto& address,
                               std::size_t bytes) {
    if (frame.has(header) && fields.has(field)) input.add(std::span(address).first(bytes));
  };
  add_address(FlowHeader::ipv4, HashField::source_ipv4, frame.source, 4);
  add_address(FlowHeader::ipv6, HashField::source_ipv6, frame.source, 16);
  add_address(FlowHeader::ipv4, HashField::destination_ipv4, frame.destination, 4);
  add_address(FlowHeader::ipv6, HashField::destination_ipv6, frame.destination, 16);
  const auto add_port = [&](FlowHeader header, HashField field, std::uint16_t port) {
    if (frame.has(header) && fields.has(field)) input.add(port);
  };
  add_port(FlowHeader::tcp, HashField::source_port_tcp, frame.source_port);
  add_port(FlowHeader::udp, HashField::source_port_udp, frame.source_port);
  add_port(FlowHeader::tcp, HashField::destination_port_tcp, frame.destination_port);
  add_port(FlowHeader::udp, HashField::destination_port_udp, frame.destination_port);
  return input.size == 0 ? 0 : toeplitz(key, {input.bytes.data(), input.size});
}

}  // namespace tulle::device
