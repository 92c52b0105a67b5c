#include "rdma/pcapng/erf.h"

#include <gtest/gtest.h>

namespace tulle::pcapng {
namespace {

std::string hex(const std::array<std::byte, erf_header_bytes>& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<int>(byte) >> 4];
    text += digits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

TEST(ErfTest, every_field_lies_where_it_belongs) {
  // 3.25 seconds; 4,138 bytes, 4,154 with the header.
  const Time when{3'250'000'000'000};
  EXPECT_EQ(hex(erf_header(when, ErfType::infiniband, 4'138, false)),
            "0000004003000000"    // time
            "1504103a0000102a");  // type, flags, record, losses, packet
  EXPECT_EQ(hex(erf_header(when, ErfType::infiniband, 4'138, true)),
            "00000040030000001514103a0000102a");
}

TEST(ErfTest, times_are_within_a_quarter_of_a_nanosecond) {
  for (const std::int64_t ps : {0ll, 1ll, 640ll, 999'999'999'999ll, 9'000'000'000'000'000'001ll}) {
    const auto header = erf_header(Time{ps}, ErfType::infiniband, 0, false);
    std::uint64_t stamp = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      stamp |= std::to_integer<std::uint64_t>(header[i]) << (8 * i);
    }
    EXPECT_EQ(stamp >> 32, static_cast<std::uint64_t>(ps / 1'000'000'000'000));
    const double part = static_cast<double>(stamp & 0xFFFF'FFFF) * 1e12 / 4'294'967'296.0;
    EXPECT_NEAR(part, static_cast<double>(ps % 1'000'000'000'000), 233);
  }
}

}  // namespace
}  // namespace tulle::pcapng
