#include "study/workers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <new>
#include <stdexcept>

namespace tulle::study {
namespace {

using Work = std::function<Result<void>(std::size_t)>;

std::map<std::size_t, WorkEnded> all_ended(
    std::size_t count, unsigned processes, const Work& work,
    const std::function<bool()>& goes_on = [] { return true; }) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < count; ++i) indices.push_back(i);
  std::map<std::size_t, WorkEnded> ended;
  on_processes(
      indices, processes, work,
      [&](const WorkEnded& end) { EXPECT_TRUE(ended.emplace(end.index, end).second); },
      [&](std::size_t running) { EXPECT_LE(running, processes); }, goes_on);
  return ended;
}

TEST(Workers, SayWhyTheyFailed) {
  const auto ended = all_ended(6, 2, [](std::size_t index) -> Result<void> {
    switch (index) {
      case 1:
        return Error{"one line"};
      case 2:
        return as_misuse(Error{"it was asked for"});
      case 3:
        throw std::bad_alloc();
      case 4:
        throw std::runtime_error("thrown");
      case 5:
        raise(SIGKILL);
        return {};
      default:
        return {};
    }
  });
  ASSERT_EQ(ended.size(), 6u);
  EXPECT_EQ(ended.at(0).failure, "");
  EXPECT_EQ(ended.at(1).failure, "one line");
  EXPECT_FALSE(ended.at(1).is_misuse);
  EXPECT_TRUE(ended.at(2).is_misuse);
  EXPECT_EQ(ended.at(3).failure, "there is too little memory");
  EXPECT_EQ(ended.at(4).failure, "thrown");
  EXPECT_EQ(ended.at(5).failure, "its process was killed; there may be too little memory");
}

TEST(Workers, AProcessThatOnlyDiesIsNamedBySignal) {
  const auto ended = all_ended(2, 1, [](std::size_t index) -> Result<void> {
    if (index == 0) raise(SIGTERM);
    _exit(3);
  });
  EXPECT_EQ(ended.at(0).failure, "its process ended by signal 15 (Terminated)");
  EXPECT_EQ(ended.at(1).failure, "its process failed without saying why");
}

TEST(Workers, NoneBeginOnceTheWorkIsToEnd) {
  bool goes_on = true;
  std::size_t count = 0;
  std::vector<std::size_t> indices = {0, 1, 2, 3};
  on_processes(
      indices, 1, [](std::size_t) { return Result<void>(); },
      [&](const WorkEnded&) {
        ++count;
        goes_on = false;
      },
      [](std::size_t) {}, [&] { return goes_on; });
  EXPECT_EQ(count, 1u);
}

TEST(Workers, ThoseThatRunAreToldToEnd) {
  bool goes_on = true;
  std::vector<WorkEnded> ended;
  on_processes(
      {0, 1}, 2,
      [](std::size_t) -> Result<void> {
        for (;;) pause();
      },
      [&](const WorkEnded& end) { ended.push_back(end); }, [&](std::size_t) { goes_on = false; },
      [&] { return goes_on; });
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].failure, "its process ended by signal 2 (Interrupt)");
}

}  // namespace
}  // namespace tulle::study
