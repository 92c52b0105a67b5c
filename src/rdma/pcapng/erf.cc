#include "rdma/pcapng/erf.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace tulle::pcapng {
namespace {

constexpr std::uint8_t varying_length = 0x04;  // each record states its own length
constexpr std::uint8_t receive_error = 0x10;

// Returns seconds since 1970 in the upper half and parts of 2^-32 in the lower.
std::uint64_t timestamp(Time when) {
  constexpr std::int64_t second = 1'000'000'000'000;
  __extension__ using Wide = unsigned __int128;
  const auto part = static_cast<Wide>(when.ps % second) << 32;
  return static_cast<std::uint64_t>(when.ps / second) << 32 |
         static_cast<std::uint64_t>(part / second);
}

void put_be16(std::span<std::byte, 2> out, std::size_t value) {
  out[0] = static_cast<std::byte>(value >> 8);
  out[1] = static_cast<std::byte>(value);
}

}  // namespace

std::array<std::byte, erf_header_bytes> erf_header(Time when, ErfType type,
                                                   std::uint32_t packet_bytes, bool damaged) {
  TULLE_CHECK(erf_header_bytes + packet_bytes <= 0xFFFF);
  std::array<std::byte, erf_header_bytes> header{};
  const std::uint64_t stamp = timestamp(when);  // the only little-endian field
  for (std::size_t i = 0; i < 8; ++i) header[i] = static_cast<std::byte>(stamp >> (8 * i));
  header[8] = static_cast<std::byte>(type);
  header[9] = static_cast<std::byte>(varying_length | (damaged ? receive_error : 0));
  const std::span<std::byte> rest(header);
  put_be16(rest.subspan<10, 2>(), erf_header_bytes + packet_bytes);
  put_be16(rest.subspan<14, 2>(), packet_bytes);  // behind a count of losses, which stays 0
  return header;
}

}  // namespace tulle::pcapng
