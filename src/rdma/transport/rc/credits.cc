#include "rdma/transport/rc/credits.h"

#include <algorithm>
#include <array>
#include <bit>

namespace tulle::transport::rc {
namespace {

// IBTA table 44.
constexpr std::array<std::uint32_t, 31> credit_table = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

}  // namespace

// From 2 on, the table has each power of two and one and a half times it.
std::uint8_t credit_code(std::uint32_t receives) {
  if (receives < 2) return static_cast<std::uint8_t>(receives);
  const auto power = static_cast<std::uint32_t>(std::bit_width(receives)) - 1;
  const std::uint32_t code = 2 * power + (receives >> (power - 1) & 1);
  return static_cast<std::uint8_t>(std::min<std::uint32_t>(code, credit_table.size() - 1));
}

std::uint32_t credits_of_code(std::uint8_t code) {
  return code < credit_table.size() ? credit_table[code] : 0;
}

}  // namespace tulle::transport::rc
