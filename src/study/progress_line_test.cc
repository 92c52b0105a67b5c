#include "study/progress_line.h"

#include <gtest/gtest.h>

#include <string>

namespace tulle::study {
namespace {

// Standard error is no terminal here.
TEST(ProgressLineTest, ShowsTheHeadingOnceAndNotesAlways) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    ProgressLine line({"Incast", "1 of 2: "});
    line.ready();
    auto run = line.begin("pfc");
    run->show({});
    line.show("half of it");
    line.note("the folder is used again");
    EXPECT_TRUE(line.goes_on());
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "Incast\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tulle: the folder is used again\n");
}

TEST(ProgressLineTest, NamesDoNotSteerTheTerminal) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    ProgressLine line({"x\033]0;t\007", ""});
    line.ready();
    line.note("\u009B31m is simulated by 1 thread");
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "x?]0;t?\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tulle: ?31m is simulated by 1 thread\n");
}

TEST(ProgressLineTest, OneProcessSpeaksForAll) {
  testing::internal::CaptureStderr();
  ProgressLine({"", "", false}).note("nobody sees this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tulle::study
