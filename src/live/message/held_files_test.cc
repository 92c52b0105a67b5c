// What closes descriptors of others must not wait for files that those hold for ever.

#include "live/message/held_files_test.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "live/message/closer.h"
#include "live/message/sender_closers.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

using Clock = std::chrono::steady_clock;

class HeldFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    held_ = std::make_unique<HeldFiles>();
    if (!held_->is_possible()) GTEST_SKIP() << "files cannot be held here: no FUSE";
    if (!closers_.is_possible()) GTEST_SKIP() << "threads have no own descriptors here";
  }
  // Returns files that are held, of which this process has the last descriptors.
  std::vector<UniqueFd> held(int count) {
    std::vector<UniqueFd> files;
    for (int i = 0; i < count; ++i) {
      files.emplace_back(eventfd(0, EFD_CLOEXEC));
      EXPECT_TRUE(held_->add(files.back().get()));
    }
    EXPECT_TRUE(held_->hold());
    return files;
  }
  // Returns true if another sender's descriptor is closed soon.
  bool others_are_served() {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
    const UniqueFd other(pair[1]);
    closers_.close(8, UniqueFd(pair[0]));
    pollfd gone{other.get(), POLLHUP, 0};
    return poll(&gone, 1, 5'000) == 1;
  }
  template <typename Condition>
  static bool comes(Condition condition) {
    const auto until = Clock::now() + std::chrono::seconds(20);
    while (!condition() && Clock::now() < until) usleep(1'000);
    return condition();
  }
  void expect_end() {
    held_->release();
    EXPECT_TRUE(comes([this] { return closers_.files().waiting(7) == 0; }));
  }

  std::unique_ptr<HeldFiles> held_;
  SenderClosers closers_{4};
};

TEST_F(HeldFilesTest, NeitherTheCallerNorOthersWait) {
  auto files = held(1);
  closers_.close(7, std::move(files));
  EXPECT_TRUE(others_are_served());
  EXPECT_TRUE(comes([this] { return closers_.files().waiting() == 0; })) << "it is handed over";
  EXPECT_EQ(closers_.files().waiting(7), 1u) << "it must be held for the test to count";
  expect_end();
}

TEST_F(HeldFilesTest, WhatAProgramIsGivenIsNotClosedHere) {
  auto files = held(1);
  { const GivenDescriptor given(&closers_, 7, std::move(files[0])); }
  EXPECT_TRUE(others_are_served());
  EXPECT_EQ(closers_.files().waiting(7), 1u);
  expect_end();
}

// Each removal of such a file from a table of descriptors waits, not only the last close.
TEST_F(HeldFilesTest, AFileThatIsNeverFlushedDoesNotGetHere) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd program(pair[0]), own(pair[1]);
  // A file's sender waits too, once it closes its own descriptor.
  std::thread sender([&] {
    unshare(CLONE_FILES);
    const UniqueFd file = held_->own_file();
    held_->withhold_flushes();
    const int number = file.get();
    EXPECT_TRUE(send_message(program.get(), std::vector<std::byte>(3), {&number, 1}));
  });
  ASSERT_TRUE(comes([&] {
    auto has_descriptors = next_has_descriptors(own.get());
    return has_descriptors && *has_descriptors;
  }));
  const auto began = Clock::now();
  std::vector<UniqueFd> of_no_message;
  const auto message = closers_.receive(7, own.get(), &of_no_message);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().error_number, EPROTO);
  EXPECT_TRUE(of_no_message.empty());
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(1)) << "it waited";
  EXPECT_TRUE(others_are_served());
  EXPECT_GT(closers_.files().waiting(7), 0u) << "the thread must wait for the test to count";
  expect_end();
  sender.join();
}

