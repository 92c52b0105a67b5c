#include "os/path_trust.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tulle {
namespace {

constexpr uid_t overflow = 65'534;
constexpr UserNumbers all{overflow, true};
constexpr UserNumbers some{overflow, false};
constexpr uid_t own = 1'000;

struct Step {
  uid_t owner = 0;
  bool others_may_write = false;
  bool is_sticky = false;
};

// Returns why a path is not trusted. The first step is that of "/".
std::string fault(PathTrust trust, const std::string& path, const std::vector<Step>& steps) {
  std::filesystem::path seen;
  auto step = steps.begin();
  for (const auto& name : std::filesystem::path(path)) {
    seen /= name;
    const Step its = step != steps.end() ? *step++ : steps.back();
    std::string found = trust.next({seen.string(), its.owner, its.others_may_write, its.is_sticky});
    if (!found.empty()) return found;
  }
  return trust.fault_of_last();
}

constexpr Step roots{0}, mine{own}, anothers{1'001}, unmapped{overflow};
constexpr Step open_to_all{0, true, false}, sticky{0, true, true};
constexpr Step unmapped_open{overflow, true, false}, unmapped_sticky{overflow, true, true};
constexpr char several[] =
    " belongs to user 65534 (any user who has no number in this user namespace)";

TEST(PathTrustTest, WhereAllUsersHaveNumbersTheOwnersCount) {
  const PathTrust trust(own, all);
  EXPECT_EQ(fault(trust, "/home/me/tulle", {roots, roots, mine, mine}), "");
  EXPECT_EQ(fault(trust, "/tmp/mine", {roots, sticky, mine}), "");
  EXPECT_EQ(fault(trust, "/tmp", {roots, sticky}), "");
  EXPECT_EQ(fault(trust, "/open/mine", {roots, open_to_all, mine}),
            "other users may write to /open");
  EXPECT_EQ(fault(trust, "/home/other/tulle", {roots, roots, anothers, anothers}),
            "/home/other belongs to user 1001");
  EXPECT_EQ(fault(trust, "/home/other/tulle", {roots, roots, unmapped, unmapped}),
            "/home/other belongs to user 65534");
  EXPECT_EQ(fault(trust, "/usr/tulle", {roots, roots, unmapped}),
            "/usr/tulle belongs to user 65534");
  EXPECT_EQ(fault(PathTrust(overflow, all), "/home/nobody", {roots, roots, unmapped}), "");
  EXPECT_EQ(fault(PathTrust(own, all, 1'001), "/x/y", {roots, roots, anothers}), "");
  EXPECT_EQ(fault(trust, "/x/y", {anothers, roots, anothers}), "") << "the owner of all";
}

// As in `unshare -r`: this process's user is 0, and root has no number.
TEST(PathTrustTest, WithoutANumberForRootOthersFilesAreNotRoots) {
  const PathTrust trust(0, some);
  const Step is_mine{0};
  EXPECT_EQ(fault(trust, "/home/me/tulle", {unmapped, unmapped, is_mine, is_mine}), "");
  EXPECT_EQ(fault(trust, "/tmp/mine", {unmapped, unmapped_sticky, is_mine}), "");
  EXPECT_EQ(fault(trust, "/home/other/tulle", {unmapped}),
            std::string("/home/other/tulle") + several);
  EXPECT_EQ(fault(trust, "/tmp/other", {unmapped, unmapped_sticky, unmapped}),
            std::string("/tmp/other") + several);
  EXPECT_EQ(fault(trust, "/tmp", {unmapped, unmapped_sticky}), std::string("/tmp") + several);
  EXPECT_EQ(fault(trust, "/", {unmapped}), std::string("/") + several);
  EXPECT_EQ(fault(trust, "/open/mine", {unmapped, unmapped_open, is_mine}),
            "other users may write to /open");
  // What is in another user's folder may be another at the next moment.
  EXPECT_EQ(fault(trust, "/home/me/other/mine", {unmapped, unmapped, is_mine, unmapped, is_mine}),
            std::string("/home/me/other") + several);
}

TEST(PathTrustTest, WithoutANumberForRootTheFoldersOfPackagesAreRoots) {
  const PathTrust trust(0, some);
  for (const char* path : {"/usr", "/usr/bin/tulle", "/usr/lib/tulle/x.so", "/bin/sh", "/sbin/ip",
                           "/lib/x.so", "/lib64/x.so"}) {
    EXPECT_EQ(fault(trust, path, {unmapped}), "") << path;
  }
  // Administrators give these to other users.
  for (const std::string path :
       {"/usr/local", "/usr/local/bin/tulle", "/opt/tulle/bin/tulle", "/srv/tulle", "/etc/tulle",
        "/home/usr/bin/tulle", "/proc/1/tulle", "/var/lib/tulle", "/users/tulle", "/libx/tulle"}) {
    EXPECT_EQ(fault(trust, path, {unmapped}), path + several);
  }
  // Somebody else may have put these there.
  EXPECT_EQ(fault(trust, "/usr/x/tulle", {unmapped, unmapped, unmapped_sticky, unmapped}),
            std::string("/usr/x/tulle") + several);
  EXPECT_EQ(fault(trust, "/usr/x/tulle", {unmapped, unmapped, unmapped_open, unmapped}),
            "other users may write to /usr/x");
  EXPECT_EQ(fault(trust, "/usr/x", {unmapped, unmapped, unmapped_open}),
            "other users may write to /usr/x");
  EXPECT_EQ(fault(trust, "/usr/mine/x", {unmapped, unmapped, Step{0}, unmapped}),
            std::string("/usr/mine/x") + several);
}

TEST(PathTrustTest, TheOverflowNumberIsNeverTrustedItself) {
  // The owner of a file that belongs to this program.
  EXPECT_EQ(fault(PathTrust(0, some, overflow), "/home/other/tulle", {unmapped}),
            std::string("/home/other/tulle") + several);
  // This process's own number.
  EXPECT_EQ(fault(PathTrust(overflow, some), "/home/me/tulle", {unmapped}),
            std::string("/home/me/tulle") + several);
  EXPECT_EQ(fault(PathTrust(overflow, some), "/usr/bin/tulle", {unmapped}), "");
  // In a container root has a number, and files of other users do not belong to root.
  EXPECT_EQ(fault(PathTrust(0, some), "/usr/bin/tulle", {roots, roots, roots, unmapped}),
            std::string("/usr/bin/tulle") + several);
  EXPECT_EQ(fault(PathTrust(0, some), "/mnt/mine", {roots, unmapped, roots}),
            std::string("/mnt") + several);
}

}  // namespace
}  // namespace tulle
