// Groups of ranks, which are processes, over Tulle's own libibverbs.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/free_ports_test.h"
#include "ranks/calibration.h"
#include "ranks/child_process_test.h"
#include "ranks/frames.h"
#include "ranks/launch.h"
#include "ranks/meeting_point.h"

namespace tulle::ranks {
namespace {

using workload::Algorithm;
using workload::Collective;

class GroupTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TULLE_EXECUTABLE", TULLE_PROGRAM, 1);
    group.library = TULLE_LIBIBVERBS;
    group.timeout = std::chrono::seconds(3);
  }
  Group group;
};

constexpr std::uint32_t ranks = 4;

// Messages are of several chunks, the last of which is shorter, and of more than may be under way.
Plan plan_of(Collective collective, Algorithm algorithm) {
  workload::CollectiveSettings settings;
  settings.collective = collective;
  settings.algorithm = algorithm;
  settings.channels = 2;
  settings.servers.servers = ranks;
  const std::uint64_t unit = workload::piece_unit(settings, sizeof(float));
  settings.bytes = (600'000 + unit - 1) / unit * unit;
  Plan plan;
  auto graph = workload::make_collective(settings, &plan.pieces);
  EXPECT_TRUE(graph) << graph.error().message;
  if (graph) plan.graph = std::move(*graph);
  plan.buffer_bytes = settings.bytes;
  plan.has_second_buffer = collective == Collective::all_to_all;
  plan.collective = collective;
  plan.chunk_bytes = 12'000;
  plan.iterations = 2;
  plan.warm_up = 1;
  return plan;
}

void expect_right(Result<Times> times) {
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(times->wrong, 0u);
  ASSERT_EQ(times->seconds.size(), 2u);
  ASSERT_EQ(times->processor_seconds.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GT(times->seconds[i], 0);
    EXPECT_GT(times->processor_seconds[i], 0);
    EXPECT_LT(times->processor_seconds[i], ranks * 2 * times->seconds[i]);
  }
}

class CollectivesTest : public GroupTest,
                        public testing::WithParamInterface<std::pair<Collective, Algorithm>> {};

TEST_P(CollectivesTest, EachValueIsRight) {
  expect_right(run_here(plan_of(GetParam().first, GetParam().second), group));
}

INSTANTIATE_TEST_SUITE_P(All, CollectivesTest,
                         testing::Values(std::pair(Collective::all_reduce, Algorithm::ring),
                                         std::pair(Collective::all_reduce, Algorithm::tree),
                                         std::pair(Collective::all_reduce,
                                                   Algorithm::halving_doubling),
                                         std::pair(Collective::reduce_scatter, Algorithm::ring),
                                         std::pair(Collective::all_gather, Algorithm::ring),
                                         std::pair(Collective::broadcast, Algorithm::ring),
                                         std::pair(Collective::all_to_all, Algorithm::direct)),
                         [](const auto& info) {
                           std::string name(workload::name_of(info.param.first));
                           name += "_" + std::string(workload::name_of(info.param.second));
                           std::erase(name, '-');
                           return name;
                         });

// The peer must be told of each chunk, or the sender waits for ever.
TEST_F(GroupTest, OneChunkMayBeUnderWay) {
  for (const std::uint32_t slots : {1u, 2u, 3u}) {
    Plan plan = plan_of(Collective::all_reduce, Algorithm::ring);
    plan.slots = slots;
    expect_right(run_here(plan, group));
  }
}

TEST_F(GroupTest, MessagesWithoutMeaningAreTimedToo) {
  Plan plan = exchange(3, 1u << 20, 4, false, true);
  plan.iterations = 2;
  expect_right(run_here(plan, group));
  plan = hops(3, 50);
  plan.iterations = 2;
  expect_right(run_here(plan, group));
}

TEST_F(GroupTest, ALibraryThatIsAbsentOrAnotherIsNamed) {
  const Plan plan = plan_of(Collective::broadcast, Algorithm::ring);
  group.library = "/nowhere/libibverbs.so.1";
  auto times = run_here(plan, group);
  ASSERT_FALSE(times);
  EXPECT_NE(times.error().message.find("/nowhere/libibverbs.so.1"), std::string::npos)
      << times.error().message;
  group.library = "libm.so.6";
  times = run_here(plan, group);
  ASSERT_FALSE(times);
  EXPECT_NE(times.error().message.find("libm.so.6 is no libibverbs"), std::string::npos)
      << times.error().message;
}

TEST_F(GroupTest, TheUserMayInterrupt) {
  const pid_t self = getpid();
  const pid_t user = start([self] {
    usleep(300'000);
    kill(self, SIGTERM);
  });
  Plan plan = plan_of(Collective::all_reduce, Algorithm::ring);
  plan.iterations = 1'000'000;
  const auto times = run_here(plan, group);
  waitpid(user, nullptr, 0);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message, "interrupted");
  EXPECT_EQ(interrupted_by(), SIGTERM);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a rank is left";
  struct sigaction now {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

// --- ranks that meet ---

class MeetingTest : public GroupTest {
 protected:
  // Starts a rank that is not the first one. Its status is that of its error: 0, none; 1, the one
  // that is expected; 2, another one.
  pid_t start_rank(std::uint32_t rank, const Meeting& meeting, const std::string& expected) {
    return start([&, rank] {
      const auto times = run_rank(plan, group, rank, meeting);
      if (times) _exit(0);
      if (times.error().message == expected) _exit(1);
      fprintf(stderr, "rank %u: %s\n", rank, times.error().message.c_str());
      _exit(2);
    });
  }
  static int status_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  Plan plan = plan_of(Collective::all_reduce, Algorithm::ring);
  Meeting meeting{"127.0.0.1:" + free_ports(SOCK_STREAM, 1)[0], "secret", 17};
};

TEST_F(MeetingTest, RanksThatAreStartedOneByOneWork) {
  std::vector<pid_t> others;
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    others.push_back(start_rank(rank, meeting, ""));
  }
  expect_right(run_rank(plan, group, 0, meeting));
  for (const pid_t pid : others) EXPECT_EQ(status_of(pid), 0);
}

TEST_F(MeetingTest, OneThatDoesNotBelongIsToldWhy) {
  group.timeout = std::chrono::seconds(1);
  Meeting without_token = meeting, other_work = meeting;
  without_token.token = "";
  other_work.work = 18;
  const std::vector<pid_t> others = {
      start_rank(1, without_token, "rank 0 has another token"),
      start_rank(2, other_work, "rank 0 was started with other arguments"),
      start_rank(3, meeting, "rank 1, 2 did not come to " + meeting.address + " within 1 s"),
  };
  const auto times = run_rank(plan, group, 0, meeting);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message, "rank 1, 2 did not come to " + meeting.address + " within 1 s");
  for (const pid_t pid : others) EXPECT_EQ(status_of(pid), 1);
}

TEST_F(MeetingTest, NobodyListens) {
  group.timeout = std::chrono::milliseconds(100);
  const auto times = run_rank(plan, group, 1, meeting);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message, "nobody listens at " + meeting.address + ": Connection refused");
}

