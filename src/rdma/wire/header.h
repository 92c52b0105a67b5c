#pragma once

// Moves the structs that represent wire formats in and out of bytes. Each is made of bytes and
// big-endian integers, so that its layout in memory is its layout on the wire, whatever the
// address.

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace tulle::wire {

template <typename Header, std::size_t Bytes>
inline constexpr bool is_wire_format = sizeof(Header) == Bytes &&
                                       alignof(Header) == 1 && std::is_trivially_copyable_v<Header>;

// Reads a header from the front of `in` and steps over it. `in` must be long enough.
template <typename Header>
Header take(std::span<const std::byte>& in) {
  Header header;
  std::memcpy(&header, in.data(), sizeof(Header));
  in = in.subspan(sizeof(Header));
  return header;
}

// Writes a header to the front of `out` and steps over it. `out` must be long enough.
template <typename Header>
void put(const Header& header, std::span<std::byte>& out) {
  std::memcpy(out.data(), &header, sizeof(Header));
  out = out.subspan(sizeof(Header));
}

}  // namespace tulle::wire
