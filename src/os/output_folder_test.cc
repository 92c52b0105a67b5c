#include "os/output_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/folder_test.h"

namespace tulle {
namespace {

namespace fs = std::filesystem;

TEST(OutputFolder, WritesReadsAndLists) {
  const Folder folder;
  auto made = OutputFolder::open(folder.path("a/b"));
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_TRUE(made->write("one", "text"));
  ASSERT_TRUE(made->write("one", "other text"));
  EXPECT_EQ(folder.read("a/b/one"), "other text");
  EXPECT_EQ(made->read("one", 100), "other text");
  EXPECT_EQ(made->read("one", 3), std::nullopt) << "it is longer";
  EXPECT_EQ(made->read("none", 100), std::nullopt);
  auto inner = made->inner("c", true);
  ASSERT_TRUE(inner);
  ASSERT_TRUE(inner->write("two", ""));
  auto names = made->names();
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"c", "one"}));
  inner->remove("two");
  made->remove_folder("c");
  EXPECT_FALSE(fs::exists(folder.path("a/b/c")));
  const auto absent = made->inner("c", false);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().error_number, ENOENT);
}

TEST(OutputFolder, ReadingMakesNone) {
  const Folder folder;
  const auto absent = OutputFolder::open_existing(folder.path("a"));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().error_number, ENOENT);
  EXPECT_FALSE(fs::exists(folder.path("a")));
}

// A user who may write to the folder puts links there, to lead a user with more rights elsewhere.
TEST(OutputFolder, FollowsNoLink) {
  const Folder folder;
  folder.write("private/flows.csv", "private");
  folder.write("out/summary.json", "");
  fs::create_symlink("../private", folder.path("out/variant"));
  fs::create_symlink("../private/flows.csv", folder.path("out/flows.csv"));
  fs::create_symlink("../private/flows.csv", folder.path("out/links.csv.part"));
  auto out = OutputFolder::open(folder.path("out"));
  ASSERT_TRUE(out);
  for (const bool make : {false, true}) {
    const auto inner = out->inner("variant", make);
    ASSERT_FALSE(inner);
    EXPECT_NE(inner.error().message.find("is a link"), std::string::npos);
  }
  EXPECT_EQ(out->read("flows.csv", 100), std::nullopt);
  ASSERT_TRUE(out->write("flows.csv", "new"));
  ASSERT_TRUE(out->write("links.csv", "new"));
  EXPECT_EQ(folder.read("private/flows.csv"), "private");
  EXPECT_EQ(folder.read("out/flows.csv"), "new");
  EXPECT_FALSE(out->open_file("variant", O_RDONLY, 0));
}

TEST(OutputFolder, ReadsRegularFilesAlone) {
  const Folder folder;
  ASSERT_EQ(mkfifo(folder.path("fifo").c_str(), 0600), 0);
  fs::create_directory(folder.path("folder"));
  auto out = OutputFolder::open(folder.path());
  ASSERT_TRUE(out);
  EXPECT_EQ(out->read("fifo", 100), std::nullopt) << "it does not wait for a writer";
  EXPECT_EQ(out->read("folder", 100), std::nullopt);
}

TEST(OutputFolder, ALinkOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes links for others";
  const Folder folder;
  folder.write("real/file", "");
  fs::create_symlink("real", folder.path("own"));
  fs::create_symlink("real", folder.path("foreign"));
  ASSERT_EQ(lchown(folder.path("foreign").c_str(), 65'534, 65'534), 0);
  EXPECT_TRUE(OutputFolder::open(folder.path("own")));
  for (const std::string end : {"/", "/.", "//", "/./"}) {
    EXPECT_FALSE(OutputFolder::open(folder.path("foreign") + end)) << end;
    EXPECT_TRUE(OutputFolder::open(folder.path("own") + end)) << end;
  }
  const auto refused = OutputFolder::open(folder.path("foreign"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error_number, EPERM);
}

}  // namespace
}  // namespace tulle
