#pragma once

// Messages between programs and the host agent: a header, and then the fields (os/codec.h).
//
// The header and the layout of Refused never change, so that any two versions can tell each other
// that they differ.

#include <cstddef>
#include <cstdint>

#include "os/codec.h"

namespace tulle::live {

inline constexpr std::uint32_t message_magic = 0x454C'4C54;  // "TLLE"
inline constexpr std::size_t message_bytes_max = 128 * 1024;

struct MessageHeader {
  std::uint32_t magic = message_magic;
  std::uint16_t version = 0;
  std::uint16_t kind = 0;
};

class MessageWriter : public FieldWriter<MessageHeader> {
 public:
  explicit MessageWriter(MessageHeader header) { append(&header, sizeof(header)); }
};
using MessageReader = FieldReader<MessageHeader>;

}  // namespace tulle::live
