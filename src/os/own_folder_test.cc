#include "os/own_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/folder_test.h"

namespace tulle {
namespace {

namespace fs = std::filesystem;

class OwnFolderTest : public testing::Test {
 protected:
  ~OwnFolderTest() override { unsetenv("XDG_RUNTIME_DIR"); }

 private:
  Folder folder_;

 protected:
  const fs::path base = fs::canonical(folder_.path());
};

TEST_F(OwnFolderTest, IsTheUsersAlone) {
  ASSERT_EQ(setenv("XDG_RUNTIME_DIR", base.c_str(), 1), 0);
  auto made = own_folder_for("@tulle, tulle0/eth0");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->path, base.string() + "/tulle/_tulle__tulle0_eth0");
  EXPECT_EQ(made->warning, "");
  EXPECT_EQ(fs::status(made->path).permissions(), fs::perms::owner_all);
  fs::permissions(made->path, fs::perms::all);
  EXPECT_FALSE(own_folder_for("@tulle, tulle0/eth0"));
}

// A folder that anybody may move or change decides what programs see.
TEST_F(OwnFolderTest, AFolderInTheHandsOfOthersIsNotUsed) {
  const fs::path open_to_all = base / "open";
  fs::create_directory(open_to_all);
  fs::permissions(open_to_all, fs::perms::all);
  fs::create_directory(open_to_all / "runtime");
  fs::create_symlink(open_to_all / "runtime", base / "link");
  for (const fs::path& runtime : {open_to_all / "runtime", base / "link"}) {
    ASSERT_EQ(setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1), 0);
    auto made = own_folder();
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->warning,
              "XDG_RUNTIME_DIR is not used: other users may write to " + open_to_all.string());
    EXPECT_EQ(fs::path(made->path).parent_path(), geteuid() == 0 ? "/run" : "/tmp");
    EXPECT_FALSE(fs::exists(open_to_all / "runtime" / "tulle"));
  }
}

}  // namespace
}  // namespace tulle
