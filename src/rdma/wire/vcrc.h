#pragma once

// The variant CRC (IBTA 7.8.2): the last two bytes of a packet on an InfiniBand link. It covers all
// bytes before it, and every switch computes it again.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle::wire {

inline constexpr std::size_t vcrc_bytes = 2;

class Vcrc {
 public:
  void update(std::span<const std::byte> bytes);
  // The least significant byte is the first on the wire: see `put_vcrc` and `take_vcrc`.
  std::uint16_t value() const { return static_cast<std::uint16_t>(~state_); }

 private:
  std::uint16_t state_ = 0xFFFF;
};

void put_vcrc(std::uint16_t value, std::span<std::byte, vcrc_bytes> out);
std::uint16_t take_vcrc(std::span<const std::byte, vcrc_bytes> in);

}  // namespace tulle::wire
