// Tests of the tap of a capture: what it mirrors, and what a slow reader can cost.

#include "live/path/packets/capture_tap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <time.h>

#include <vector>

namespace tulle::live {
namespace {

class CaptureTapTest : public testing::Test {
 protected:
  CaptureTapTest() {
    auto ring = CaptureRing::create(1 << 20);
    auto reader = CaptureRing::map(UniqueFd(fcntl(ring->fd(), F_DUPFD_CLOEXEC, 0)));
    reader_.emplace(std::move(*reader));
    tap_.open(std::move(*ring), 0);
  }
  static wire::IpUdp ipv6() {
    wire::IpUdp ip;
    ip.source.bytes[0] = ip.destination.bytes[0] = 0xFD;
    ip.source.bytes[15] = 1;
    return ip;
  }
  void receive(std::size_t bytes) { tap_.received(ipv6(), std::vector<std::byte>(bytes)); }
  int frames() {
    CapturedFrame frame;
    std::vector<std::byte> bytes;
    int count = 0;
    while (reader_->read(frame, bytes)) ++count;
    return count;
  }
  static double seconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  CaptureTap tap_;
  std::optional<CaptureRing> reader_;
};

// Anybody may send such datagrams to the port.
TEST_F(CaptureTapTest, TheLongestDatagramsAreMirrored) {
  CapturedFrame frame;
  std::vector<std::byte> bytes;
  receive(65'527);
  ASSERT_TRUE(reader_->read(frame, bytes));
  EXPECT_EQ(frame.original_bytes, 65'527u + 48u);
  wire::IpUdp ip;
  ip.source = Gid::from_ipv4(0x0A00'0001);
  ip.destination = Gid::from_ipv4(0x0A00'0002);
  tap_.received(ip, std::vector<std::byte>(65'507));
  ASSERT_TRUE(reader_->read(frame, bytes));
  EXPECT_EQ(frame.original_bytes, 65'535u);
}

// Each frame may wait 2 ms for room. A thousand frames must not wait for a reader that was stopped.
TEST_F(CaptureTapTest, NobodyWaitsForAReaderThatDoesNotRead) {
  const double before = seconds();
  for (int i = 0; i < 1'300; ++i) receive(1'000);
  EXPECT_LT(seconds() - before, 1'000 * 0.002 / 4);
  EXPECT_GT(reader_->dropped(), 100u);
  // Once there is room again, frames are kept again.
  EXPECT_GT(frames(), 900);
  receive(1'000);
  EXPECT_EQ(frames(), 1);
}

}  // namespace
}  // namespace tulle::live
