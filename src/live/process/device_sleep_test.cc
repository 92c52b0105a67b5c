// Tests of callers that sleep on an event channel, or are about to.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "live/process/event_channel.h"
#include "live/process/two_devices_test.h"

namespace tulle::live {
namespace {

// A program that sleeps on an event channel's descriptor, and a peer that sends to it. The
// parameter is TULLE_DIRECT: packets come by UDP without it, and by memory with it.
class SleeperTest : public DeviceTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    setenv("TULLE_DIRECT", GetParam(), 1);
    auto made = EventChannel::create();
    ASSERT_TRUE(made);
    channel_ = std::move(*made);
    fcntl(channel_->fd(), F_SETFL, O_NONBLOCK);
    one_.emplace("tulle0");
    two_.emplace("tulle1", [](const device::Event& event) {
      if (event.kind != device::Event::Kind::asynchronous) channel_->push({event.cq, 0});
    });
    ASSERT_TRUE(one_->device && two_->device);
    one_->connect(*two_, 0);
    two_->connect(*one_, 0);
  }
  void TearDown() override {
    if (two_ && two_->device) {
      const auto lock = two_->device->lock();
      two_->device->forget(*channel_);
    }
    one_.reset();
    two_.reset();
    channel_.reset();
    DeviceTest::TearDown();
  }

