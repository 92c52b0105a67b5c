#pragma once

// Shared parts of a port's management agents (IBTA 13.4). Each turns a request into an answer or
// into none.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "rdma/wire/mad.h"

namespace tulle::management {

using wire::mad_bytes;
using Request = std::span<const std::byte, mad_bytes>;
using Answer = std::span<std::byte, mad_bytes>;

// Methods that all classes share (IBTA 13.4.5, table 105).
inline constexpr std::uint8_t method_get = 0x01;
inline constexpr std::uint8_t method_set = 0x02;
inline constexpr std::uint8_t method_trap = 0x05;
inline constexpr std::uint8_t method_trap_repress = 0x07;
inline constexpr std::uint8_t method_get_response = 0x81;
inline constexpr std::uint8_t response_bit = 0x80;

// Bits 4:2 of the status (IBTA 13.4.7, table 109).
enum class Status : std::uint16_t {
  ok = 0,
  bad_version = 1 << 2,  // bad version or class
  method_not_supported = 2 << 2,
  attribute_not_supported = 3 << 2,  // not supported, or not with this method
  invalid_value = 7 << 2,
};

inline wire::MadHeader header_of(Request request) {
  auto bytes = std::span<const std::byte>(request);
  return wire::take<wire::MadHeader>(bytes);
}

// Returns true if the message asks for an answer. Answers and methods that have none do not (IBTA
// 13.4.6.4).
inline bool asks(const wire::MadHeader& header) {
  return header.method == method_get || header.method == method_set;
}

// Copies the request into the answer and makes its header that of an answer. `status_bits` are the
// class's own bits next to the status.
inline void begin_answer(Request request, Status status, std::uint16_t status_bits, Answer answer) {
  std::memmove(answer.data(), request.data(), answer.size());
  wire::MadHeader header = header_of(request);
  header.method = method_get_response;
  header.status = static_cast<std::uint16_t>(static_cast<std::uint16_t>(status) | status_bits);
  std::memcpy(answer.data(), &header, sizeof header);
}

template <typename Attribute>
void put_attribute(const Attribute& attribute, std::size_t offset, Answer answer) {
  std::memcpy(answer.data() + offset, &attribute, sizeof attribute);
}

}  // namespace tulle::management
