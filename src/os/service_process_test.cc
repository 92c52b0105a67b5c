#include "os/service_process.h"

#include <gtest/gtest.h>
#include <sys/timerfd.h>

#include <array>

namespace tulle {
namespace {

// Something happens after `seconds` at the latest, so that a wait for ever is found.
struct Waited {
  explicit Waited(time_t seconds)
      : epoll(epoll_create1(EPOLL_CLOEXEC)), timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
    const itimerspec setting{{}, {seconds, 1}};
    timerfd_settime(timer.get(), 0, &setting, nullptr);
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event);
  }
  int wait(Time longest) { return wait_for_events(epoll.get(), events, longest); }

  UniqueFd epoll;
  UniqueFd timer;
  std::array<epoll_event, 4> events{};
};

TEST(ServiceProcessTest, ATimeThatIsOverIsNotWaitedFor) {
  Waited waited(20);
  EXPECT_EQ(waited.wait(Time::zero()), 0);
  EXPECT_EQ(waited.wait(Time::zero() - Time::nanoseconds(43)), 0);
  EXPECT_EQ(waited.wait(Time::zero() - Time::seconds(43)), 0);
  EXPECT_EQ(waited.wait(Time::picoseconds(1)), 0);
  EXPECT_EQ(waited.wait(Time::microseconds(200)), 0);
}

TEST(ServiceProcessTest, AWaitForEverEndsWithAnEvent) {
  Waited waited(0);
  EXPECT_EQ(waited.wait(Time::never()), 1);
  EXPECT_EQ(waited.wait(Time::seconds(86'400)), 1);
}

}  // namespace
}  // namespace tulle
