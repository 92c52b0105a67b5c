#include "live/process/event_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

namespace tulle::live {
namespace {

using namespace std::chrono_literals;

bool is_readable(const EventChannel& channel) {
  pollfd entry{channel.fd(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

void set_nonblocking(const EventChannel& channel) {
  fcntl(channel.fd(), F_SETFL, fcntl(channel.fd(), F_GETFL) | O_NONBLOCK);
}

std::unique_ptr<EventChannel> make() {
  auto channel = EventChannel::create();
  EXPECT_TRUE(channel);
  return std::move(*channel);
}

TEST(EventChannel, EventsComeInOrderAndTheDescriptorTells) {
  const auto channel = make();
  int a = 0;
  int b = 0;
  EXPECT_FALSE(is_readable(*channel));
  channel->push({&a, 1});
  channel->push({&b, 2});
  EXPECT_TRUE(is_readable(*channel));
  EventChannel::Item item;
  ASSERT_EQ(channel->pop(item), 0);
  EXPECT_EQ(item.object, &a);
  EXPECT_EQ(item.type, 1u);
  EXPECT_TRUE(is_readable(*channel));
  ASSERT_EQ(channel->pop(item), 0);
  EXPECT_EQ(item.object, &b);
  EXPECT_FALSE(is_readable(*channel));
}

TEST(EventChannel, NonblockingSaysAgain) {
  const auto channel = make();
  set_nonblocking(*channel);
  EventChannel::Item item;
  EXPECT_EQ(channel->pop(item), EAGAIN);
}

TEST(EventChannel, BlocksUntilAnEvent) {
  const auto channel = make();
  std::thread pusher([&] {
    std::this_thread::sleep_for(20ms);
    channel->push({channel.get(), 7});
  });
  EventChannel::Item item;
  EXPECT_EQ(channel->pop(item), 0);
  EXPECT_EQ(item.type, 7u);
  pusher.join();
}

TEST(EventChannel, ASignalInterrupts) {
  const auto channel = make();
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART, as qperf's alarm
  struct sigaction before {};
  sigaction(SIGALRM, &action, &before);
  ualarm(20'000, 20'000);
  EventChannel::Item item;
  EXPECT_EQ(channel->pop(item), EINTR);
  ualarm(0, 0);
  sigaction(SIGALRM, &before, nullptr);
}

TEST(EventChannel, ForgetsAnObjectsEvents) {
  const auto channel = make();
  int a = 0;
  int b = 0;
  channel->push({&a, 1});
  channel->push({&b, 2});
  channel->push({&a, 3});
  EXPECT_EQ(channel->forget(&a), 2);
  EventChannel::Item item;
  ASSERT_EQ(channel->pop(item), 0);
  EXPECT_EQ(item.object, &b);
  EXPECT_FALSE(is_readable(*channel));
  EXPECT_EQ(channel->forget(&a), 0);
  EXPECT_EQ(channel->forget(&b), 0);
}

TEST(EventChannel, ForgettingTheOnlyEventLeavesNothingToRead) {
  const auto channel = make();
  int a = 0;
  channel->push({&a, 1});
  EXPECT_EQ(channel->forget(&a), 1);
  EXPECT_FALSE(is_readable(*channel));
  set_nonblocking(*channel);
  EventChannel::Item item;
  EXPECT_EQ(channel->pop(item), EAGAIN);
}

TEST(EventChannel, ManyThreadsLoseNothing) {
  const auto channel = make();
  constexpr std::uint32_t each = 2'000;
  std::vector<std::thread> pushers;
  pushers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    pushers.emplace_back([&] {
      for (std::uint32_t k = 1; k <= each; ++k) channel->push({channel.get(), k});
    });
  }
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < 3 * each; ++i) {
    EventChannel::Item item;
    ASSERT_EQ(channel->pop(item), 0);
    sum += item.type;
  }
  EXPECT_EQ(sum, 3ull * each * (each + 1) / 2);
  for (std::thread& pusher : pushers) pusher.join();
}

// A pair of sockets: what is sent by the button waits at the bell.
struct Bell {
  Bell() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    bell.reset(ends[0]);
    button.reset(ends[1]);
  }
  void ring() const {
    const char one = 1;
    EXPECT_EQ(send(button.get(), &one, sizeof one, MSG_DONTWAIT), 1);
  }
  bool has_rung() const {
    char one = 0;
    return recv(bell.get(), &one, sizeof one, MSG_DONTWAIT) == 1;
  }
  UniqueFd bell;
  UniqueFd button;
};

TEST(EventChannel, IsReadableWhileSomethingAttachedIs) {
  const auto channel = make();
  const Bell bell;
  const std::array attached{bell.bell.get()};
  ASSERT_TRUE(channel->attach(attached));
  EXPECT_FALSE(is_readable(*channel));
  bell.ring();
  EXPECT_TRUE(is_readable(*channel));
  EventChannel::Item item;
  EXPECT_FALSE(channel->try_pop(item)) << "it is no event";
  channel->detach(attached);
  EXPECT_FALSE(is_readable(*channel));
  channel->push({channel.get(), 1});
  EXPECT_TRUE(channel->try_pop(item));
}

TEST(EventChannel, WhoExpectsAnEventWakesNobody) {
  const auto channel = make();
  EventChannel::Item item;
  {
    const EventChannel::Expecting expecting(*channel);
    channel->push({channel.get(), 1});
    EXPECT_FALSE(is_readable(*channel));
    channel->push({channel.get(), 2});
    EXPECT_TRUE(is_readable(*channel)) << "one is for the caller, and others are for others";
    ASSERT_TRUE(channel->try_pop(item));
    EXPECT_EQ(item.type, 1u);
  }
  EXPECT_TRUE(is_readable(*channel));
  ASSERT_TRUE(channel->try_pop(item));
  EXPECT_EQ(item.type, 2u);
  EXPECT_FALSE(channel->try_pop(item));
}

TEST(EventChannel, AnEventThatWasExpectedAndNotTakenWakesOthers) {
  const auto channel = make();
  {
    const EventChannel::Expecting expecting(*channel);
    channel->push({channel.get(), 1});
  }
  EXPECT_TRUE(is_readable(*channel));
  EventChannel::Item item;
  EXPECT_TRUE(channel->try_pop(item));
  EXPECT_FALSE(is_readable(*channel));
}

TEST(EventChannel, AnExpectedEventMayBeForgotten) {
  int object = 0;
  int other = 0;
  for (const bool has_other : {false, true}) {
    const auto channel = make();
    if (has_other) channel->push({&other, 7});
    {
      const EventChannel::Expecting expecting(*channel);
      channel->push({&object, 1});
      EXPECT_EQ(channel->forget(&object), 1);
    }
    EXPECT_EQ(is_readable(*channel), has_other);
    EventChannel::Item item;
    EXPECT_EQ(channel->try_pop(item), has_other);
    EXPECT_FALSE(channel->try_pop(item));
  }
}

TEST(EventChannel, AttachesAllOrNothing) {
  const auto channel = make();
  const Bell bell;
  EXPECT_FALSE(channel->attach(std::array{bell.bell.get(), 1 << 20}));
  bell.ring();
  EXPECT_FALSE(is_readable(*channel));
}

TEST(EventChannel, ABellAndAnEventBothEndTheWait) {
  const auto channel = make();
  const Bell bell;
  bell.ring();
  EXPECT_EQ(channel->await_bell(bell.bell.get(), bell.button.get()), 0);
  EXPECT_TRUE(bell.has_rung()) << "it takes nothing";
  channel->push({channel.get(), 1});
  EXPECT_EQ(channel->await_bell(bell.bell.get(), bell.button.get()), 0);
  EXPECT_FALSE(bell.has_rung()) << "nobody waited when the event was pushed";
  EventChannel::Item item;
  EXPECT_TRUE(channel->try_pop(item));
  for (int i = 0; i < 100; ++i) {
    std::thread pusher([&] { channel->push({channel.get(), 2}); });
    while (!channel->try_pop(item)) {
      ASSERT_EQ(channel->await_bell(bell.bell.get(), bell.button.get()), 0);
      static_cast<void>(bell.has_rung());
    }
    pusher.join();
  }
}

TEST(EventChannel, ASignalEndsTheWaitForABell) {
  const auto channel = make();
  const Bell bell;
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  sigaction(SIGALRM, &action, &before);
  ualarm(20'000, 20'000);
  EXPECT_EQ(channel->await_bell(bell.bell.get(), bell.button.get()), EINTR);
  ualarm(0, 0);
  sigaction(SIGALRM, &before, nullptr);
}

TEST(Rousing, TellsOfEachArrivalOnce) {
  EventChannel::Rousing rousing;
  EXPECT_FALSE(rousing.take(true, 5)) << "nothing was attached";
  rousing = {};
  rousing.begin(5);
  EXPECT_FALSE(rousing.take(true, 5));
  EXPECT_TRUE(rousing.take(true, 7));
  EXPECT_FALSE(rousing.take(true, 7));
}

TEST(Rousing, TellsOnceMoreAfterItHasEnded) {
  EventChannel::Rousing rousing;
  rousing.begin(5);
  EXPECT_TRUE(rousing.take(false, 6));
  EXPECT_FALSE(rousing.take(false, 7));
}

TEST(Rousing, ASecondBeginningKeepsWhatWasNotTold) {
  EventChannel::Rousing rousing;
  rousing.begin(5);
  rousing.begin(9);
  EXPECT_TRUE(rousing.take(true, 9));
}

// Whoever else has the button may shut it down.
TEST(EventChannel, AnEventWakesAListenerWhoseButtonIsBroken) {
  auto channel = std::move(*EventChannel::create());
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd bell(ends[0]);
  const UniqueFd button(ends[1]);
  std::atomic<int> result{-1};
  std::thread listener([&] { result = channel->await_bell(bell.get(), button.get()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  shutdown(button.get(), SHUT_WR);
  ASSERT_TRUE(channel->push({nullptr, 1}));
  listener.join();
  EXPECT_TRUE(result == ECONNRESET || result == 0) << result;
  EventChannel::Item item;
  EXPECT_TRUE(channel->try_pop(item));
}

}  // namespace
}  // namespace tulle::live
