#include "study/experiment/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace tulle::experiment {
namespace {

class ThreadsOf : public testing::TestWithParam<std::uint32_t> {
 protected:
  Threads team{GetParam()};
};

TEST_P(ThreadsOf, EachDoesItsWorkOnceInEveryCall) {
  EXPECT_EQ(team.size(), GetParam());
  std::vector<int> calls(team.size());  // each element belongs to one thread
  for (int call = 1; call <= 100; ++call) {
    team.work([&](std::uint32_t number) { ++calls[number]; });
    EXPECT_EQ(calls, std::vector<int>(team.size(), call));
  }
}

// If there were no meetings, a thread would see what others have not done yet, or do already.
TEST_P(ThreadsOf, MeetAfterEachStepAndOneOfThemPreparesTheNext) {
  constexpr int steps = 2'000;
  std::vector<int> done(team.size());
  int prepared = 0;
  std::atomic<int> wrong = 0;
  team.work([&](std::uint32_t number) {
    for (int step = 1; step <= steps; ++step) {
      ++done[number];
      team.meet([&] {
        for (const int each : done) wrong += each == step ? 0 : 1;
        ++prepared;
      });
      wrong += prepared == step ? 0 : 1;
    }
  });
  EXPECT_EQ(prepared, steps);
  EXPECT_EQ(wrong, 0);
}

TEST_P(ThreadsOf, WaitForOneThatComesLate) {
  std::atomic<bool> has_come = false;
  std::atomic<int> early = 0;
  team.work([&](std::uint32_t number) {
    if (number == team.size() - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      has_come = true;
    }
    team.meet([] {});
    early += has_come ? 0 : 1;
  });
  EXPECT_EQ(early, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ThreadsOf, testing::Values(1u, 2u, 3u, 9u));

TEST(Threads, ManyTeamsEndWithoutWork) {
  for (int i = 0; i < 50; ++i) Threads team(4);
}

}  // namespace
}  // namespace tulle::experiment
