// A link of a live device is a folder and a line: courier/ is a folder outside src/, and one line
// of this file gives it to a device. The device has no host agent, socket or fabric.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "courier/courier.h"
#include "live/process/device_impl.h"
#include "live/process/two_devices_test.h"

namespace tulle::live {
namespace {

std::shared_ptr<Device> device_on(std::shared_ptr<courier::Road> road, std::size_t end) {
  auto counters = CountersPage::create();
  auto bell = create_bell();
  if (!counters || !bell) return nullptr;
  Device::Impl::Grant grant;
  grant.info.name = "courier" + std::to_string(end);
  grant.info.gids = {{Gid::from_ipv4(0x0A00'0001 + static_cast<std::uint32_t>(end)), 0, "none"}};
  grant.first_qp = QpNumber{static_cast<std::uint32_t>(0x1000 * (end + 1))};
  grant.qp_count = 64;
  grant.counters = std::move(*counters);
  grant.bell = std::move(*bell);
  grant.network = std::make_unique<courier::CourierNetwork>(std::move(road), end);  // the line
  auto device =
      Device::start(std::make_unique<Device::Impl>(std::move(grant), Settings{}, count_event));
  return device ? *device : nullptr;
}

class CourierTest : public testing::TestWithParam<bool> {};

TEST_P(CourierTest, CarriesWritesAndReads) {
  const bool polls = GetParam();
  const auto road = std::make_shared<courier::Road>();
  DeviceEnd one(device_on(road, 0));
  DeviceEnd two(device_on(road, 1));
  ASSERT_TRUE(one.device && two.device);
  one.connect(two, 0);
  two.connect(one, 0);
  constexpr std::uint32_t bytes = 300'000;
  for (std::size_t i = 0; i < bytes; ++i) one.buffer[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const auto opcode : {verbs::SendOpcode::write, verbs::SendOpcode::read}) {
    one.transfer(two, opcode, bytes);
    ASSERT_EQ(one.completion(polls), verbs::CompletionStatus::success);
    {
      const auto first = one.device->lock();
      const auto second = two.device->lock();
      EXPECT_EQ(std::memcmp(one.buffer.data(), two.buffer.data(), bytes), 0);
    }
    std::memset(one.buffer.data(), 0, bytes);
  }
  const auto lock = two.device->lock();
  EXPECT_GE(two.device->adapter().counters().packets_received, bytes / 1'024);
}

TEST_P(CourierTest, AnotherNetworksVerbsAreRefused) {
  const auto device = device_on(std::make_shared<courier::Road>(), 0);
  ASSERT_TRUE(device);
  const auto lock = device->lock();
  EXPECT_EQ(device->may_use_packets(), EOPNOTSUPP) << "it has no frames";
  EXPECT_EQ(device->open_packets(), EOPNOTSUPP);
  EXPECT_EQ(device->join(Gid::from_ipv4(0xE000'0001)), 0) << "it has nothing to join";
}

INSTANTIATE_TEST_SUITE_P(All, CourierTest, testing::Bool(), [](const auto& test) {
  return test.param ? "TheProgramPolls" : "TheThreadServes";
});

}  // namespace
}  // namespace tulle::live
