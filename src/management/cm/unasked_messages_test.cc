#include "management/cm/unasked_messages.h"

#include <gtest/gtest.h>

namespace tulle::management::cm {
namespace {

Gid address(std::uint32_t number) { return Gid::from_ipv4(0x0A00'0000 + number); }

std::uint32_t sent(UnaskedMessages& messages, Time now, std::uint32_t tries) {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < tries; ++i) count += messages.may_send(now, address(i)) ? 1u : 0u;
  return count;
}

TEST(UnaskedMessages, StrangersGetAFewAndThenOneASecond) {
  UnaskedMessages messages;
  Time now = Time::seconds(1'000);
  EXPECT_EQ(sent(messages, now, 1'000), UnaskedMessages::at_once_max);
  EXPECT_EQ(sent(messages, now + Time::milliseconds(999), 10), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sent(messages, now += Time::seconds(1), 10), 1u);
  EXPECT_EQ(sent(messages, now += Time::seconds(7), 100), 7u);
  EXPECT_EQ(sent(messages, now += Time::seconds(1'000'000), 1'000), UnaskedMessages::at_once_max);
  EXPECT_EQ(sent(messages, now, 10), 0u);
}

TEST(UnaskedMessages, AClockThatMovesItsZeroChangesNothing) {
  UnaskedMessages messages;
  EXPECT_EQ(sent(messages, Time::seconds(1'000), 1'000), UnaskedMessages::at_once_max);
  messages.rebase(Time::seconds(900));
  EXPECT_EQ(sent(messages, Time::milliseconds(100'999), 10), 0u);
  EXPECT_EQ(sent(messages, Time::seconds(107), 100), 7u);
}

TEST(UnaskedMessages, AnAddressThatHasProvenItselfGetsAll) {
  UnaskedMessages messages;
  const Time now = Time::seconds(1);
  messages.prove(address(5));
  for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(messages.may_send(now, address(5)));
  EXPECT_EQ(sent(messages, now, 1'000), UnaskedMessages::at_once_max + 1);
}

TEST(UnaskedMessages, RemembersTheLatestAddresses) {
  UnaskedMessages messages;
  const Time now = Time::seconds(1);
  constexpr auto most = static_cast<std::uint32_t>(UnaskedMessages::addresses_max);
  for (std::uint32_t i = 0; i < 3 * most; ++i) messages.prove(address(i));
  sent(messages, now, UnaskedMessages::at_once_max);  // of addresses that are forgotten
  EXPECT_FALSE(messages.may_send(now, address(0)));
  for (std::uint32_t i = 2 * most; i < 3 * most; ++i) {
    EXPECT_TRUE(messages.may_send(now, address(i)));
  }
}

}  // namespace
}  // namespace tulle::management::cm
