#include "live/path/packets/fault_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tulle::live {
namespace {

fabric::FaultSettings settings(std::string_view text) {
  return std::get<fabric::FaultSettings>(fabric::parse_faults(text));
}

std::vector<std::byte> datagram(int number) {
  return std::vector<std::byte>(100, static_cast<std::byte>(number));
}

void offer(FaultLine& line, Time now, int number) {
  const std::vector<std::byte> bytes = datagram(number);
  const std::span<const std::byte> whole = bytes;
  const std::array<std::span<const std::byte>, 2> pieces = {whole.first(10), whole.subspan(10)};
  line.offer(now, {}, pieces);
}

std::vector<int> release(FaultLine& line, Time now) {
  std::vector<int> numbers;
  line.release(now, [&](const wire::IpUdp&, std::span<const std::byte> bytes) {
    const int number = bytes.empty() ? -1 : static_cast<int>(bytes[0]);
    const std::vector<std::byte> whole = datagram(number);
    const bool is_whole = std::equal(bytes.begin(), bytes.end(), whole.begin(), whole.end());
    numbers.push_back(is_whole ? number : -1);
  });
  return numbers;
}

TEST(FaultLine, DelaysWithoutReordering) {
  FaultLine line(settings("delay=10us"));
  EXPECT_TRUE(line.next_deadline().is_never());
  for (int i = 0; i < 5; ++i) offer(line, Time::microseconds(1), i);
  EXPECT_EQ(line.next_deadline(), Time::microseconds(11));
  EXPECT_TRUE(release(line, Time::microseconds(10)).empty());
  EXPECT_EQ(release(line, Time::microseconds(11)), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(line.next_deadline().is_never());
}

TEST(FaultLine, DropsDuplicatesAndDamages) {
  FaultLine drop(settings("drop=1"));
  offer(drop, Time::zero(), 1);
  EXPECT_TRUE(release(drop, Time::seconds(1)).empty());
  FaultLine twice(settings("duplicate=1"));
  offer(twice, Time::zero(), 2);
  EXPECT_EQ(release(twice, Time::zero()), (std::vector<int>{2, 2}));
  FaultLine damage(settings("corrupt=1"));
  for (int i = 0; i < 100; ++i) offer(damage, Time::zero(), i);
  EXPECT_EQ(release(damage, Time::zero()), std::vector<int>(100, -1));
}

TEST(FaultLine, SomeAreOvertaken) {
  FaultLine line(settings("reorder=0.2,reorder_delay=100us,seed=3"));
  for (int i = 0; i < 100; ++i) offer(line, Time::microseconds(i), i);
  std::vector<int> out = release(line, Time::seconds(1));
  ASSERT_EQ(out.size(), 100u);
  EXPECT_FALSE(std::is_sorted(out.begin(), out.end()));
  std::sort(out.begin(), out.end());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(out[i], i);
}

TEST(FaultLine, TooManyHeldAreDroppedAndCounted) {
  FaultLine line(settings("delay=1s"));
  for (int i = 0; i < 3'000; ++i) offer(line, Time::zero(), i);
  EXPECT_GT(line.overflows(), 0u);
  EXPECT_EQ(release(line, Time::seconds(1)).size() + line.overflows(), 3'000u);
}

}  // namespace
}  // namespace tulle::live
