#include "wire/vcrc.h"

#include <array>

namespace tulle::wire {
namespace {

// 0x100B with the coefficient of x^0 in bit 15, since bits are taken least significant first, as
// they are sent.
constexpr std::uint16_t vcrc_polynomial = 0xD008;

constexpr std::array<std::uint16_t, 256> vcrc_remainders = [] {
  std::array<std::uint16_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? vcrc_polynomial : 0u);
    }
    table[byte] = static_cast<std::uint16_t>(remainder);
  }
  return table;
}();

}  // namespace

void Vcrc::update(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    const auto index = (state_ ^ std::to_integer<std::uint32_t>(byte)) & 0xFF;
    state_ = static_cast<std::uint16_t>((state_ >> 8) ^ vcrc_remainders[index]);
  }
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
