#include "shim/paths/old_trees.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>

#include "base/folder_test.h"

namespace tulle::shim {
namespace {

namespace fs = std::filesystem;

class OldTrees : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 6; ++i) make("tree" + std::to_string(i), std::chrono::hours(10 - i));
  }

  void make(const std::string& name, std::chrono::seconds age) const {
    fs::create_directories(own / name / "sysfs/sys");
    std::ofstream(own / name / "sysfs/sys/file") << "x";
    fs::last_write_time(own / name / "sysfs", fs::file_time_type::clock::now() - age);
  }
  bool has(const std::string& name) const { return fs::exists(own / name); }
  // Starts a process with this in its environment.
  pid_t start(const std::string& sysfs) const {
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("TULLE_SYSFS", sysfs.c_str(), 1);
      execl("/bin/sleep", "sleep", "60", nullptr);
      _exit(127);
    }
    for (int i = 0; i < 1'000 && !used_trees(own)->contains("tree0"); ++i) usleep(1'000);
    return pid;
  }
  static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  const Folder folder;
  const fs::path own = fs::canonical(folder.path());  // without a slash at its end
};

TEST_F(OldTrees, TheOldestGo) {
  remove_old_trees(own, 4);
  EXPECT_FALSE(has("tree0"));
  EXPECT_FALSE(has("tree1"));
  for (const char* name : {"tree2", "tree3", "tree4", "tree5"}) EXPECT_TRUE(has(name)) << name;
}

TEST_F(OldTrees, ManyGoInTurns) {
  for (int i = 6; i < 20; ++i) make("tree" + std::to_string(i), std::chrono::hours(30 - i));
  remove_old_trees(own, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(own), fs::directory_iterator()), 12);
}

TEST_F(OldTrees, WhatAProgramUsesStays) {
  const pid_t program = start((own / "tree0/sysfs").string());
  remove_old_trees(own, 2);
  EXPECT_TRUE(has("tree0"));
  EXPECT_FALSE(has("tree1"));
  EXPECT_TRUE(has("tree5"));
  end(program);
  remove_old_trees(own, 1);
  EXPECT_FALSE(has("tree0"));
}

TEST_F(OldTrees, WhatIsNewStays) {
  for (int i = 0; i < 6; ++i) make("tree" + std::to_string(i), std::chrono::seconds(5));
  remove_old_trees(own, 0);
  EXPECT_TRUE(has("tree0"));
}

TEST_F(OldTrees, WhatIsNoTreeStays) {
  fs::create_directories(own / "fabric");
  std::ofstream(own / "tree0/socket") << "";
  fs::create_directory_symlink(own / "tree1", own / "link");
  remove_old_trees(own, 0);
  EXPECT_TRUE(has("fabric"));
  EXPECT_TRUE(has("tree0"));
  EXPECT_TRUE(fs::is_symlink(own / "link"));
  EXPECT_FALSE(has("tree5"));
}

TEST_F(OldTrees, NothingGoesWhileATreeIsMade) {
  {
    const TreesAtRest made(own);
    const TreesAtRest by_another(own);
    remove_old_trees(own, 0);
    EXPECT_TRUE(has("tree0"));
  }
  remove_old_trees(own, 0);
  EXPECT_FALSE(has("tree0"));
}

// The process that removes trees may be stopped while it does.
TEST_F(OldTrees, WhoRemovesThemHoldsNobodyUpForEver) {
  const int folder = open(own.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  const TreesAtRest waited(own);
  close(folder);
}

// As nginx does: it shows its role where its environment was.
TEST_F(OldTrees, WhereTheEnvironmentWasOverwrittenNothingIsKnown) {
  ASSERT_TRUE(used_trees(own));
  const std::string library = (own / "libtulle-paths.so").string();
  std::ofstream(library) << std::string(4'096, 'x');
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t program = fork();
  if (program == 0) {
    const int file = open(library.c_str(), O_RDONLY);
    if (mmap(nullptr, 4'096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) _exit(1);
    for (char** each = environ; *each != nullptr; ++each) {
      std::memset(*each, '\0', std::strlen(*each));
    }
    (void)!write(ends[1], "x", 1);
    pause();
  }
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_FALSE(used_trees(own));
  remove_old_trees(own, 0);
  EXPECT_TRUE(has("tree0"));
  end(program);
}

// A process makes its environment as long as it likes, at no cost to itself.
TEST_F(OldTrees, ALongEnvironmentIsNotReadToItsEnd) {
  const std::string library = (own / "libtulle-paths.so").string();
  Dl_info standard{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::set_terminate), &standard), 0);
  fs::copy_file(standard.dli_fname, library);
  const pid_t program = fork();
  if (program == 0) {
    for (int i = 0; i < 8; ++i) {
      setenv(("A" + std::to_string(i)).c_str(), std::string(100'000, 'x').c_str(), 1);
    }
    setenv("LD_PRELOAD", library.c_str(), 1);
    execl("/bin/sleep", "sleep", "60", nullptr);
    _exit(127);
  }
  for (int i = 0; i < 5'000 && used_trees(own); ++i) usleep(1'000);
  EXPECT_FALSE(used_trees(own)) << "it may use one";
  end(program);
  EXPECT_TRUE(used_trees(own));
}

TEST_F(OldTrees, ProcessesOfOthersDoNotCount) {
  if (geteuid() != 0) GTEST_SKIP() << "only root starts a process of another user";
  const pid_t program = fork();
  if (program == 0) {
    if (setuid(65'533) != 0) _exit(1);
    setenv("TULLE_SYSFS", (own / "tree0/sysfs").c_str(), 1);
    execl("/bin/sleep", "sleep", "60", nullptr);
    _exit(127);
  }
  usleep(50'000);
  const auto used = used_trees(own);
  ASSERT_TRUE(used);
  EXPECT_FALSE(used->contains("tree0"));
  end(program);
}

}  // namespace
}  // namespace tulle::shim
