#include "base/packed.h"

#include <gtest/gtest.h>

namespace tulle {
namespace {

struct Pair {
  std::uint32_t a = 0;
  std::uint64_t b = 0;
  bool operator==(const Pair&) const = default;
};

TEST(Packed, ValuesComeOutAsTheyWentIn) {
  Bytes bytes;
  Packer packer(bytes);
  packer.add(std::uint16_t{7});
  packer.add_list(std::vector<Pair>{{1, 2}, {3, 4}});
  packer.add_list(std::vector<Pair>());
  packer.add_all(std::span<const char>("abc", 3));

  Unpacker unpacker(bytes);
  std::uint16_t seven = 0;
  std::vector<Pair> pairs, none{{9, 9}};
  std::vector<char> raw;
  EXPECT_TRUE(unpacker.take(seven));
  EXPECT_TRUE(unpacker.take_list(pairs));
  EXPECT_TRUE(unpacker.take_list(none));
  EXPECT_FALSE(unpacker.is_empty());
  EXPECT_TRUE(unpacker.take_all(3, raw));
  EXPECT_TRUE(unpacker.is_empty());
  EXPECT_EQ(seven, 7);
  EXPECT_EQ(pairs, (std::vector<Pair>{{1, 2}, {3, 4}}));
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(raw[2], 'c');
}

TEST(Packed, NothingIsTakenBeyondTheEnd) {
  Bytes bytes;
  Packer packer(bytes);
  packer.add_list(std::vector<Pair>{{1, 2}, {3, 4}});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    Unpacker unpacker{std::span(bytes).first(length)};
    std::vector<Pair> pairs;
    EXPECT_FALSE(unpacker.take_list(pairs)) << length;
    EXPECT_EQ(unpacker.is_empty(), length == 0);
  }
}

// A number that is too large must not allocate memory.
TEST(Packed, AListOfAnyNumberIsBoundedByItsBytes) {
  for (const std::uint64_t count : {~0ull, ~0ull / sizeof(Pair) + 1, 1ull << 40, 2ull}) {
    Bytes bytes;
    Packer packer(bytes);
    packer.add(count);
    packer.add(Pair());
    Unpacker unpacker(bytes);
    std::vector<Pair> pairs;
    EXPECT_FALSE(unpacker.take_list(pairs)) << count;
    EXPECT_LT(pairs.capacity(), 2u);
  }
}

}  // namespace
}  // namespace tulle
