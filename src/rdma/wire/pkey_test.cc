#include "rdma/wire/pkey.h"

#include <gtest/gtest.h>

#include <array>

#include "rdma/wire/packet.h"

namespace tulle::wire {
namespace {

TEST(Pkey, MatchesAsIbta10_9_3HasIt) {
  constexpr Pkey full{0x8001}, limited{0x0001}, other{0x8002};
  EXPECT_TRUE(pkeys_match(full, full));
  EXPECT_TRUE(pkeys_match(full, limited));
  EXPECT_TRUE(pkeys_match(limited, full));
  EXPECT_FALSE(pkeys_match(limited, limited));
  EXPECT_FALSE(pkeys_match(full, other));
  EXPECT_FALSE(pkeys_match(limited, other));
  EXPECT_FALSE(pkeys_match(Pkey{0x8000}, Pkey{0x8000})) << "partition 0 is invalid";
  EXPECT_TRUE(pkeys_match(default_pkey, Pkey{0x7FFF}));
}

TEST(Pkey, IsReadFromAPacketsHeaders) {
  Packet packet;
  packet.opcode = Opcode{0x11};
  packet.pkey = Pkey{0x8123};
  std::array<std::byte, header_bytes_max> bytes{};
  encode(packet, bytes);
  EXPECT_EQ(peek_pkey(bytes), packet.pkey);
}

TEST(Fecn, IsABitOfTheFifthByteThatASwitchSets) {
  Packet packet;
  packet.opcode = Opcode{0x11};
  packet.becn = true;
  std::array<std::byte, header_bytes_max> bytes{};
  encode(packet, bytes);
  EXPECT_EQ(bytes[4], std::byte{0x40});
  EXPECT_TRUE(mark_fecn(bytes));
  EXPECT_EQ(bytes[4], std::byte{0xC0});
  EXPECT_FALSE(mark_fecn(bytes)) << "it is set";
  Packet marked;
  EXPECT_EQ(decode(bytes, marked).status, DecodeStatus::ok);
  packet.fecn = true;
  EXPECT_EQ(marked, packet);
}

}  // namespace
}  // namespace tulle::wire
