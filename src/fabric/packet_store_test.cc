#include "fabric/packet_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

using Bytes = std::vector<std::byte>;
using port::FrameRef;

Bytes packet_to(Lid lid) {
  wire::LocalPath path;
  path.local.source = Lid(7);
  path.local.destination = lid;
  path.local.service_level = 3;
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::uc, wire::Operation::send_only);
  packet.destination_qp = QpNumber(0x1234);
  Bytes bytes(8 + wire::header_bytes(packet.opcode) + 20);
  const std::size_t link = port::encode_link_headers(path, bytes.size() - 8, bytes);
  wire::encode(packet, std::span(bytes).subspan(link));
  return bytes;
}

TEST(PacketStoreTest, AFrameHasThePacketsBytes) {
  PacketStore store(2);
  const Bytes sent = packet_to(Lid(9));
  const FrameRef ref = store.take_in(sent, 1);
  EXPECT_TRUE(std::ranges::equal(store.bytes_of(ref), sent));
  EXPECT_EQ(store[ref].source, 1u);
  EXPECT_EQ(store[ref].buffer_bytes, 512u) << "short packets take room, too";
  const FrameRef copy = store.copy(ref);
  EXPECT_NE(copy, ref);
  EXPECT_TRUE(std::ranges::equal(store.bytes_of(copy), sent));
  EXPECT_EQ(store[copy].source, 1u);
}

TEST(PacketStoreTest, HeadersSayWhereThePacketGoes) {
  PacketStore store(1);
  const FrameRef ref = store.take_in(packet_to(Lid(9)), 0);
  wire::LocalPath path;
  ASSERT_TRUE(store.read_headers(ref, path));
  EXPECT_EQ(path.local.source, Lid(7));
  EXPECT_EQ(store[ref].destination, 9u);
  EXPECT_EQ(store[ref].service_level, 3u);
  const auto header = std::span(store[ref].header).first<sizeof(wire::Bth)>();
  EXPECT_EQ(wire::peek_destination_qp(header), QpNumber(0x1234));
}

TEST(PacketStoreTest, WhatHasNoDestinationIsNoPacket) {
  PacketStore store(1);
  wire::LocalPath path;
  for (const Lid lid : {Lid(0), Lid(wire::permissive_lid)}) {
    EXPECT_FALSE(store.read_headers(store.take_in(packet_to(lid), 0), path));
  }
  EXPECT_FALSE(store.read_headers(store.take_in({}, 0), path));
  EXPECT_FALSE(store.read_headers(store.take_in(Bytes(19), 0), path));
}

TEST(PacketStoreTest, AHostHasAShareAndALittleAlways) {
  constexpr std::uint32_t hosts = 6;
  PacketStore store(hosts);
  std::vector<FrameRef> of_first;
  for (std::uint32_t host = 0; host < 4; ++host) {
    std::uint32_t taken = 0;
    for (; store.has_place(host); ++taken) {
      const FrameRef ref = store.take_in({}, host);
      if (host == 0) of_first.push_back(ref);
    }
    EXPECT_EQ(taken, PacketStore::packets_of_host_max);
  }
  // There is no place any more, and yet some for those who have little under way.
  for (const std::uint32_t host : {4u, store.elsewhere()}) {
    std::uint32_t taken = 0;
    for (; store.has_place(host); ++taken) store.take_in({}, host);
    EXPECT_EQ(taken, 16u);
  }
  for (const FrameRef ref : of_first) store.give(ref);
  EXPECT_TRUE(store.has_place(0));
  EXPECT_FALSE(store.has_place(1)) << "its share is used up";
  EXPECT_TRUE(store.has_place(store.elsewhere()));
}

}  // namespace
}  // namespace tulle::fabric
