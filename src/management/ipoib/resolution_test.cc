#include "management/ipoib/resolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "management/ipoib/subnet_test.h"

namespace tulle::ipoib {
namespace {

using testing::Subnet;

// RFC 826 and RFC 4391: what a question for an IPv4 address is like on the wire.
TEST(Resolution, ArpIsAsTheRfcsHaveIt) {
  constexpr std::array<std::uint8_t, 56> expected = {
      0x00, 0x20,                                      // InfiniBand
      0x08, 0x00,                                      // IPv4
      0x14, 0x04,                                      // lengths of addresses
      0x00, 0x01,                                      // a request
      0x00, 0x00, 0x01, 0x23,                          // the asker's queue pair
      0xFE, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // and GID
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10,  //
      0x0A, 0x01, 0x00, 0x01,                          // and IPv4 address
      0x00, 0x00, 0x00, 0x00,                          // what is looked for
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  //
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  //
      0x0A, 0x01, 0x00, 0x02,                          // and for which IPv4 address
  };
  const wire::IpoibAddress asker{0, 0x123, testing::ipv6(0x80, 0x10).bytes};
  const WrittenMessage message = write_question(Subnet::ip(0), asker, Subnet::ip(1), {});
  EXPECT_EQ(message.type, 0x0806);
  EXPECT_TRUE(std::ranges::equal(message.bytes, std::as_bytes(std::span(expected))));

  const auto heard = read_arp(std::as_bytes(std::span(expected)));
  ASSERT_TRUE(heard);
  EXPECT_TRUE(heard->asks);
  EXPECT_EQ(heard->sender, Subnet::ip(0));
  EXPECT_EQ(heard->target, Subnet::ip(1));
  EXPECT_EQ(heard->address, asker);
}

}  // namespace
}  // namespace tulle::ipoib
