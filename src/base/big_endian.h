#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tulle {

// An unsigned integer of `Bytes` bytes in network order, with alignment 1, so that a wire format
// can be a struct.
template <typename Value, std::size_t Bytes = sizeof(Value)>
class BigEndian {
 public:
  constexpr BigEndian() = default;
  constexpr BigEndian(Value value) {  // NOLINT(google-explicit-constructor): it is the value
    for (std::size_t i = 0; i < Bytes; ++i) {
      bytes_[Bytes - 1 - i] = static_cast<std::uint8_t>(value >> (8 * i));
    }
  }
  constexpr operator Value() const {  // NOLINT(google-explicit-constructor)
    Value value = 0;
    for (std::size_t i = 0; i < Bytes; ++i) {
      value = static_cast<Value>(static_cast<Value>(value << (Bytes > 1 ? 8 : 0)) | bytes_[i]);
    }
    return value;
  }

 private:
  std::array<std::uint8_t, Bytes> bytes_{};
};

using be16 = BigEndian<std::uint16_t>;
using be24 = BigEndian<std::uint32_t, 3>;
using be32 = BigEndian<std::uint32_t>;
using be64 = BigEndian<std::uint64_t>;

}  // namespace tulle
