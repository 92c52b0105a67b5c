#include "live/fabric/manager_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "base/folder_test.h"

namespace tulle::live {
namespace {

class ManagerFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = files_.open();
    ASSERT_TRUE(opened) << opened.error().message;
    std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> events_max_;
    const UniqueFd file(::open(folder_.path("file").c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
    if (events_max_ == 0 || events_max_ > 1'000'000) GTEST_SKIP() << "this queue is not filled";
    if (fcntl(file.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "there are no leases here";
  }
  UniqueFd open(std::uint32_t host) {
    UniqueFd file(::open(files_.path(host).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    EXPECT_TRUE(file);
    return file;
  }
  // Opens and closes a host's file until the kernel keeps no more events.
  void flood(std::uint32_t host) {
    for (int i = 0; i < events_max_; i += 2) open(host).reset();
  }
  bool has_more() {
    pollfd entry{files_.descriptor(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }
  void read_all() {
    while (has_more()) files_.read(Time::zero());
  }

  const Folder folder_;
  const fabric::Subnet subnet_{Time::zero(), *fabric::single_switch({2, {}})};
  std::vector<bool> managers_ = {false, false};  // by host
  ManagerFiles files_{folder_.path("managers"), subnet_,
                      [this](Time, std::uint32_t host, bool is) { managers_[host] = is; }};
  int events_max_ = 0;
};

TEST_F(ManagerFilesTest, LostEventsLeaveNoManagerBehind) {
  UniqueFd closed = open(0);
  read_all();
  ASSERT_TRUE(managers_[0]);
  flood(1);
  closed.reset();
  read_all();
  EXPECT_FALSE(managers_[0]);
  flood(1);
  const UniqueFd opened = open(0);
  read_all();
  EXPECT_TRUE(managers_[0]);
  EXPECT_FALSE(managers_[1]);
}

// The kernel makes one event of two equal ones.
TEST_F(ManagerFilesTest, AManagerIsThereUntilTheLastOneCloses) {
  UniqueFd first = open(0), second = open(0);
  read_all();
  first.reset();
  read_all();
  EXPECT_TRUE(managers_[0]);
  second.reset();
  read_all();
  EXPECT_FALSE(managers_[0]);
}

TEST_F(ManagerFilesTest, TwoThatCloseAtOnceAreBothGone) {
  UniqueFd first = open(0);
  read_all();
  UniqueFd second = open(0);
  read_all();
  first.reset();
  second.reset();
  read_all();
  EXPECT_FALSE(managers_[0]);
}

// Others wait meanwhile.
TEST_F(ManagerFilesTest, OneTurnReadsABoundedNumberOfEvents) {
  flood(0);
  files_.read(Time::zero());
  EXPECT_TRUE(has_more());
}

}  // namespace
}  // namespace tulle::live
