#include "ranks/leader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "os/free_ports_test.h"
#include "os/unique_fd.h"
#include "ranks/child_process_test.h"
#include "ranks/meeting_point.h"

namespace tulle::ranks {
namespace {

constexpr std::chrono::milliseconds limit{2'000};

const std::vector<Address> nobody;

// Two ranks of two iterations, the first of which is not measured. The test plays the ranks.
class LeaderTest : public testing::Test {
 protected:
  void SetUp() override {
    plan.graph = workload::TaskGraph(2);
    plan.warm_up = 1;
    group.timeout = std::chrono::milliseconds(1'000);
    std::array<int, 2> ends{-1, -1};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    interrupts.reset(ends[0]);
    user.reset(ends[1]);
    leader = std::make_unique<Leader>(plan, group, interrupts.get());
    for (std::uint32_t rank = 0; rank < 2; ++rank) add(rank, 0);
  }
  void TearDown() override { leader->end(""); }

  void add(std::uint32_t rank, pid_t pid) {
    std::array<int, 2> ends{-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    leader->add(rank, FrameSocket(UniqueFd(ends[0])), pid);
    ranks[rank] = FrameSocket(UniqueFd(ends[1]));
  }
  void run() {
    times = std::async(std::launch::async, [this] { return leader->run(); });
  }
  // Returns the next frame that a rank is sent; a frame of kind `alive` if none comes.
  static Frame take(FrameSocket& socket) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < until) {
      if (auto frame = socket.take()) return std::move(*frame);
      pollfd waiting{socket.fd(), POLLIN, 0};
      poll(&waiting, 1, 50);
      auto is_open = socket.read();
      if (!is_open || !*is_open) break;
    }
    return {};
  }
  void expect_all(FrameKind kind) {
    for (FrameSocket& each : ranks) EXPECT_EQ(take(each).kind, kind);
  }
  template <typename... Value>
  void send_all(FrameKind kind, const Value&... value) {
    for (FrameSocket& each : ranks) EXPECT_TRUE(each.send(kind, value..., limit));
  }
  void exchange_addresses() {
    send_all(FrameKind::addresses, nobody);
    expect_all(FrameKind::addresses);
  }
  std::string error() {
    auto result = times.get();
    return result ? "" : result.error().message;
  }

  Plan plan;
  Group group;
  UniqueFd interrupts, user;
  std::unique_ptr<Leader> leader;
  std::array<FrameSocket, 2> ranks;
  std::future<Result<Times>> times;
};

TEST_F(LeaderTest, ARankThatWaitsHearsThatTheLeaderIsThere) {
  run();
  EXPECT_TRUE(ranks[0].send(FrameKind::waits, limit));
  wait_for(ranks[0].fd(), POLLIN, limit);
  ASSERT_TRUE(ranks[0].read());
  const auto frame = ranks[0].take();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, FrameKind::alive);
  ranks[1].close();
  EXPECT_NE(error(), "");
}

TEST_F(LeaderTest, AnIterationTakesAsLongAsItsSlowestRank) {
  run();
  exchange_addresses();
  for (const std::uint64_t factor : {1, 10}) {
    send_all(FrameKind::ready, std::uint64_t{0});
    expect_all(FrameKind::go);
    EXPECT_TRUE(ranks[0].send(FrameKind::done, Done{3'000 * factor, 1'000 * factor}, limit));
    EXPECT_TRUE(ranks[1].send(FrameKind::alive, limit));
    EXPECT_TRUE(ranks[1].send(FrameKind::done, Done{2'000 * factor, 4'000 * factor}, limit));
    expect_all(FrameKind::go);
  }
  EXPECT_TRUE(ranks[0].send(FrameKind::ready, std::uint64_t{3}, limit));
  EXPECT_TRUE(ranks[1].send(FrameKind::ready, std::uint64_t{4}, limit));
  expect_all(FrameKind::end);
  auto result = times.get();
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->seconds.size(), 1u);
  EXPECT_DOUBLE_EQ(result->seconds[0], 30e-6);
  ASSERT_EQ(result->processor_seconds.size(), 1u);
  EXPECT_DOUBLE_EQ(result->processor_seconds[0], 50e-6);
  EXPECT_EQ(result->wrong, 7u);
}

TEST_F(LeaderTest, NobodyGoesBeforeAllAreReady) {
  run();
  exchange_addresses();
  EXPECT_TRUE(ranks[0].send(FrameKind::ready, std::uint64_t{0}, limit));
  pollfd waiting{ranks[0].fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 300), 0);
  EXPECT_TRUE(ranks[1].send(FrameKind::ready, std::uint64_t{0}, limit));
  expect_all(FrameKind::go);
  ranks[1].close();
  EXPECT_EQ(error(), "rank 1 has ended");
}

