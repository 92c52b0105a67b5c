#include "shim/rsockets/sockets/poll_set.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

// A socket that is as ready as a test says.
class FakeSocket final : public Socket {
 public:
  FakeSocket() : Socket(default_settings()), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~FakeSocket() override { ::close(fd_); }

  // Calls the function once, when a thread that waits asks for what holds.
  void when_asked(std::function<void()> function) { when_asked_ = std::move(function); }

  void become(short events) {
    ready_ = events;
    const std::uint64_t one = 1;
    EXPECT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  int fd() const override { return fd_; }
  int bind(const sockaddr_storage&) override { return 0; }
  int listen(int) override { return 0; }
  int accept(std::shared_ptr<Socket>&) override { return EAGAIN; }
  int connect(const sockaddr_storage&) override { return 0; }
  int shutdown(int) override { return 0; }
  void close() override {}
  int receive(std::span<const iovec>, int, sockaddr_storage*, std::size_t&) override {
    return EAGAIN;
  }
  int send(std::span<const iovec>, int, const sockaddr_storage*, std::size_t&) override {
    return EAGAIN;
  }
  short ready(short events) override {
    if (const auto function = std::exchange(when_asked_, nullptr)) function();
    return static_cast<short>(ready_ & (events | POLLHUP | POLLERR));
  }
  int arm() override { return fd_; }
  void drain() override {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t taken = read(fd_, &ignored, sizeof ignored);
  }
  int local_name(sockaddr_storage&) override { return 0; }
  int peer_name(sockaddr_storage&) override { return 0; }
  int set_option(int, int, const void*, socklen_t) override { return 0; }
  int get_option(int, int, void*, socklen_t&) override { return 0; }
  int set_flags(int) override { return 0; }
  void on_readable() override {}

 private:
  int fd_;
  std::atomic<short> ready_ = 0;
  std::function<void()> when_asked_;
};

class EdgesTest : public testing::Test {
 protected:
  EdgesTest() {
    EXPECT_EQ(create_poll_set(true, set_), 0);
    add_socket(socket_);
    epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLET, {.u64 = 7}};
    EXPECT_EQ(control_poll_set(set_, EPOLL_CTL_ADD, socket_->fd(), &event), 0);
  }
  ~EdgesTest() override {
    leave_poll_sets(socket_->fd());
    remove_socket(socket_->fd());
    close_poll_set(set_);
  }

  // Returns the events that hold within so many milliseconds; 0 if none is reported.
  std::uint32_t wait(int milliseconds = 10) const {
    std::array<epoll_event, 2> events = {};
    int count = 0;
    EXPECT_EQ(wait_poll_set(set_, events, milliseconds, count), 0);
    EXPECT_LE(count, 1);
    return count > 0 ? events[0].events : 0;
  }

  int set_ = -1;
  std::shared_ptr<FakeSocket> socket_ = std::make_shared<FakeSocket>();
};

TEST_F(EdgesTest, AnEventIsReportedOnce) {
  socket_->become(POLLOUT);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLOUT});
  EXPECT_EQ(wait(), 0u);
  socket_->become(POLLIN | POLLOUT);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLIN});
  EXPECT_EQ(wait(), 0u);
}

TEST_F(EdgesTest, ACallThatTakesMakesDataNew) {
  socket_->become(POLLIN | POLLOUT);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLIN | EPOLLOUT});
  note_edge(*socket_, EPOLLIN);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLIN});
  note_edge(*socket_, EPOLLOUT);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLOUT});
  EXPECT_EQ(wait(), 0u);
}

TEST_F(EdgesTest, AThreadThatWaitsHearsOfWhatAnotherMakesNew) {
  socket_->become(POLLOUT);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLOUT});
  std::thread sender([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    note_edge(*socket_, EPOLLOUT);
  });
  EXPECT_EQ(wait(5'000), std::uint32_t{EPOLLOUT});
  sender.join();
}

// A socket that has ended is ready whatever a program asks for.
TEST_F(EdgesTest, AnEndDoesNotKeepTheThreadAwake) {
  socket_->become(POLLIN | POLLHUP);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLIN | EPOLLHUP});
  const auto before = Clock::now();
  EXPECT_EQ(wait(30), 0u);
  EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(30));
  note_edge(*socket_, EPOLLIN);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLIN | EPOLLHUP});
}

