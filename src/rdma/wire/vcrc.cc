#include "rdma/wire/vcrc.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tulle::wire {
namespace {

// 0x100B with the coefficient of x^0 in bit 15, since bits are taken least significant first, as
// they are sent.
constexpr std::uint16_t vcrc_polynomial = 0xD008;

// The remainders of each byte with so many zero bytes behind it.
constexpr std::size_t slice_bytes = 16;
using Remainders = std::array<std::array<std::uint16_t, 256>, slice_bytes>;

constexpr std::uint32_t after_byte(std::uint32_t remainder) {
  for (int bit = 0; bit < 8; ++bit) {
    remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? vcrc_polynomial : 0u);
  }
  return remainder;
}

constexpr Remainders vcrc_remainders = [] {
  Remainders tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (auto& table : tables) {
      remainder = after_byte(remainder);
      table[byte] = static_cast<std::uint16_t>(remainder);
    }
  }
  return tables;
}();

}  // namespace

// Sixteen bytes at a time are taken by as many look-ups that do not wait for each other (Kounavis
// and Berry, "A Systematic Approach to Building High Performance Software-Based CRC Generators",
// 2005).
void Vcrc::update(std::span<const std::byte> bytes) {
  std::uint32_t state = state_;
  for (; bytes.size() >= slice_bytes; bytes = bytes.subspan(slice_bytes)) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < slice_bytes; ++i) {
      const std::uint32_t mixed = i < 2 ? state >> (8 * i) & 0xFF : 0;
      const std::uint32_t index = mixed ^ std::to_integer<std::uint32_t>(bytes[i]);
      next ^= vcrc_remainders[slice_bytes - 1 - i][index];
    }
    state = next;
  }
  for (const std::byte byte : bytes) {
    const std::uint32_t index = (state ^ std::to_integer<std::uint32_t>(byte)) & 0xFF;
    state = (state >> 8) ^ vcrc_remainders[0][index];
  }
  state_ = static_cast<std::uint16_t>(state);
}

void put_vcrc(std::uint16_t value, std::span<std::byte, vcrc_bytes> out) {
  out[0] = static_cast<std::byte>(value);
  out[1] = static_cast<std::byte>(value >> 8);
}

std::uint16_t take_vcrc(std::span<const std::byte, vcrc_bytes> in) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(in[0]) |
                                    std::to_integer<unsigned>(in[1]) << 8);
}

}  // namespace tulle::wire
