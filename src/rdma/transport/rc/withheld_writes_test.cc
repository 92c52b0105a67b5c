// WRITEs of several packets to a device that withholds payload, while the peer's right is revoked.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>

#include "rdma/transport/rc/requests_test.h"
#include "rdma/transport/withheld.h"

namespace tulle::transport::rc {
namespace {

using testing::Host;
using testing::iova;
using verbs::Access;

constexpr std::byte written{0xEE};

// A host with a window of type 2 on the first two packets' worth of its region.
class WithheldWritesTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t packet_bytes = 256;

  WithheldWritesTest() {
    host_.environment.withheld = std::make_unique<Withheld>();
    host_.to_rtr();
    host_.to_rts();
    window_.type = verbs::WindowType::type2;
    window_.pd = &host_.pd;
    host_.environment.keys.add(window_);
    bind(0, 2 * packet_bytes);
  }

  // The number of the window's key stays as it is.
  void bind(std::uint64_t offset, std::uint64_t bytes) {
    const verbs::WindowBinding binding{&host_.region, iova + offset, bytes, Access::remote_write,
                                       RemoteKey{window_.key}};
    ASSERT_TRUE(host_.environment.keys.bind(window_, host_.pd, host_.qp->number, binding));
  }
  void revoke() {
    ASSERT_TRUE(host_.environment.keys.invalidate(window_.rkey(), host_.pd, host_.qp->number));
  }
  void write_first() {
    auto packet = request(wire::Operation::write_first, 0);
    packet.virtual_address = iova;
    packet.rkey = window_.rkey();
    packet.dma_length = 2 * packet_bytes;
    host_.deliver(packet, payload_);
  }
  void write_last() { host_.deliver(request(wire::Operation::write_last, 1), payload_); }
  bool has_first() const { return host_.memory[0] == written; }

  Host host_;
  verbs::MemoryWindow window_;
  std::array<std::byte, packet_bytes> payload_ = [] {
    std::array<std::byte, packet_bytes> made;
    made.fill(written);
    return made;
  }();
};

TEST_F(WithheldWritesTest, TheFirstPacketComesWithTheLast) {
  write_first();
  EXPECT_FALSE(has_first());
  write_last();
  EXPECT_TRUE(has_first());
  EXPECT_EQ(host_.memory[packet_bytes], written);
}

TEST_F(WithheldWritesTest, AKeyThatIsGoodForAnotherPartBringsNoFirstPacket) {
  write_first();
  revoke();
  bind(packet_bytes, packet_bytes);
  write_last();
  EXPECT_FALSE(has_first());
  EXPECT_EQ(host_.qp->state(), verbs::QpState::error);
}

}  // namespace
}  // namespace tulle::transport::rc
