#include "live/process/event_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

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

}  // namespace
}  // namespace tulle::live
