#pragma once

// The variant CRC (IBTA 7.8.2): the last two bytes of a packet on an InfiniBand link, over all
// before them. Every switch computes it anew.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle::wire {

inline constexpr std::size_t vcrc_bytes = 2;

class Vcrc {
 public:
  void update(std::span<const std::byte> bytes);
  // On the wire its least significant byte comes first: `put_vcrc`, `take_vcrc`.
  std::uint16_t value() const { return static_cast<std::uint16_t>(~state_); }

 private:
  std::uint16_t state_ = 0xFFFF;
};

void put_vcrc(std::uint16_t value, std::span<std::byte, vcrc_bytes> out);
std::uint16_t take_vcrc(std::span<const std::byte, vcrc_bytes> in);

}  // namespace tulle::wire
