#include "rdma/wire/icrc.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/big_endian.h"
#include "base/check.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/ipv4.h"

namespace tulle::wire {

Icrc::Icrc(std::span<const std::byte, lrh_bytes> lrh) : state_(0) {
  std::array<std::byte, lrh_bytes> masked;
  std::copy(lrh.begin(), lrh.end(), masked.begin());
  masked[offsetof(Lrh, lane)] |= std::byte{0xF0};
  update(masked);
}

void Icrc::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  state_ =
      crc32_gzip_refl(state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

void put_icrc(std::uint32_t value, std::span<std::byte, 4> out) {
  for (std::size_t i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t take_icrc(std::span<const std::byte, 4> in) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::to_integer<std::uint32_t>(in[i]) << (8 * i);
  return value;
}

void mask_bth(std::span<std::byte> head) {
  TULLE_CHECK(head.size() >= sizeof(Bth));
  head[offsetof(Bth, congestion_and_qp)] = std::byte{0xFF};
}

// The identification is solved for as follows. Take bits as polynomials over GF(2) modulo P, the
// polynomial of CRC-32. Changing a message by E, with n bytes behind the changed ones, changes its
// CRC by E · x^(8n+32): the start value and the final inversion cancel out. Here E is the four
// bytes of identification and flags. P's constant term is 1, so that x has an inverse:
//     E = difference · x^-(8n+32)
// An E is found for every difference. The packet is whole if E touches only the seventeen bits that
// may differ.
//
// A reflected polynomial keeps the coefficient of x^0 in bit 31 and that of x^31 in bit 0. Four
// bytes of a message, read least significant byte first, are a reflected polynomial.
namespace {

constexpr std::uint32_t icrc_polynomial = 0xEDB8'8320;
constexpr std::uint32_t one = 0x8000'0000;

constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a >> 1) ^ ((a & 1) != 0 ? icrc_polynomial : 0);
}
constexpr std::uint32_t over_x(std::uint32_t a) {
  return (a & one) != 0 ? ((a ^ icrc_polynomial) << 1 | 1) : a << 1;
}
static_assert(over_x(times_x(0x1234'5679)) == 0x1234'5679);
static_assert(times_x(over_x(one)) == one);

// Remainders modulo P of the four bits of highest degree, which a shift by four moves out.
constexpr std::array<std::uint32_t, 16> icrc_remainders = [] {
  std::array<std::uint32_t, 16> table{};
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) {
    std::uint32_t remainder = bits;
    for (int i = 0; i < 4; ++i) remainder = times_x(remainder);
    table[bits] = remainder;
  }
  return table;
}();

// Returns a · b mod P, taking four bits of b at a time from the highest degree down (Horner).
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::array<std::uint32_t, 16> multiples{};  // a times the four bits, reflected: bit 3 is x^0
  multiples[8] = a;
  multiples[4] = times_x(multiples[8]);
  multiples[2] = times_x(multiples[4]);
  multiples[1] = times_x(multiples[2]);
  for (std::size_t bits = 3; bits < multiples.size(); ++bits) {
    multiples[bits] = multiples[bits & (bits - 1)] ^ multiples[bits & (~bits + 1)];
  }
  std::uint32_t product = multiples[b & 15];
  for (int shift = 4; shift < 32; shift += 4) {
    product = (product >> 4) ^ icrc_remainders[product & 15] ^ multiples[b >> shift & 15];
  }
  return product;
}
// x^-(8n) for every n that occurs. The table takes sixteen kilobytes, of which the packets of one
// flow touch a few words.
constexpr std::size_t powers = explained_bytes_after_max + sizeof(be32) + 1;
constexpr std::array<std::uint32_t, powers> bytes_back = [] {
  std::array<std::uint32_t, powers> table{};
  table[0] = one;
  for (std::size_t n = 1; n < powers; ++n) {
    table[n] = table[n - 1];
    for (int bit = 0; bit < 8; ++bit) table[n] = over_x(table[n]);
  }
  return table;
}();

}  // namespace

std::optional<Ipv4Identification> explain_identification(std::uint32_t difference,
                                                         std::size_t bytes_after) {
  if (bytes_after > explained_bytes_after_max) return std::nullopt;
  const std::uint32_t error = multiply(difference, bytes_back[bytes_after + sizeof(be32)]);

  const std::uint32_t identification = (error & 0xFF) << 8 | (error >> 8 & 0xFF);
  const std::uint32_t flags_and_offset = (error >> 16 & 0xFF) << 8 | error >> 24;
  if ((flags_and_offset & ~std::uint32_t{Ipv4::dont_fragment}) != 0) return std::nullopt;
  return Ipv4Identification{static_cast<std::uint16_t>(identification), flags_and_offset == 0};
}

}  // namespace tulle::wire