// Anybody may listen at the address first, and rank 0 may stop.
TEST_F(MeetingTest, ALeaderIsWaitedForAsLongAsItShowsLife) {
  group.timeout = std::chrono::milliseconds(500);
  auto listener = listen_at(meeting.address);
  ASSERT_TRUE(listener);
  std::atomic<bool> is_silent = false;
  std::atomic<bool> has_ended = false;
  std::thread leader([&] {
    EXPECT_TRUE(wait_for(listener->get(), POLLIN, std::chrono::seconds(10)));
    FrameSocket rank(UniqueFd(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC)));
    for (int answered = 0; answered < 3;) {
      wait_for(rank.fd(), POLLIN, std::chrono::seconds(10));
      auto is_open = rank.read();
      if (!is_open || !*is_open) break;
      while (const auto frame = rank.take()) {
        if (frame->kind != FrameKind::waits) continue;
        ++answered;
        EXPECT_TRUE(rank.send(FrameKind::alive, group.timeout));
      }
    }
    is_silent = true;
    while (!has_ended) usleep(10'000);
  });
  const auto times = run_rank(plan, group, 1, meeting);
  EXPECT_TRUE(is_silent);
  has_ended = true;
  leader.join();
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message, "rank 0 was silent for 1.5 s");
}

TEST_F(MeetingTest, TheFirstRankEnds) {
  const pid_t first = start([&] {
    Plan long_plan = plan;
    long_plan.iterations = 1'000'000;
    (void)run_rank(long_plan, group, 0, meeting);
  });
  plan.iterations = 1'000'000;
  std::vector<pid_t> others;
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    others.push_back(start_rank(rank, meeting, "rank 0 has ended"));
  }
  usleep(700'000);
  kill(first, SIGKILL);
  EXPECT_EQ(status_of(first), -1);
  for (const pid_t pid : others) EXPECT_EQ(status_of(pid), 1);
}

}  // namespace
}  // namespace tulle::ranks
