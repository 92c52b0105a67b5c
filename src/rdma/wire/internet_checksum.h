#pragma once

// The Internet checksum (RFC 1071): the ones' complement of the ones' complement sum of 16-bit
// words.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tulle::wire {

class InternetChecksum {
 public:
  void add(std::uint16_t word) { sum_ += word; }
  // Adds bytes that continue where the last call ended, even in the middle of a word.
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      const auto value = std::to_integer<std::uint64_t>(byte);
      sum_ += odd_ ? value : value << 8;
      odd_ = !odd_;
    }
  }
  std::uint16_t value() const {
    constexpr std::uint16_t all_ones = 0xFFFF;
    std::uint64_t sum = sum_;
    while (sum > all_ones) sum = (sum & all_ones) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
  }

 private:
  std::uint64_t sum_ = 0;
  bool odd_ = false;
};

}  // namespace tulle::wire
