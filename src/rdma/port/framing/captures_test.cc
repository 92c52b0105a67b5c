// Reads and rewrites the packets that two Linux kernels (rdma_rxe, 6.1) exchanged. The files are
// named after the events in them. roce_bad_icrc has one packet that was damaged on the way.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "rdma/port/framing/pcap_test.h"
#include "rdma/port/framing/roce_v2.h"

namespace tulle::port {
namespace {

std::size_t damaged_packets(const std::filesystem::path& file) {
  return file.filename() == "roce_bad_icrc.pcap" ? 1 : 0;
}

TEST(CapturesTest, every_packet_is_read_and_written_again_byte_for_byte) {
  std::size_t packets = 0;
  for (const auto& file : capture_files()) {
    SCOPED_TRACE(file.filename());
    std::size_t damaged = 0;
    for (const Captured& captured : roce_packets(file)) {
      SCOPED_TRACE(testing::Message() << "frame " << captured.frame);
      ++packets;
      wire::Packet packet;
      std::span<const std::byte> payload;
      const Verdict verdict = decode(captured.ip, true, captured.datagram(), packet, payload);
      if (verdict == Verdict::bad_icrc) {
        ++damaged;
        continue;
      }
      ASSERT_EQ(verdict, Verdict::ok);

      FrameBytes frame;
      encode(captured.ip, packet, std::array{payload}, frame);
      std::vector<std::byte> written(captured.header_bytes);
      ASSERT_EQ(wire::encode(captured.ip, captured.datagram().size(), written), written.size());
      written.insert(written.end(), frame.head.begin(), frame.head.begin() + frame.head_bytes);
      written.insert(written.end(), payload.begin(), payload.end());
      written.insert(written.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
      EXPECT_EQ(written, captured.bytes);
    }
    EXPECT_EQ(damaged, damaged_packets(file));
  }
  EXPECT_GT(packets, 1000u);
}

// Returns the header as a socket reports it, without the sender's identification and DF.
wire::IpUdp guessed(wire::IpUdp ip) {
  ip.identification = 0;
  ip.dont_fragment = true;
  return ip;
}

TEST(CapturesTest, every_good_packet_is_accepted_without_its_identification) {
  std::size_t identified = 0;
  for (const auto& file : capture_files()) {
    SCOPED_TRACE(file.filename());
    std::size_t damaged = 0;
    for (const Captured& captured : roce_packets(file)) {
      identified += captured.ip.identification != 0;
      wire::Packet packet;
      std::span<const std::byte> payload;
      const auto ip = guessed(captured.ip);
      const Verdict verdict = decode(ip, false, captured.datagram(), packet, payload);
      damaged += verdict == Verdict::bad_icrc;
      EXPECT_TRUE(verdict == Verdict::ok || verdict == Verdict::bad_icrc);
      if (captured.ip.identification != 0 && wire::is_ipv4(ip)) {
        EXPECT_EQ(decode(ip, true, captured.datagram(), packet, payload), Verdict::bad_icrc);
      }
    }
    EXPECT_EQ(damaged, damaged_packets(file));
  }
  EXPECT_GT(identified, 500u);  // otherwise this test has shown little
}

// True for a flip that the ICRC does not cover: BTH byte 4, which routers may change.
bool is_masked(std::size_t bit) { return bit / 8 == 4; }

void flip(std::vector<std::byte>& datagram, std::size_t bit) {
  datagram[bit / 8] ^= std::byte{1} << (bit % 8);
}

// Damages packets of all files by `flips` random bits. Returns {tried, accepted}.
std::pair<std::size_t, std::size_t> try_damage(bool identification_known, int flips, int rounds,
                                               std::uint64_t seed) {
  Random random(seed);
  std::size_t tried = 0, accepted = 0;
  for (const auto& file : capture_files()) {
    if (damaged_packets(file) > 0) continue;
    for (const Captured& captured : roce_packets(file)) {
      const auto ip = identification_known ? captured.ip : guessed(captured.ip);
      const auto good = captured.datagram();
      for (int round = 0; round < rounds; ++round) {
        std::vector<std::byte> damaged(good.begin(), good.end());
        for (int i = 0; i < flips; ++i) {
          std::size_t bit = random.below(8 * good.size());
          while (is_masked(bit)) bit = random.below(8 * good.size());
          flip(damaged, bit);
        }
        if (std::equal(damaged.begin(), damaged.end(), good.begin())) continue;
        wire::Packet packet;
        std::span<const std::byte> payload;
        ++tried;
        accepted += decode(ip, identification_known, damaged, packet, payload) != Verdict::bad_icrc;
      }
    }
  }
  return {tried, accepted};
}

// The seeds are fixed, as the bounds are statistical. With the identification known, CRC-32 detects
// up to three flips in packets of this length without exception.
TEST(CapturesTest, flipped_bits_are_refused_where_the_identification_is_known) {
  for (const int flips : {1, 2, 3, 8, 50}) {
    const auto [tried, accepted] = try_damage(true, flips, 10, 100 + flips);
    EXPECT_GT(tried, 10'000u);
    EXPECT_EQ(accepted, 0u) << flips << " flips";
  }
}

// rdma/wire/icrc.h states the odds. A single flip passes more often in packets of a kilobyte, since
// it is one of few bits that an identification explains away.
TEST(CapturesTest, flipped_bits_seldom_pass_where_it_is_not) {
  for (const int flips : {1, 2, 3, 8, 50}) {
    const auto [tried, accepted] = try_damage(false, flips, 60, 200 + flips);
    const double rate = static_cast<double>(accepted) / static_cast<double>(tried);
    RecordProperty("flips_" + std::to_string(flips),
                   std::to_string(accepted) + " of " + std::to_string(tried));
    EXPECT_GT(tried, 60'000u);
    EXPECT_LT(rate, flips == 1 ? 1.0 / 4096 : 3.0 / 32768) << accepted << " of " << tried;
  }
}

}  // namespace
}  // namespace tulle::port
