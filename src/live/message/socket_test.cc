#include "live/message/socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/folder_test.h"

namespace tulle::live {
namespace {

// A listening socket in whose queue no more connections have room.
class FullQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    auto listener = listen_at(address_);
    ASSERT_TRUE(listener) << listener.error().message;
    listener_ = std::move(*listener);
    for (;;) {
      auto connection = connect_to(address_);
      if (!connection) {
        ASSERT_EQ(connection.error().error_number, EAGAIN);
        return;
      }
      waiting_.push_back(std::move(*connection));
    }
  }

  const Folder files_;
  const std::string address_ = files_.path("socket");
  UniqueFd listener_;
  std::vector<UniqueFd> waiting_;
};

TEST_F(FullQueueTest, APatientProcessConnectsOnceThereIsRoom) {
  std::thread late([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    UniqueFd(accept(listener_.get(), nullptr, nullptr)).reset();
  });
  EXPECT_TRUE(connect_patiently(address_, 60'000));
  late.join();
}

TEST_F(FullQueueTest, PatienceEnds) {
  auto connection = connect_patiently(address_, 20);
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().error_number, EAGAIN);
}

TEST(SocketTest, NobodyWaitsWhereNobodyListens) {
  const Folder files;
  auto connection = connect_patiently(files.path("socket"), 60'000);
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().error_number, ENOENT);
}

struct Ends {
  UniqueFd sender;
  UniqueFd receiver;
};
Ends connected(int type) {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

TEST(Socket, DescriptorsOfTheNextMessageAreSeenBeforeItIsTaken) {
  const std::vector<std::byte> bytes(3);
  for (const int type : {SOCK_SEQPACKET, SOCK_DGRAM}) {
    const Ends ends = connected(type);
    const std::array<int, 1> one = {ends.sender.get()};
    EXPECT_EQ(next_has_descriptors(ends.receiver.get()).error().error_number, EAGAIN);
    ASSERT_TRUE(send_message(ends.sender.get(), bytes));
    ASSERT_TRUE(send_message(ends.sender.get(), bytes, one));
    ASSERT_TRUE(send_message(ends.sender.get(), {}, one));
    EXPECT_FALSE(next_has_descriptors(ends.receiver.get()).value());
    ASSERT_TRUE(receive_message(ends.receiver.get()));
    EXPECT_TRUE(next_has_descriptors(ends.receiver.get()).value());
    auto second = receive_message(ends.receiver.get());
    ASSERT_TRUE(second);
    EXPECT_EQ(second->fds.size(), 1u);
    EXPECT_TRUE(next_has_descriptors(ends.receiver.get()).value()) << "an empty message";
  }
}

TEST(Socket, DescriptorsAreSeenAlthoughTheOtherEndIsGone) {
  const std::vector<std::byte> bytes(3);
  Ends ends = connected(SOCK_SEQPACKET);
  const std::array<int, 1> one = {ends.receiver.get()};
  ASSERT_TRUE(send_message(ends.sender.get(), bytes, one));
  ASSERT_TRUE(send_message(ends.receiver.get(), bytes));
  ends.sender.reset();  // with something unread: the other end gets ECONNRESET once
  EXPECT_TRUE(next_has_descriptors(ends.receiver.get()).value());
}

TEST(Socket, BytesComeWithoutTheirDescriptors) {
  const Ends ends = connected(SOCK_SEQPACKET);
  const std::array<int, 1> one = {ends.sender.get()};
  ASSERT_TRUE(send_message(ends.sender.get(), std::vector<std::byte>(3)));
  ASSERT_TRUE(send_message(ends.sender.get(), std::vector<std::byte>(4), one));
  EXPECT_EQ(receive_bytes(ends.receiver.get()).value().bytes.size(), 3u);
  EXPECT_FALSE(receive_bytes(ends.receiver.get())) << "it was no such message";
  EXPECT_EQ(receive_bytes(ends.receiver.get()).error().error_number, EAGAIN);
}

// A process may end before anybody asks who connects.
TEST(Socket, AProcessThatHasEndedIsToldFromOneThatLives) {
  const Folder folder;
  const std::string path = folder.path("socket");
  auto listener = listen_at(path);
  ASSERT_TRUE(listener);
  const auto is_alive_or_unknown = [&](const UniqueFd& connection) {
    auto process = watched_process(connection.get());
    pollfd ended{process ? process->get() : -1, POLLIN, 0};
    return process && poll(&ended, 1, 0) == 0;
  };
  auto own = connect_to(path);
  ASSERT_TRUE(own);
  const UniqueFd from_own(accept(listener->get(), nullptr, nullptr));
  EXPECT_TRUE(is_alive_or_unknown(from_own));
  // The child's descriptors are this process's.
  const auto child =
      static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, nullptr, nullptr, 0));
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto connection = connect_to(path);
    if (connection) static_cast<void>(connection->release());
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const UniqueFd from_child(accept(listener->get(), nullptr, nullptr));
  ASSERT_TRUE(from_child);
  pollfd open{from_child.get(), POLLRDHUP, 0};
  ASSERT_EQ(poll(&open, 1, 0), 0) << "its connection is there still";
  EXPECT_FALSE(is_alive_or_unknown(from_child));
}

// Only a socket without descriptors in its messages surely closes at once.
TEST(Socket, MessagesAreDroppedUpToTheFirstWithDescriptors) {
  const std::vector<std::byte> bytes(3);
  const auto is_empty_after = [&](std::initializer_list<int> kinds) {
    const Ends ends = connected(SOCK_SEQPACKET);
    const std::array<int, 1> one = {ends.receiver.get()};
    for (const int kind : kinds) {
      const std::span<const int> fds =
          kind == 2 ? std::span<const int>(one) : std::span<const int>();
      EXPECT_TRUE(
          send_message(ends.sender.get(), kind == 0 ? std::vector<std::byte>{} : bytes, fds));
    }
    shutdown(ends.receiver.get(), SHUT_RDWR);
    return drop_messages(ends.receiver.get());
  };
  EXPECT_TRUE(is_empty_after({}));
  EXPECT_TRUE(is_empty_after({1}));
  EXPECT_TRUE(is_empty_after({0, 0, 1, 0}));
  EXPECT_FALSE(is_empty_after({2}));
  EXPECT_FALSE(is_empty_after({1, 0, 2, 1}));
  Ends gone = connected(SOCK_SEQPACKET);
  ASSERT_TRUE(send_message(gone.sender.get(), bytes));
  ASSERT_TRUE(send_message(gone.receiver.get(), bytes));
  gone.sender.reset();  // with something unread: the other end gets ECONNRESET once
  EXPECT_TRUE(drop_messages(gone.receiver.get()));
  EXPECT_FALSE(receive_message(gone.receiver.get()));
}

}  // namespace
}  // namespace tulle::live