  void arm() {
    const auto lock = two_->device->lock();
    two_->device->adapter().objects().request_notification(*two_->cq, false);
    two_->device->hand_over();
    two_->device->expect_sleeper(*channel_);
  }
  void post_receive() {
    const auto lock = two_->device->lock();
    const verbs::Sge sge{reinterpret_cast<std::uint64_t>(two_->buffer.data()), 64,
                         two_->region->lkey()};
    verbs::ReceiveRequest request;
    request.sges = {&sge, 1};
    ASSERT_EQ(two_->device->adapter().post_receive(*two_->qp, request), verbs::VerbsStatus::ok);
  }
  void send() {
    post_receive();
    one_->transfer(*two_, verbs::SendOpcode::send, 8);
  }
  static bool is_readable(int milliseconds) {
    pollfd entry{channel_->fd(), POLLIN, 0};
    return poll(&entry, 1, milliseconds) == 1;
  }
  int take(bool may_sleep = false) {
    EventChannel::Item item;
    return two_->device->take_event(*channel_, item, may_sleep);
  }
  // Takes the completion of a message that has come.
  void poll_queue() {
    const auto lock = two_->device->lock();
    verbs::Completion completion;
    ASSERT_EQ(two_->cq->poll({&completion, 1}), 1u);
    EXPECT_EQ(completion.status, verbs::CompletionStatus::success);
  }
  // Sends a message, and takes it as an event-driven program does. Returns whether the descriptor
  // became readable before there was an event.
  bool exchange() {
    arm();
    send();
    EXPECT_TRUE(is_readable(5'000));
    EventChannel::Item item;
    bool is_early = !channel_->try_pop(item);
    if (is_early) {
      int error = take();
      while (error == ENOMSG) error = take(true);
      EXPECT_EQ(error, 0);
    }
    poll_queue();
    EXPECT_EQ(one_->completion(true), verbs::CompletionStatus::success);
    return is_early;
  }
  // On a busy machine a lease may end before anything comes, so this tries again.
  void get_lease() {
    for (int i = 0; i < 200; ++i) {
      for (int arms = 0; arms < 4; ++arms) arm();
      if (exchange()) return;
    }
    FAIL() << "the sleeper got no lease";
  }

  inline static std::unique_ptr<EventChannel> channel_;
  std::optional<DeviceEnd> one_;
  std::optional<DeviceEnd> two_;
};

INSTANTIATE_TEST_SUITE_P(Paths, SleeperTest, testing::Values("off", "on"), [](const auto& each) {
  return std::string(each.param) == "on" ? "memory" : "udp";
});

// With the direct path, a WRITE sends no packet.
class SleeperByUdpTest : public SleeperTest {};
INSTANTIATE_TEST_SUITE_P(Paths, SleeperByUdpTest, testing::Values("off"));

TEST_P(SleeperTest, ASleeperWakesByItself) {
  get_lease();
  for (int i = 0; i < 100; ++i) exchange();
}

TEST_P(SleeperByUdpTest, WhatBringsNoEventIsTold) {
  get_lease();
  arm();
  one_->transfer(*two_, verbs::SendOpcode::write, 8);
  // On a busy machine the thread may have ended the lease, and has taken the packet.
  const bool is_woken = is_readable(100);
  ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  const int error = take();
  EXPECT_TRUE(error == ENOMSG || (error == EAGAIN && !is_woken)) << error;
  EXPECT_EQ(take(true), EAGAIN);
}

// The lease may end after the program was woken and before it asks for the event.
TEST_P(SleeperByUdpTest, WhoWasWokenIsToldAlsoIfTheLeaseHasEnded) {
  for (int i = 0; i < 20; ++i) {
    get_lease();
    arm();
    one_->transfer(*two_, verbs::SendOpcode::write, 8);
    const bool is_woken = is_readable(100);
    {
      const auto lock = two_->device->lock();
      two_->device->forget(*channel_);
    }
    const int error = take();
    EXPECT_TRUE(error == ENOMSG || (error == EAGAIN && !is_woken)) << error;
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  }
}

TEST_P(SleeperTest, TheThreadServesAProgramThatDoesNotCome) {
  for (int i = 0; i < 3; ++i) {
    get_lease();
    arm();
    send();
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success) << "somebody answered";
    EXPECT_EQ(take(), 0);
    poll_queue();
  }
}

TEST_P(SleeperTest, ASleeperInTheCallWakesToo) {
  fcntl(channel_->fd(), F_SETFL, 0);
  for (int i = 0; i < 20; ++i) {
    arm();
    std::thread sender([&] {
      std::this_thread::sleep_for(1ms);
      send();
    });
    EXPECT_EQ(take(), 0);
    sender.join();
    poll_queue();
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  }
}

// A program whose descriptor blocks need not poll it, and then takes it that an event stands for a
// completion.
TEST_P(SleeperByUdpTest, ABlockingDescriptorIsNotReadableForPacketsWithoutEvents) {
  fcntl(channel_->fd(), F_SETFL, 0);
  for (int i = 0; i < 100; ++i) {
    for (int arms = 0; arms < 4; ++arms) arm();
    one_->transfer(*two_, verbs::SendOpcode::write, 8);
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
    ASSERT_FALSE(is_readable(0)) << i;
    send();
    ASSERT_EQ(take(), 0) << i;
    poll_queue();
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  }
}

// Packets of other queues wake a sleeper again and again. libibverbs then makes an event up, which
// must not count as one that the packets brought.
TEST_P(SleeperByUdpTest, WhoIsWokenInVainLosesTheLease) {
  get_lease();
  arm();
  int woken = 0;
  for (int i = 0; i < 40; ++i) {
    one_->transfer(*two_, verbs::SendOpcode::write, 8);
    if (is_readable(20)) {
      EXPECT_EQ(take(), ENOMSG);
      channel_->push({two_->cq, 0});
      EXPECT_EQ(take(true), 0);
      ++woken;
    }
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  }
  EXPECT_LE(woken, 16);
}

TEST_P(SleeperTest, AnIdleSleeperLosesTheLeaseAndNobodyWakes) {
  get_lease();
  arm();
  std::this_thread::sleep_for(100ms);
  const std::uint64_t before = switches_of_device_threads();
  std::this_thread::sleep_for(500ms);
  EXPECT_LE(switches_of_device_threads() - before, 2u);
  EXPECT_FALSE(is_readable(0));
  exchange();
}

TEST_P(SleeperTest, AChannelMayGoWithItsLease) {
  get_lease();
  arm();
  {
    const auto lock = two_->device->lock();
    two_->device->forget(*channel_);
  }
  auto made = EventChannel::create();
  ASSERT_TRUE(made);
  channel_ = std::move(*made);
  send();
  ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  EXPECT_EQ(take(), 0);
}

// A program that polls once more before it sleeps, and a message that has been sent by then.
class LookTest : public SleeperTest {
 protected:
  void TearDown() override {
    unsetenv("TULLE_BUSY_POLL");
    SleeperTest::TearDown();
  }
  // Returns true if one of some looks found the message. On a busy machine a lease may end before,
  // and the thread takes the message.
  bool finds_what_comes() {
    bool has_found = false;
    for (int i = 0; i < 20 && !has_found; ++i) {
      get_lease();
      arm();
      send();
      {
        auto held = two_->device->lock();
        const bool was_empty = two_->cq->size() == 0;
        has_found = two_->device->look_before_sleep(held, *channel_, *two_->cq) && was_empty;
        EXPECT_TRUE(held.owns_lock());
      }
      EXPECT_TRUE(is_readable(5'000)) << "the message raised no event";
      EventChannel::Item item;
      if (!channel_->try_pop(item)) {
        int error = take();
        while (error == ENOMSG) error = take(true);
        EXPECT_EQ(error, 0);
      }
      poll_queue();
      EXPECT_EQ(one_->completion(true), verbs::CompletionStatus::success);
    }
    return has_found;
  }
};

class SleepsAtOnceTest : public LookTest {
 protected:
  void SetUp() override {
    setenv("TULLE_BUSY_POLL", "0", 1);
    LookTest::SetUp();
  }
};

class LooksLongTest : public LookTest {
 protected:
  void SetUp() override {
    setenv("TULLE_BUSY_POLL", "1000", 1);
    LookTest::SetUp();
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, SleepsAtOnceTest, testing::Values("off", "on"));
INSTANTIATE_TEST_SUITE_P(Paths, LooksLongTest, testing::Values("off", "on"));

TEST_P(LooksLongTest, WhatComesBeforeTheSleepIsFound) { EXPECT_TRUE(finds_what_comes()); }
TEST_P(SleepsAtOnceTest, NobodyLooks) { EXPECT_FALSE(finds_what_comes()); }

// Whoever looked in vain is woken as before.
TEST_P(LooksLongTest, ALookInVainEnds) {
  for (int i = 0; i < 20; ++i) {
    get_lease();
    arm();
    {
      auto held = two_->device->lock();
      EXPECT_FALSE(two_->device->look_before_sleep(held, *channel_, *two_->cq));
    }
    exchange();
  }
}

// Peers do not ring for a program that looked and found something, since it comes again before it
// sleeps. The thread looks after one that does not.
TEST_P(LooksLongTest, WhoHandlesForLongWhatItFoundKeepsNoPeerWaiting) {
  for (int i = 0; i < 3; ++i) {  // each makes the next lease harder to get
    ASSERT_TRUE(finds_what_comes());
    for (int messages = 0; messages < 3; ++messages) {
      send();
      ASSERT_EQ(one_->completion(false), verbs::CompletionStatus::success);
      poll_queue();
    }
  }
}

TEST_P(LooksLongTest, WhoFoundSomethingIsWokenAfterItArmsAgain) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(finds_what_comes());
    exchange();
  }
}

// A queue that is not armed belongs to a program that polls, and does not sleep.
TEST_P(LooksLongTest, WhoHasNotArmedDoesNotLook) {
  get_lease();
  send();
  auto held = two_->device->lock();
  if (two_->cq->size() == 0) {
    EXPECT_FALSE(two_->device->look_before_sleep(held, *channel_, *two_->cq));
  }
}

}  // namespace
}  // namespace tulle::live
