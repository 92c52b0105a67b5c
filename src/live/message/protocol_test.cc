#include "live/message/protocol.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"

namespace tulle::live {
namespace {

DeviceInfo some_device() {
  DeviceInfo device;
  device.name = "tulle0";
  device.node_guid = 0x0123'4567'89AB'CDEF;
  device.mtu_bytes = 4096;
  device.gids = {{Gid::from_ipv4(0xC000'0201), 2, "eth0"}, {Gid{}, 1, "lo"}};
  return device;
}

TEST(Protocol, HelloRoundTrips) {
  Hello hello;
  hello.purpose = Purpose::capture;
  hello.command = "ib_write_bw";
  hello.device.name = "mlx5_0";
  hello.device.interfaces = "eth0,eth1";
  hello.ring_bytes = 1 << 20;
  hello.snap_length = 128;
  hello.slot = 77;
  hello.file = "gids/3";
  Hello back;
  ASSERT_TRUE(decode(encode(hello), back));
  EXPECT_EQ(back.purpose, hello.purpose);
  EXPECT_EQ(back.command, hello.command);
  EXPECT_TRUE(back.device == hello.device);
  EXPECT_EQ(back.device.interfaces, hello.device.interfaces);
  EXPECT_EQ(back.ring_bytes, hello.ring_bytes);
  EXPECT_EQ(back.snap_length, hello.snap_length);
  EXPECT_EQ(back.slot, hello.slot);
  EXPECT_EQ(back.file, hello.file);
}

TEST(Protocol, OpenedRoundTrips) {
  const Opened opened{some_device(), 5, 0xA0000, 16'384, 4791, true};
  Opened back;
  ASSERT_TRUE(decode(encode(opened), back));
  EXPECT_EQ(back.device.name, "tulle0");
  EXPECT_EQ(back.device.node_guid, opened.device.node_guid);
  ASSERT_EQ(back.device.gids.size(), 2u);
  EXPECT_EQ(back.device.gids[0].gid, opened.device.gids[0].gid);
  EXPECT_EQ(back.device.gids[1].interface, "lo");
  EXPECT_EQ(back.slot, 5u);
  EXPECT_EQ(back.first_qp, 0xA0000u);
  EXPECT_EQ(back.qp_count, 16'384u);
  EXPECT_EQ(back.port, 4791);
  EXPECT_TRUE(back.is_relayed);
}

TEST(Protocol, MembershipRoundTrips) {
  const Membership asked{7, Gid::from_ipv4(0xE001'0203), true};
  Membership back;
  ASSERT_TRUE(decode(encode(asked), back));
  EXPECT_EQ(back.slot, 7u);
  EXPECT_EQ(back.group, asked.group);
  EXPECT_TRUE(back.leaves);
  MembershipChanged changed;
  ASSERT_TRUE(decode(encode(MembershipChanged{12}), changed));
  EXPECT_EQ(changed.error, 12);
}

TEST(Protocol, WhatIsToldOfAChangeRoundTrips) {
  DeviceInfo device = some_device();
  device.port_active = false;
  DeviceChanged changed;
  ASSERT_TRUE(decode(encode(DeviceChanged{9, device}), changed));
  EXPECT_EQ(changed.version, 9u);
  EXPECT_FALSE(changed.device.port_active);
  EXPECT_EQ(changed.device.gids, device.gids);
  GidsHeld held;
  ASSERT_TRUE(decode(encode(GidsHeld{9, {1, 2, 3, ~std::uint64_t{0}}}), held));
  EXPECT_EQ(held.version, 9u);
  EXPECT_EQ(held.indices, (std::array<std::uint64_t, 4>{1, 2, 3, ~std::uint64_t{0}}));
  Rejoin rejoin;
  ASSERT_TRUE(
      decode(encode(Rejoin{5, "x", {.name = "tulle0", .interfaces = "eth0"}, device}), rejoin));
  EXPECT_EQ(rejoin.choice.interfaces, "eth0");
  EXPECT_EQ(rejoin.device.gids, device.gids);
}

// The shim reads file texts from this message (shim/paths/recipes.c): a byte, a length, the text.
TEST(Protocol, AnAttributeIsAFlagAndAText) {
  const std::vector<std::byte> bytes = encode(Attribute{true, "4: ACTIVE"});
  ASSERT_EQ(bytes.size(), sizeof(MessageHeader) + 1 + 4 + 9);
  EXPECT_EQ(bytes[8], std::byte{1});
  EXPECT_EQ(bytes[9], std::byte{9});
  EXPECT_EQ(std::memcmp(bytes.data() + 13, "4: ACTIVE", 9), 0);
  EXPECT_EQ(encode(Attribute{})[8], std::byte{0});
}

// The shim reads the counters of files from the end of this message (shim/paths/recipes.c).
TEST(Protocol, AgentStatusEndsInItsCounters) {
  AgentStatus status;
  status.version = "1.2.3";
  status.slots = 127;
  for (std::size_t i = 0; i < counter_count; ++i) status.counters[i] = i * i + 1;
  const std::vector<std::byte> bytes = encode(status);
  AgentStatus back;
  ASSERT_TRUE(decode(bytes, back));
  EXPECT_EQ(back.slots, status.slots);
  EXPECT_EQ(back.counters, status.counters);
  decltype(status.counters) last;
  ASSERT_GT(bytes.size(), sizeof last);
  std::memcpy(last.data(), bytes.data() + bytes.size() - sizeof last, sizeof last);
  EXPECT_EQ(last, status.counters);
}

TEST(Protocol, StatusRoundTrips) {
  ProcessStatus status;
  status.pid = 4711;
  status.command = "x";
  status.connected = false;
  status.refusal = "ibv_modify_qp: no";
  for (std::size_t i = 0; i < counter_count; ++i) status.counters[i] = i * i;
  ProcessStatus back;
  ASSERT_TRUE(decode(encode(status), back));
  EXPECT_EQ(back.pid, 4711);
  EXPECT_FALSE(back.connected);
  EXPECT_EQ(back.refusal, status.refusal);
  EXPECT_EQ(back.counters, status.counters);
}

TEST(Protocol, OneKindIsNotAnother) {
  Opened opened;
  EXPECT_FALSE(decode(encode(Hello{}), opened));
  EXPECT_FALSE(decode(encode(End{}), opened));
}

TEST(Protocol, ARefusalIsReadAcrossVersions) {
  std::vector<std::byte> bytes = encode(Refused{"no"});
  const std::uint16_t version = 999;
  std::memcpy(bytes.data() + offsetof(MessageHeader, version), &version, sizeof(version));
  Refused refused;
  ASSERT_TRUE(decode(bytes, refused));
  EXPECT_EQ(refused.reason, "no");
  std::vector<std::byte> hello = encode(Hello{});
  std::memcpy(hello.data() + offsetof(MessageHeader, version), &version, sizeof(version));
  Hello ignored;
  EXPECT_FALSE(decode(hello, ignored));
}

TEST(Protocol, EveryCutIsIncomplete) {
  const std::vector<std::byte> whole = encode(Opened{some_device(), 5, 1, 2, 3});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Opened opened;
    EXPECT_FALSE(decode(std::span(whole).first(size), opened)) << size;
  }
}

TEST(Protocol, RubbishIsSafeToDecode) {
  constexpr std::uint64_t seed = 20'260'101;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  const std::vector<std::byte> whole = encode(Devices{{some_device(), some_device()}});
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = whole;
    for (int k = 0; k < 4; ++k) {
      const std::size_t at =
          sizeof(MessageHeader) + random.below(bytes.size() - sizeof(MessageHeader));
      bytes[at] = static_cast<std::byte>(random.next());
    }
    Devices devices;
    static_cast<void>(decode(bytes, devices));
    ASSERT_LE(devices.devices.size(), whole.size());
  }
}

}  // namespace
}  // namespace tulle::live