TEST_F(HeldFilesTest, SharedMemoryAndSocketsComeThrough) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd program(pair[0]), own(pair[1]);
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
  const std::array<int, 2> fds = {memory.get(), program.get()};
  ASSERT_TRUE(send_message(program.get(), std::vector<std::byte>(3), fds));
  ASSERT_TRUE(send_message(program.get(), std::vector<std::byte>(5)));
  std::vector<UniqueFd> of_no_message;
  auto message = closers_.receive(7, own.get(), &of_no_message);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->bytes.size(), 3u);
  ASSERT_EQ(message->fds.size(), 2u);
  struct stat of_sent {
  }, of_received{};
  ASSERT_EQ(fstat(memory.get(), &of_sent), 0);
  ASSERT_EQ(fstat(message->fds[0].get(), &of_received), 0);
  EXPECT_EQ(of_sent.st_ino, of_received.st_ino);
  message = closers_.receive(7, own.get(), &of_no_message);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->bytes.size(), 5u);
  const std::array<int, 1> other = {fileno(stderr)};
  ASSERT_TRUE(send_message(program.get(), std::vector<std::byte>(3), other));
  EXPECT_FALSE(closers_.receive(7, own.get(), &of_no_message)) << "neither memory nor a socket";
}

// Later threads take more along, and only what they take along leaves this process.
TEST_F(HeldFilesTest, ManyTakeFewThreads) {
  constexpr int many = 100;
  for (UniqueFd& file : held(many)) {
    closers_.close(7, std::move(file));
    usleep(200);
  }
  EXPECT_TRUE(others_are_served());
  EXPECT_EQ(closers_.files().waiting(7), std::size_t{many});
  EXPECT_LT(closers_.files().waiting(), 64u);
  closers_.finish();
  EXPECT_EQ(closers_.files().waiting(), 0u) << "all is handed over at the end";
  expect_end();
}

// The files of many senders together are not kept for those that still have few.
TEST_F(HeldFilesTest, ManySendersKeepFewHere) {
  constexpr Closer::Sender senders = 40;
  constexpr int files_of_sender = 14;
  std::vector<UniqueFd> files = held(senders * files_of_sender);
  std::size_t next = 0;
  for (int i = 0; i < files_of_sender; ++i) {
    for (Closer::Sender sender = 100; sender < 100 + senders; ++sender) {
      closers_.close(sender, std::move(files[next++]));
    }
    usleep(50'000);  // so that each sender's threads are started one by one
  }
  const auto until = Clock::now() + Closer::patience / 2;
  while (closers_.files().waiting() >= Closer::many && Clock::now() < until) usleep(1'000);
  EXPECT_LT(closers_.files().waiting(), Closer::many);
  EXPECT_TRUE(others_are_served());
  held_->release();
  EXPECT_TRUE(comes([this] {
    std::size_t left = 0;
    for (Closer::Sender sender = 100; sender < 100 + senders; ++sender) {
      left += closers_.files().waiting(sender);
    }
    return left == 0;
  }));
}

// A message that comes while its receiver finds that there is none is not received unseen.
TEST(SenderClosersTest, NoFileGetsHereWheneverItsMessageComes) {
  SenderClosers closers(4);
  if (!closers.is_possible()) GTEST_SKIP() << "threads have no own descriptors here";
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd program(pair[0]), own(pair[1]);
  constexpr int rounds = 300;
  std::atomic<int> round = 0;
  std::thread sender([&] {
    const std::array<int, 1> file = {fileno(stderr)};
    for (int sent = 0; sent < rounds; ++sent) {
      while (round.load() <= sent) continue;
      EXPECT_TRUE(send_message(program.get(), std::vector<std::byte>(3), file));
    }
  });
  int received = 0;
  for (int i = 0; i < rounds; ++i) {
    round = i + 1;
    for (;;) {
      std::vector<UniqueFd> of_no_message;
      const auto message = closers.receive(7, own.get(), &of_no_message);
      if (!message && message.error().error_number == EAGAIN) continue;
      received += message ? 1 : 0;
      break;
    }
  }
  sender.join();
  EXPECT_EQ(received, 0);
}

}  // namespace
}  // namespace tulle::live