TEST_F(LeaderTest, AddressesAreHandedToThePeersThatTheyNameAndSayWhoseTheyAre) {
  run();
  const std::vector<Address> first = {{.peer = 1, .channel = 5, .qp = 11, .slots = 1},
                                      {.peer = 1, .channel = 6, .qp = 12, .slots = 1}};
  const std::vector<Address> second = {{.peer = 0, .channel = 5, .qp = 21, .slots = 1}};
  EXPECT_TRUE(ranks[0].send(FrameKind::addresses, first, limit));
  EXPECT_TRUE(ranks[1].send(FrameKind::addresses, second, limit));
  const auto to_second = take(ranks[1]).as<std::vector<Address>>();
  ASSERT_TRUE(to_second);
  ASSERT_EQ(to_second->size(), 2u);
  EXPECT_EQ((*to_second)[0].peer, 0u);
  EXPECT_EQ((*to_second)[0].qp, 11u);
  EXPECT_EQ((*to_second)[1].qp, 12u);
  EXPECT_EQ((*to_second)[1].channel, 6u);
  const auto to_first = take(ranks[0]).as<std::vector<Address>>();
  ASSERT_TRUE(to_first);
  ASSERT_EQ(to_first->size(), 1u);
  EXPECT_EQ(to_first->front().peer, 1u);
  EXPECT_EQ(to_first->front().qp, 21u);
  ranks[0].close();
  EXPECT_EQ(error(), "rank 0 has ended");
}

TEST_F(LeaderTest, AnAddressForNobodyEndsTheRun) {
  run();
  EXPECT_TRUE(ranks[0].send(FrameKind::addresses, std::vector<Address>{{.peer = 2}}, limit));
  EXPECT_TRUE(ranks[1].send(FrameKind::addresses, nobody, limit));
  EXPECT_EQ(error(), "rank 0 names no rank");
}

TEST_F(LeaderTest, ARankThatFailsSaysWhyInOneLine) {
  run();
  const std::string why = "the disk\nis full";
  EXPECT_TRUE(ranks[1].send_text(FrameKind::failed, why, limit));
  EXPECT_EQ(error(), "rank 1: " + short_line(why));
}

TEST_F(LeaderTest, AFrameThatIsNotDueEndsTheRun) {
  run();
  EXPECT_TRUE(ranks[1].send(FrameKind::done, Done{}, limit));
  EXPECT_EQ(error(), "rank 1 sent an unexpected message");
}

TEST_F(LeaderTest, ASecondAnswerEndsTheRun) {
  run();
  EXPECT_TRUE(ranks[0].send(FrameKind::addresses, nobody, limit));
  EXPECT_TRUE(ranks[0].send(FrameKind::addresses, nobody, limit));
  EXPECT_EQ(error(), "rank 0 sent an unexpected message");
}

TEST_F(LeaderTest, WhoShowsNoLifeIsNamed) {
  run();
  for (int i = 0; i < 30; ++i) {
    if (times.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready) break;
    EXPECT_TRUE(ranks[0].send(FrameKind::alive, limit));
  }
  EXPECT_EQ(error(), "rank 1 was silent for 1 s");
}

TEST_F(LeaderTest, TheUserInterrupts) {
  run();
  EXPECT_EQ(write(user.get(), "x", 1), 1);
  EXPECT_EQ(error(), "interrupted");
}

TEST_F(LeaderTest, TheOthersAreToldWhyTheRunEnds) {
  leader->end("rank 1 has ended");
  for (FrameSocket& each : ranks) {
    const Frame last = take(each);
    EXPECT_EQ(last.kind, FrameKind::failed);
    EXPECT_EQ(last.text(), "rank 1 has ended");
  }
}

TEST_F(LeaderTest, AProcessThatWasKilledIsNamedThoughItsSocketIsOpen) {
  const pid_t pid = start([] { raise(SIGKILL); });
  add(1, pid);
  run();
  EXPECT_EQ(error(),
            "rank 1 (process " + std::to_string(pid) + ") was killed by signal 9 (Killed)");
}

TEST_F(LeaderTest, AProcessThatExitsIsNamedWithItsStatus) {
  const pid_t pid = start([] {}, 3);
  add(1, pid);
  ranks[1].close();
  run();
  EXPECT_EQ(error(), "rank 1 (process " + std::to_string(pid) + ") has ended with status 3");
}

