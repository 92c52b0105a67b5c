#pragma once

// Helpers for tests of management agents: they make requests as bytes and read answers as fields.

#include <array>
#include <cstring>

#include "management/answer.h"

namespace tulle::management {

using Mad = std::array<std::byte, wire::mad_bytes>;

inline Mad request_of(std::uint8_t management_class, std::uint8_t method, std::uint16_t attribute,
                      std::uint32_t modifier = 0) {
  wire::MadHeader header;
  header.management_class = management_class;
  header.class_version = 1;
  header.method = method;
  header.transaction_id = 0x1122'3344'5566'7788;
  header.attribute_id = attribute;
  header.attribute_modifier = modifier;
  Mad mad{};
  std::memcpy(mad.data(), &header, sizeof header);
  return mad;
}

inline wire::MadHeader header_of(const Mad& mad) { return header_of(Request(mad)); }

inline void set_header(Mad& mad, const wire::MadHeader& header) {
  std::memcpy(mad.data(), &header, sizeof header);
}

// Returns the big-endian number at an offset from the front of the datagram.
inline std::uint64_t number_at(const Mad& mad, std::size_t offset, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value = value << 8 | std::to_integer<std::uint64_t>(mad[offset + i]);
  }
  return value;
}

}  // namespace tulle::management
