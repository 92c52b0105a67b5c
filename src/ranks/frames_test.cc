#include "ranks/frames.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace tulle::ranks {
namespace {

constexpr std::chrono::milliseconds limit{1'000};

class FrameSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    here = FrameSocket(UniqueFd(ends[0]), 64);
    raw = UniqueFd(ends[1]);
  }
  void say(const void* bytes, std::size_t length) {
    ASSERT_EQ(send(raw.get(), bytes, length, 0), static_cast<ssize_t>(length));
  }
  FrameSocket here;
  UniqueFd raw;
};

TEST_F(FrameSocketTest, FramesComeWholeAndInOrder) {
  FrameSocket there(UniqueFd(raw.release()));
  ASSERT_TRUE(there.send(FrameKind::ready, std::uint64_t{7}, limit));
  ASSERT_TRUE(there.send(FrameKind::go, limit));
  ASSERT_TRUE(here.read());
  const auto first = here.take();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, FrameKind::ready);
  EXPECT_EQ(first->as<std::uint64_t>(), 7u);
  EXPECT_FALSE(first->as<std::uint32_t>());
  ASSERT_TRUE(here.read());
  EXPECT_EQ(here.take()->kind, FrameKind::go);
  EXPECT_FALSE(here.take());
}

TEST_F(FrameSocketTest, APartOfAFrameIsKept) {
  const std::uint32_t head[] = {4, static_cast<std::uint32_t>(FrameKind::failed)};
  say(head, sizeof head);
  say("ab", 2);
  ASSERT_TRUE(*here.read());
  EXPECT_FALSE(here.take());
  say("cd", 2);
  ASSERT_TRUE(*here.read());
  EXPECT_EQ(here.take()->text(), "abcd");
}

TEST_F(FrameSocketTest, APartOfAHeadIsKept) {
  const std::uint32_t head[] = {0, static_cast<std::uint32_t>(FrameKind::go)};
  say(head, 1);
  ASSERT_TRUE(*here.read());
  EXPECT_FALSE(here.take());
  say(reinterpret_cast<const char*>(head) + 1, sizeof head - 1);
  ASSERT_TRUE(*here.read());
  EXPECT_EQ(here.take()->kind, FrameKind::go);
}

TEST_F(FrameSocketTest, AFrameThatIsTooLongIsAnError) {
  const std::uint32_t head[] = {65, 1};
  say(head, sizeof head);
  EXPECT_FALSE(here.read());
  EXPECT_FALSE(here.take());
}

TEST_F(FrameSocketTest, TheEndIsToldApart) {
  raw.reset();
  auto is_open = here.read();
  ASSERT_TRUE(is_open);
  EXPECT_FALSE(*is_open);
}

TEST_F(FrameSocketTest, APeerThatDoesNotReadIsWaitedForABoundedTime) {
  const std::vector<std::byte> much(1u << 20);
  FrameSocket there(UniqueFd(raw.release()), 4u << 20);
  auto sent = there.send_bytes(FrameKind::failed, much, std::chrono::milliseconds(20));
  for (int i = 0; i < 8 && sent; ++i) {
    sent = there.send_bytes(FrameKind::failed, much, std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(sent);
}

}  // namespace
}  // namespace tulle::ranks