TEST_F(LeaderTest, AProcessThatIsStoppedIsSaidToBe) {
  const pid_t pid = start([] { raise(SIGSTOP); });
  add(1, pid);
  group.timeout = std::chrono::milliseconds(300);
  run();
  for (int i = 0; i < 30; ++i) {
    if (times.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready) break;
    EXPECT_TRUE(ranks[0].send(FrameKind::alive, limit));
  }
  EXPECT_EQ(error(),
            "rank 1 (process " + std::to_string(pid) + ") is stopped and was silent for 0.3 s");
}

TEST_F(LeaderTest, TheEndLeavesNoProcess) {
  const pid_t pid = start([] { pause(); });
  add(1, pid);
  leader->end("");
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

// --- strangers at the door ---

class DoorTest : public LeaderTest {
 protected:
  void SetUp() override {
    LeaderTest::SetUp();
    plan.graph = workload::TaskGraph(2);
    leader = std::make_unique<Leader>(plan, group, interrupts.get());
    add(0, 0);
    met = std::async(std::launch::async, [this] { return leader->meet(address, 17, "secret"); });
  }
  void TearDown() override {
    EXPECT_EQ(write(user.get(), "x", 1), 1);
    met.wait();
    LeaderTest::TearDown();
  }
  FrameSocket connect() {
    auto fd = connect_to(address, limit);
    EXPECT_TRUE(fd) << fd.error().message;
    return FrameSocket(fd ? std::move(*fd) : UniqueFd());
  }
  static Greeting greeting_of(std::uint32_t rank, std::uint32_t all = 2, std::uint64_t work = 17,
                              const std::string& token = "secret") {
    Greeting greeting;
    greeting.rank = rank;
    greeting.ranks = all;
    greeting.work = work;
    token.copy(greeting.token.data(), greeting.token.size());
    return greeting;
  }
  // Sends the greeting. Returns the text of the answer.
  std::string answer_to(const Greeting& greeting) {
    FrameSocket socket = connect();
    EXPECT_TRUE(socket.send(FrameKind::greeting, greeting, limit));
    return take(socket).text();
  }

  const std::string address = "127.0.0.1:" + free_ports(SOCK_STREAM, 1)[0];
  std::future<Result<void>> met;
};

TEST_F(DoorTest, EachThatDoesNotBelongIsToldWhy) {
  EXPECT_EQ(answer_to(greeting_of(1, 2, 17, "secreT")), "rank 0 has another token");
  EXPECT_EQ(answer_to(greeting_of(1, 2, 17, "secret2")), "rank 0 has another token");
  EXPECT_EQ(answer_to(greeting_of(1, 2, 17, "")), "rank 0 has another token");
  EXPECT_EQ(answer_to(greeting_of(1, 3)), "rank 0 was started with other arguments");
  EXPECT_EQ(answer_to(greeting_of(1, 2, 18)), "rank 0 was started with other arguments");
  EXPECT_EQ(answer_to(greeting_of(2)), "there is no such rank");
  EXPECT_EQ(answer_to(greeting_of(0)), "rank 0 is there already");
}

TEST_F(DoorTest, NonsenseIsNotAnswered) {
  Greeting other = greeting_of(1);
  other.magic = 1;
  EXPECT_EQ(answer_to(other), "");
  FrameSocket socket = connect();
  EXPECT_TRUE(socket.send(FrameKind::go, greeting_of(1), limit));
  EXPECT_EQ(take(socket).text(), "");
  FrameSocket brief = connect();
  EXPECT_TRUE(brief.send(FrameKind::greeting, limit));
  EXPECT_EQ(take(brief).text(), "");
}

// The silent ones hold up nobody.
TEST_F(DoorTest, ARankComesInAmongMoreSilentStrangersThanAreHeld) {
  std::array<FrameSocket, 40> silent;
  for (FrameSocket& each : silent) each = connect();
  FrameSocket rank = connect();
  EXPECT_TRUE(rank.send(FrameKind::greeting, greeting_of(1), limit));
  ASSERT_EQ(met.wait_for(limit), std::future_status::ready);
  EXPECT_TRUE(met.get());
  met = std::async(std::launch::deferred, [] { return Result<void>(); });
}

TEST_F(DoorTest, WhoDoesNotComeIsMissed) {
  const auto result = met.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "rank 1 did not come to " + address + " within 1 s");
  met = std::async(std::launch::deferred, [] { return Result<void>(); });
}

}  // namespace
}  // namespace tulle::ranks
