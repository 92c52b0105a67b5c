#include "os/service_process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>

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

// A listening socket in the abstract namespace, and clients of it.
class ListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    name_.sun_family = AF_UNIX;
    const int bound = bind(socket.get(), reinterpret_cast<sockaddr*>(&name_), sizeof(sa_family_t));
    socklen_t bytes = sizeof(name_);
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name_), &bytes);
    name_bytes_ = bytes;
    ASSERT_EQ(bound | listen(socket.get(), 8), 0);
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    listener_ = WatchedListener(std::move(socket), epoll_.get());
  }
  UniqueFd connect() {
    UniqueFd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&name_), name_bytes_), 0);
    return client;
  }
  bool is_reported(Time longest) {
    std::array<epoll_event, 4> events{};
    return wait_for_events(epoll_.get(), events, longest) == 1;
  }

  sockaddr_un name_{};
  socklen_t name_bytes_ = 0;
  UniqueFd epoll_;
  WatchedListener listener_;
};

TEST_F(ListenerTest, Accepts) {
  EXPECT_FALSE(listener_.accept());
  const UniqueFd client = connect();
  EXPECT_TRUE(is_reported(Time::seconds(20)));
  EXPECT_TRUE(listener_.accept());
  EXPECT_FALSE(listener_.is_paused());
}

TEST_F(ListenerTest, WithoutADescriptorItPausesAndNobodyWaits) {
  const UniqueFd client = connect();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  const auto began = WatchedListener::Clock::now();
  const bool accepted = static_cast<bool>(listener_.accept());
  EXPECT_FALSE(accepted);
  EXPECT_TRUE(listener_.is_paused());
  EXPECT_LE(listener_.resumes_at(), WatchedListener::Clock::now() + std::chrono::milliseconds(10));
  EXPECT_GT(listener_.resumes_at(), began);
  EXPECT_FALSE(is_reported(Time::zero())) << "the epoll would report it without end";
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(listener_.accept()) << "the pause is not over";
  std::this_thread::sleep_until(listener_.resumes_at());
  listener_.resume();
  EXPECT_FALSE(listener_.is_paused());
  EXPECT_TRUE(is_reported(Time::seconds(20)));
  EXPECT_TRUE(listener_.accept());
}

}  // namespace
}  // namespace tulle