TEST_F(EdgesTest, AChangeMakesAllNew) {
  socket_->become(POLLOUT);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLOUT});
  epoll_event event = {EPOLLOUT | EPOLLET, {.u64 = 7}};
  EXPECT_EQ(control_poll_set(set_, EPOLL_CTL_MOD, socket_->fd(), &event), 0);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLOUT});
}

// Another socket may get the descriptor of one that is closed.
TEST_F(EdgesTest, AClosedSocketLeavesItsSets) {
  leave_poll_sets(socket_->fd());
  socket_->become(POLLIN);
  EXPECT_EQ(wait(), 0u);
  EXPECT_EQ(control_poll_set(set_, EPOLL_CTL_DEL, socket_->fd(), nullptr), ENOENT);
}

// A thread that saw an event of the one socket must not report it as the other's.
TEST_F(EdgesTest, AnotherSocketWithTheSameDescriptorIsAnotherMember) {
  socket_->when_asked([this] {
    leave_poll_sets(socket_->fd());
    epoll_event event = {EPOLLPRI, {.u64 = 8}};
    EXPECT_EQ(control_poll_set(set_, EPOLL_CTL_ADD, socket_->fd(), &event), 0);
  });
  socket_->become(POLLIN);
  EXPECT_EQ(wait(), 0u);
  socket_->become(POLLPRI);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLPRI});
}

bool is_readable(int fd, int milliseconds) {
  pollfd asked = {fd, POLLIN, 0};
  return poll(&asked, 1, milliseconds) == 1;
}

void* wait_for_ever(void* set) {
  std::array<epoll_event, 2> events = {};
  int count = 0;
  wait_poll_set(*static_cast<int*>(set), events, -1, count);
  return nullptr;
}

// While a thread has not seen a change, the set's descriptor is readable, and all others look again
// and again.
TEST_F(EdgesTest, ACancelledThreadLeavesTheSet) {
  pthread_t thread = {};
  ASSERT_EQ(pthread_create(&thread, nullptr, wait_for_ever, &set_), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_EQ(pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  ASSERT_EQ(result, PTHREAD_CANCELED);

  epoll_event event = {EPOLLIN | EPOLLET, {.u64 = 7}};
  EXPECT_EQ(control_poll_set(set_, EPOLL_CTL_MOD, socket_->fd(), &event), 0);
  EXPECT_FALSE(is_readable(set_, 0));
  socket_->become(POLLIN);
  EXPECT_EQ(wait(1'000), std::uint32_t{EPOLLIN});
}

struct Sleeping {
  Sleepers sleepers;
  std::mutex mutex;
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<int> woken = 0;
};

void* sleep_once(void* data) {
  Sleeping& shared = *static_cast<Sleeping*>(data);
  std::unique_lock lock(shared.mutex);
  while (shared.woken == 0) shared.sleepers.sleep(lock, shared.fd, [&] { shared.woken = 1; });
  return nullptr;
}

TEST(SleepersTest, AnotherThreadTakesOverFromACancelledOne) {
  Sleeping shared;
  pthread_t first = {};
  ASSERT_EQ(pthread_create(&first, nullptr, sleep_once, &shared), 0);
  while (!std::unique_lock(shared.mutex) || !shared.sleepers.has_one_on_descriptor()) {
    std::this_thread::yield();
  }
  std::thread second([&] { sleep_once(&shared); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_EQ(pthread_cancel(first), 0);
  ASSERT_EQ(pthread_join(first, nullptr), 0);
  const std::uint64_t one = 1;
  ASSERT_EQ(write(shared.fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  second.join();
  EXPECT_EQ(shared.woken, 1);
  close(shared.fd);
}

}  // namespace
}  // namespace tulle::rsockets
