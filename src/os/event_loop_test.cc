#include "os/event_loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

namespace tulle {
namespace {

EventLoop make_loop() {
  auto loop = EventLoop::create();
  EXPECT_TRUE(loop);
  return std::move(*loop);
}

// Something happens after `seconds` at the latest, so that a wait for ever is found.
struct Waited {
  explicit Waited(time_t seconds) : timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
    const itimerspec setting{{}, {seconds, 1}};
    timerfd_settime(timer.get(), 0, &setting, nullptr);
    loop.watch(timer.get(), EPOLLIN, 7);
  }
  std::size_t wait(Time longest) { return loop.wait(longest).size(); }

  EventLoop loop = make_loop();
  UniqueFd timer;
};

TEST(EventLoop, ATimeThatIsOverIsNotWaitedFor) {
  Waited waited(20);
  EXPECT_EQ(waited.wait(Time::zero()), 0u);
  EXPECT_EQ(waited.wait(Time::zero() - Time::nanoseconds(43)), 0u);
  EXPECT_EQ(waited.wait(Time::zero() - Time::seconds(43)), 0u);
  EXPECT_EQ(waited.wait(Time::picoseconds(1)), 0u);
  EXPECT_EQ(waited.wait(Time::microseconds(200)), 0u);
  EXPECT_EQ(waited.wait(Time::milliseconds(1)), 0u);
}

TEST(EventLoop, NoWaitEndsTooEarly) {
  Waited waited(20);
  for (const Time longest : {Time::picoseconds(1'500), Time::microseconds(300),
                             Time::milliseconds(2), Time::microseconds(1'700)}) {
    const auto began = std::chrono::steady_clock::now();
    waited.wait(longest);
    const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - began;
    EXPECT_GE(passed.count(), longest.to_nanoseconds());
  }
}

TEST(EventLoop, AWaitForEverEndsWithAnEvent) {
  Waited waited(0);
  EXPECT_EQ(waited.wait(Time::never()), 1u);
  EXPECT_EQ(waited.wait(Time::seconds(86'400)), 1u);
}

TEST(EventLoop, AnEventHasItsDescriptorsLastTag) {
  Waited waited(0);
  auto events = waited.loop.wait(Time::never());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().data.u64, 7u);
  waited.loop.watch(waited.timer.get(), EPOLLIN | EPOLLONESHOT, 8);
  events = waited.loop.wait(Time::never());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().data.u64, 8u);
  EXPECT_EQ(waited.wait(Time::zero()), 0u) << "once";
}

TEST(EventLoop, AForgottenDescriptorIsSilentThoughOthersHaveIt) {
  Waited waited(0);
  const UniqueFd other(dup(waited.timer.get()));
  EXPECT_EQ(waited.wait(Time::never()), 1u);
  waited.loop.forget(waited.timer.get());
  waited.timer.reset();
  EXPECT_EQ(waited.wait(Time::milliseconds(1)), 0u);
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
    listener_ = WatchedListener(std::move(socket), loop_);
  }
  UniqueFd connect() {
    UniqueFd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&name_), name_bytes_), 0);
    return client;
  }
  bool is_reported(Time longest) { return loop_.wait(longest).size() == 1; }

  sockaddr_un name_{};
  socklen_t name_bytes_ = 0;
  EventLoop loop_ = make_loop();
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
  EXPECT_FALSE(is_reported(Time::zero())) << "the loop would report it without end";
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
