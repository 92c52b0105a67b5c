#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tulle {

// An unsigned integer of `Bytes` bytes in network order, with alignment 1, so that a wire format
// can be a struct. Compilers make one instruction of a whole value's conversion, but not of a loop
// over its bytes.
template <typename Value, std::size_t Bytes = sizeof(Value)>
class BigEndian {
 public:
  constexpr BigEndian() = default;
  constexpr BigEndian(Value value) {  // NOLINT(google-explicit-constructor): it is the value
    if constexpr (Bytes == sizeof(Value)) {
      bytes_ = std::bit_cast<std::array<std::uint8_t, Bytes>>(in_network_order(value));
    } else {
      for (std::size_t i = 0; i < Bytes; ++i) {
        bytes_[Bytes - 1 - i] = static_cast<std::uint8_t>(value >> (8 * i));
      }
    }
  }
  constexpr operator Value() const {  // NOLINT(google-explicit-constructor)
    if constexpr (Bytes == sizeof(Value)) {
      return in_network_order(std::bit_cast<Value>(bytes_));
    } else {
      Value value = 0;
      for (std::size_t i = 0; i < Bytes; ++i) value = static_cast<Value>(value << 8 | bytes_[i]);
      return value;
    }
  }

 private:
  static constexpr Value in_network_order(Value value) {
    if constexpr (std::endian::native == std::endian::big) return value;
    if constexpr (sizeof(Value) == 1) return value;
    if constexpr (sizeof(Value) == 2) return __builtin_bswap16(value);
    if constexpr (sizeof(Value) == 4) return __builtin_bswap32(value);
    if constexpr (sizeof(Value) == 8) return __builtin_bswap64(value);
  }

  std::array<std::uint8_t, Bytes> bytes_{};
};

using be16 = BigEndian<std::uint16_t>;
using be24 = BigEndian<std::uint32_t, 3>;
using be32 = BigEndian<std::uint32_t>;
using be64 = BigEndian<std::uint64_t>;

}  // namespace tulle
