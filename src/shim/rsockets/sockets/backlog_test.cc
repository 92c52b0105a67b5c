#include "shim/rsockets/sockets/backlog.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>

namespace tulle::rsockets {
namespace {

using Numbers = Backlog<int>;

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

TEST(BacklogTest, StreamsWaitInOrder) {
  Numbers backlog;
  ASSERT_EQ(backlog.open(5), 0);
  EXPECT_EQ(backlog.take(), nullptr);
  for (const int number : {1, 2}) backlog.add(std::make_shared<int>(number));
  for (const int number : {1, 2}) {
    EXPECT_TRUE(is_readable(backlog.fd()));
    EXPECT_EQ(*backlog.take(), number);
  }
  EXPECT_TRUE(backlog.is_empty());
  EXPECT_FALSE(is_readable(backlog.fd()));
}

TEST(BacklogTest, AFullOneTakesNoRequests) {
  Numbers backlog;
  ASSERT_EQ(backlog.open(2), 0);
  for (const int number : {1, 2}) {
    EXPECT_TRUE(backlog.may_take_request());
    backlog.add(std::make_shared<int>(number));
  }
  EXPECT_FALSE(backlog.take_room());
  EXPECT_FALSE(backlog.may_take_request());
  static_cast<void>(backlog.take());
  EXPECT_TRUE(backlog.take_room());
  EXPECT_FALSE(backlog.take_room());
  EXPECT_TRUE(backlog.may_take_request());
}

TEST(BacklogTest, FewRequestsAreAnsweredAtATime) {
  Numbers backlog;
  ASSERT_EQ(backlog.open(1'000), 0);
  for (std::size_t i = 0; i < Numbers::unanswered_max; ++i) {
    EXPECT_TRUE(backlog.may_take_request());
    backlog.begin_answer();
  }
  EXPECT_FALSE(backlog.may_take_request());
  backlog.end_answer();
  EXPECT_TRUE(backlog.may_take_request());
}

TEST(BacklogTest, TheOldestHalfOpenStreamMakesRoom) {
  Numbers backlog;
  ASSERT_EQ(backlog.open(1), 0);
  EXPECT_GE(backlog.most_half_open(), Numbers::half_open_min);
  EXPECT_LE(backlog.most_half_open(), Numbers::half_open_max);
  const auto first = std::make_shared<int>(1);
  const auto second = std::make_shared<int>(2);
  backlog.add_half_open(first);
  backlog.add_half_open(second);
  EXPECT_EQ(backlog.take_half_open(3), nullptr);
  EXPECT_EQ(backlog.take_half_open(2), first);
  backlog.remove_half_open(second);
  EXPECT_EQ(backlog.take_half_open(1), nullptr);
}

TEST(BacklogTest, AStoppedListenerIsReadable) {
  Numbers backlog;
  ASSERT_EQ(backlog.open(1), 0);
  backlog.stop();
  EXPECT_TRUE(backlog.is_stopped());
  EXPECT_TRUE(is_readable(backlog.fd()));
}

TEST(BacklogTest, AllThatIsLeftIsTaken) {
  Numbers backlog;
  ASSERT_EQ(backlog.open(1), 0);
  backlog.add_half_open(std::make_shared<int>(1));
  backlog.add(std::make_shared<int>(2));
  const auto left = backlog.take_all();
  EXPECT_EQ(left.half_open.size(), 1u);
  EXPECT_EQ(left.accepted.size(), 1u);
  EXPECT_TRUE(backlog.is_empty());
}

}  // namespace
}  // namespace tulle::rsockets
