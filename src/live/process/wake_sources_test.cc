#include "live/process/wake_sources.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "os/unique_fd.h"

namespace tulle::live {
namespace {

class SocketLink final : public Link {
 public:
  SocketLink(int fd, bool wakes_sleepers) : fd_(fd), wakes_sleepers_(wakes_sleepers) {}
  int receive(device::Adapter&, Time) override { return 0; }
  int receiving_socket() const override { return fd_; }
  bool wakes_sleepers() const override { return wakes_sleepers_; }

 private:
  int fd_;
  bool wakes_sleepers_;
};

class WakeSourcesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(sources.open()); }
  // Returns the descriptors of the events that there are.
  std::vector<int> woken(Time longest = Time::zero()) {
    std::vector<int> fds;
    for (const epoll_event& event : sources.wait(longest)) {
      fds.push_back(static_cast<int>(event.data.u64));
    }
    return fds;
  }

  WakeSources sources;
  DriverClock clock;
};

TEST_F(WakeSourcesTest, CallersWakeTheThread) {
  EXPECT_TRUE(woken().empty());
  sources.wake();
  EXPECT_EQ(woken(), std::vector{sources.wake_fd()});
  sources.take_wake(sources.wake_fd() + 1);
  EXPECT_EQ(woken(), std::vector{sources.wake_fd()});
  sources.take_wake(sources.wake_fd());
  EXPECT_TRUE(woken().empty());
}

TEST_F(WakeSourcesTest, TheTimerKeepsTheEarliestTime) {
  const Time now = clock.peek();
  sources.wake_at(now + Time::milliseconds(1), clock);
  sources.wake_at(now + Time::seconds(1'000), clock);
  const auto fds = woken(Time::seconds(100));
  ASSERT_EQ(fds.size(), 1u);
  EXPECT_TRUE(sources.is_timer(fds[0]));
  sources.take_timer();
  EXPECT_TRUE(woken().empty());
  sources.end_timer();
  sources.wake_at(clock.peek() + Time::milliseconds(1), clock);
  EXPECT_EQ(woken(Time::seconds(100)), fds);
}

TEST_F(WakeSourcesTest, TheSocketsOfLinksAreWatchedAsTheyAreServed) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd readable(ends[0]), other(ends[1]);
  ASSERT_EQ(send(other.get(), "x", 1, 0), 1);
  EXPECT_TRUE(what_waits_at({readable.get(), -1}).ring);
  EXPECT_FALSE(what_waits_at({other.get(), -1}).ring);
  EXPECT_TRUE(what_waits_at({other.get(), readable.get()}).datagram);
  SocketLink waking(readable.get(), true), none(-1, false);
  const std::vector<Link*> links = {&none, &waking};
  sources.set_links(1);
  sources.add_first_link();
  sources.watch_links(links, {.waking = false, .others = true});
  EXPECT_TRUE(woken().empty());
  sources.watch_links(links, {.waking = true, .others = false});
  EXPECT_EQ(woken(), std::vector{readable.get()});
  sources.watch_links(links, {.waking = false, .others = true});
  EXPECT_TRUE(woken().empty());
}

TEST_F(WakeSourcesTest, SocketsAreForgottenThoughAnotherProcessMayHaveThem) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd readable(ends[0]), other(ends[1]);
  ASSERT_EQ(send(other.get(), "x", 1, 0), 1);
  SocketLink link(readable.get(), true);
  const std::vector<Link*> links = {&link};
  sources.set_links(1);
  sources.watch_links(links, {});
  EXPECT_EQ(woken(), std::vector{readable.get()});
  sources.forget_links();
  EXPECT_TRUE(woken().empty());
  sources.watch_links(links, {});
  EXPECT_EQ(woken(), std::vector{readable.get()});
  sources.lose_links();
  sources.watch_links(links, {});
  EXPECT_TRUE(woken().empty()) << "they are lost for good";
}

}  // namespace
}  // namespace tulle::live
