#pragma once

// Direct data placement (DDP, RFC 5041). The header of each segment says where its data belong:
// into memory that a steering tag (STag) names, or into the next buffer of a queue.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace tulle::wire::ddp {

inline constexpr std::uint8_t version = 1;  // RFC 5041 4.1

inline constexpr std::uint32_t tagged_header_bytes = 14;
inline constexpr std::uint32_t untagged_header_bytes = 18;

// A DDP header (RFC 5041 4.1 to 4.3), decoded. Reserved bits are kept, so that a received header
// can be shown exactly as it came.
struct Header {
  bool tagged = false;
  bool last = true;           // last segment of its message
  std::uint8_t reserved = 0;  // 4 bits
  std::uint8_t version = ddp::version;
  std::uint8_t ulp_control = 0;  // RsvdULP's first byte, which belongs to the upper layer:
                                 // rdma/wire/rdmap.h

  // Tagged.
  RemoteKey stag{};
  std::uint64_t tagged_offset = 0;  // TO: an address within the memory that the STag names

  // Untagged.
  std::uint32_t ulp_word = 0;        // RsvdULP's other four bytes
  std::uint32_t queue = 0;           // QN
  std::uint32_t sequence = 0;        // MSN: number of the message in its queue, from 1 on
  std::uint32_t message_offset = 0;  // MO: offset of this segment's first byte

  bool operator==(const Header&) const = default;
  std::uint32_t bytes() const { return tagged ? tagged_header_bytes : untagged_header_bytes; }
};

// Writes header.bytes() bytes.
void encode(const Header& header, std::span<std::byte> out);
// Returns false if the segment is shorter than the header that its first byte announces. Nothing
// else is checked.
[[nodiscard]] bool decode(std::span<const std::byte> segment, Header& header);

}  // namespace tulle::wire::ddp
