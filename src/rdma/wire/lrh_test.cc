#include "rdma/wire/lrh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/random.h"
#include "rdma/wire/vectors_test.h"

namespace tulle::wire {
namespace {

using Header = std::array<std::byte, lrh_bytes>;

TEST(LrhTest, every_field_lies_where_it_belongs) {
  LocalRoute route;
  route.vl = 7;
  route.version = 1;
  route.service_level = 5;
  route.next_header = LinkNextHeader::grh;
  route.destination = Lid(0x1234);
  route.source = Lid(0xBFFF);
  route.packet_words = 0x7A5;
  Header bytes;
  encode(route, bytes);
  const std::vector<std::byte> expected = bytes_from_hex("7153123407A5BFFF");
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
}

TEST(LrhTest, whatever_is_read_is_written_again) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 1'000; ++round) {
    Header bytes;
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
    const LocalRoute route = decode_lrh(bytes);
    Header again;
    encode(route, again);
    bytes[1] &= std::byte{0xF3};  // reserved
    bytes[4] &= std::byte{0x07};
    EXPECT_EQ(again, bytes);
    EXPECT_EQ(decode_lrh(again), route);
  }
}

}  // namespace
}  // namespace tulle::wire
