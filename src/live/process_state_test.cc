#include "live/process_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tulle::live {
namespace {

TEST(ProcessStateTest, OnlyAStoppedOrMissingProcessIsStopped) {
  EXPECT_FALSE(is_stopped(getpid()));
  EXPECT_TRUE(is_stopped(0));
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  ASSERT_GT(child, 0);
  EXPECT_FALSE(is_stopped(child)) << "it sleeps";
  kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(is_stopped(child));
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, WCONTINUED), child);
  EXPECT_FALSE(is_stopped(child));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(is_stopped(child)) << "it is gone";
}

}  // namespace
}  // namespace tulle::live
