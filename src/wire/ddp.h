#pragma once

// Direct data placement (DDP, RFC 5041): the header of each segment, which says where its data
// belong: into memory that a steering tag (STag) names, or into the next buffer of a queue.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace tulle::wire::ddp {

inline constexpr std::uint8_t version = 1;  // RFC 5041 4.1

inline constexpr std::uint32_t tagged_header_bytes = 14;
inline constexpr std::uint32_t untagged_header_bytes = 18;

// RFC 5041 4.1 to 4.3, decoded. Reserved bits are kept, so that what came can be shown again.
struct Header {
  bool tagged = false;
  bool last = true;           // of its message
  std::uint8_t reserved = 0;  // 4 bits
  std::uint8_t version = ddp::version;
  std::uint8_t ulp_control = 0;  // RsvdULP's first byte: the upper layer's, see wire/rdmap.h

  // Tagged.
  RemoteKey stag{};
  std::uint64_t tagged_offset = 0;  // TO: an address within what the STag names

  // Untagged.
  std::uint32_t ulp_word = 0;        // RsvdULP's other four bytes
  std::uint32_t queue = 0;           // QN
  std::uint32_t sequence = 0;        // MSN: of messages in a queue, from 1 on
  std::uint32_t message_offset = 0;  // MO, of this segment's first byte

  bool operator==(const Header&) const = default;
  std::uint32_t bytes() const { return tagged ? tagged_header_bytes : untagged_header_bytes; }
};

// Writes header.bytes() bytes.
void encode(const Header& header, std::span<std::byte> out);
// False: the segment is too short for what its first byte says it is. Nothing else is checked.
[[nodiscard]] bool decode(std::span<const std::byte> segment, Header& header);

}  // namespace tulle::wire::ddp
