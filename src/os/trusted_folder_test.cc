#include "os/trusted_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/folder_test.h"
#include "base/own_group.h"
#include "os/user_namespace_test.h"

namespace tulle {
namespace {

namespace fs = std::filesystem;

class TrustedFolderTest : public testing::Test {
 protected:
  fs::path made(const std::string& name, fs::perms permissions = fs::perms::owner_all) const {
    fs::create_directory(base / name);
    fs::permissions(base / name, permissions);
    return base / name;
  }

 private:
  Folder folder_;

 protected:
  const fs::path base = fs::canonical(folder_.path());
};

constexpr fs::perms sticky = fs::perms::all | fs::perms::sticky_bit;

TEST_F(TrustedFolderTest, IsOneThatNobodyElseCanChange) {
  auto found = trusted_folder(made("own"));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, base / "own");
  struct stat all {};
  ASSERT_EQ(stat("/", &all), 0);
  EXPECT_EQ(bool(trusted_folder("/")), is_known_user(all.st_uid));
  EXPECT_EQ(bool(trusted_folder("/tmp")), is_known_user(all.st_uid));
  EXPECT_TRUE(trusted_parent("/"));
  EXPECT_TRUE(trusted_parent("/tmp"));
}

TEST_F(TrustedFolderTest, EachFolderAboveCounts) {
  made("open", fs::perms::all);
  made("open/own");
  for (const fs::path& path : {base / "open", base / "open/own"}) {
    auto found = trusted_folder(path);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().message, "other users may write to " + (base / "open").string());
    EXPECT_EQ(found.error().error_number, EPERM);
  }
  fs::permissions(base / "open", sticky);  // who does not own it cannot rename what is there
  EXPECT_TRUE(trusted_folder(base / "open/own"));
}

TEST_F(TrustedFolderTest, AFileIsTrustedThatNobodyElseCanChange) {
  const fs::path file = made("own") / "file";
  std::ofstream(file) << "x";
  fs::permissions(file, fs::perms::owner_all);
  auto found = trusted_file(file);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, file);
  fs::create_symlink(file, base / "link");
  found = trusted_file(base / "link");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, file) << "what it leads to";
  fs::permissions(file, sticky);
  EXPECT_FALSE(trusted_file(file));
  fs::permissions(file, fs::perms::owner_all);
  fs::permissions(base / "own", fs::perms::all);
  EXPECT_FALSE(trusted_file(file));
  EXPECT_FALSE(trusted_file(base / "absent"));
  fs::permissions(base / "own", fs::perms::owner_all);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a file to another user";
  ASSERT_EQ(chown(file.c_str(), 65'533, 65'533), 0);
  found = trusted_file(base / "link");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, file.string() + " belongs to user 65533");
}

// A library that was copied to a folder below /tmp looks for the program in folders there.
TEST_F(TrustedFolderTest, WhatLiesByAnotherFileMustBeAsTrustworthy) {
  made("own");
  made("open", fs::perms::all);
  const fs::path own = base / "own" / "library", near = base / "own" / "program";
  const fs::path planted = base / "open" / "program";
  for (const fs::path& file : {own, near, planted}) std::ofstream(file) << "x";
  EXPECT_EQ(*trusted_like(near, own), near);
  EXPECT_EQ(trusted_like(planted, own).error().error_number, EPERM);
  EXPECT_EQ(trusted_like(base / "open", own).error().error_number, EPERM);
  EXPECT_EQ(trusted_like(base / "none", own).error().error_number, ENOENT);
  // Others could have changed the library itself.
  fs::copy_file(own, base / "open" / "library");
  EXPECT_EQ(*trusted_like(planted, base / "open" / "library"), planted);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give files to another user";
  ASSERT_EQ(chown(near.c_str(), 65'533, 65'533), 0);
  EXPECT_EQ(trusted_like(near, own).error().error_number, EPERM);
  // Whose files these are does as he likes with this process already.
  ASSERT_EQ(chown(own.c_str(), 65'533, 65'533), 0);
  EXPECT_TRUE(trusted_like(near, own));
}

TEST_F(TrustedFolderTest, RootFindsProgramsThatOthersCannotChange) {
  made("open", fs::perms::all);
  const std::string before = getenv("PATH");
  for (const char* name : {"true", "tulle-test-program"}) {
    const fs::path planted = base / "open" / name;
    std::ofstream(planted) << "#!/bin/sh\n";
    fs::permissions(planted, fs::perms::all);
  }
  setenv("PATH", ("open:" + (base / "open").string() + ":/usr/bin:/bin").c_str(), 1);
  auto found = find_program("true");
  const auto only_planted = find_program("tulle-test-program");
  setenv("PATH", before.c_str(), 1);
  const bool is_root = geteuid() == 0;
  ASSERT_TRUE(found);
  EXPECT_EQ(fs::path(*found).parent_path() == base / "open", !is_root);
  EXPECT_EQ(bool(only_planted), !is_root);
  EXPECT_EQ(find_program("tulle-no-such-program").error().error_number, ENOENT);
}

TEST_F(TrustedFolderTest, AGroupIsOthersToo) {
  const fs::path shared = made("shared", fs::perms::owner_all | fs::perms::group_all);
  EXPECT_EQ(bool(trusted_folder(shared)), is_own_group(getegid()));
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder to another group";
  ASSERT_EQ(chown(shared.c_str(), 0, 65'533), 0);
  EXPECT_FALSE(trusted_folder(shared));
}

TEST_F(TrustedFolderTest, LinksCountAsWhereTheyLead) {
  made("own");
  made("open", fs::perms::all);
  fs::create_symlink(base / "own", base / "open" / "link");
  auto found = trusted_folder(base / "open" / "link");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, base / "own");  // and not the link, which anybody may turn elsewhere
}

TEST_F(TrustedFolderTest, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder away";
  const fs::path folder = made("other");
  ASSERT_EQ(chown(folder.c_str(), 65'533, 65'533), 0);
  auto found = trusted_folder(folder);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, folder.string() + " belongs to user 65533");
}

TEST_F(TrustedFolderTest, WhatIsNoFolderIsNamed) {
  EXPECT_EQ(trusted_folder(base / "none").error().error_number, ENOENT);
  EXPECT_EQ(trusted_folder("/dev/null").error().error_number, ENOTDIR);
}

TEST_F(TrustedFolderTest, APrivateFolderIsMadeOrRefused) {
  auto fresh = private_folder(base / "private");
  ASSERT_TRUE(fresh) << fresh.error().message;
  EXPECT_EQ(*fresh, base / "private");
  EXPECT_EQ(fs::status(*fresh).permissions(), fs::perms::owner_all);
  EXPECT_TRUE(private_folder(base / "private"));
  fs::create_symlink(base / "private", base / "link");
  EXPECT_FALSE(private_folder(base / "link"));
  fs::permissions(base / "private", sticky);
  EXPECT_FALSE(private_folder(base / "private"));
  made("open", fs::perms::all);
  EXPECT_FALSE(private_folder(base / "open" / "private"));
  EXPECT_FALSE(fs::exists(base / "open" / "private"));
}

// A folder with a program of the name `true`, which belongs to that user.
fs::path programs_of(const fs::path& folder, uid_t user) {
  fs::create_directory(folder);
  std::ofstream(folder / "true") << "#!/bin/sh\n";
  for (const fs::path& each : {folder, folder / "true"}) {
    fs::permissions(each, fs::perms(0755));
    EXPECT_EQ(chown(each.c_str(), user, user), 0);
  }
  return folder;
}

constexpr uid_t own = 65'532, another = 65'533;

// Root in a user namespace whose one user is `own`. Returns what is not as it must be.
std::string without_roots_number(const fs::path& mine, const fs::path& others) {
  std::string wrong;
  const auto note = [&](bool is_right, const char* what) { wrong += is_right ? "" : what; };
  if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) return "no such user";
  const auto found = trusted_file(others / "true");
  note(!found && found.error().message == others.string() +
                                              "/true belongs to user 65534 (any user "
                                              "who has no number in this user namespace)",
       "another user's program is trusted\n");
  note(!trusted_folder(others), "another user's folder is trusted\n");
  note(!trusted_like(others / "true", mine / "true"), "another user's program is like one's own\n");
  note(!trusted_like(others / "true", "/usr/bin/env"), "another user's program is like root's\n");
  note(bool(trusted_file(mine / "true")), "one's own program is not trusted\n");
  note(bool(trusted_like(mine / "true", mine / "true")), "nor like itself\n");
  note(bool(trusted_file("/usr/bin/env")), "root's program is not trusted\n");
  note(bool(trusted_parent("/tmp")), "no file can be made in /tmp\n");
  const std::string made = "/tmp/tulle-test-" + std::to_string(getpid());
  note(bool(private_folder(made)) && rmdir(made.c_str()) == 0, "no folder can be made in /tmp\n");
  setenv("PATH", (others.string() + ":/usr/bin:/bin").c_str(), 1);
  auto program = find_program("true");
  note(program && fs::path(*program).parent_path() != others, "another user's program is found\n");
  return wrong;
}

TEST_F(TrustedFolderTest, WithoutANumberForRootAnotherUsersFilesAreNotRoots) {
  if (geteuid() != 0 || !user_numbers().has_all) {
    GTEST_SKIP() << "needs root, to make files of other users";
  }
  fs::permissions(base, fs::perms(0755));
  const fs::path mine = programs_of(base / "mine", own);
  const fs::path others = programs_of(base / "others", another);
  const auto seen = in_user_namespace("0 " + std::to_string(own) + " 1",
                                      [&] { return without_roots_number(mine, others); });
  if (!seen) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(*seen, "");
}

TEST_F(TrustedFolderTest, AUserWithoutANumberHasNoFolder) {
  const auto seen = in_user_namespace("", [&] {
    const auto made = private_folder(base / "private");
    return made ? "it is made" : made.error().message;
  });
  if (!seen) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(*seen, "cannot use " + (base / "private").string() +
                       ": what belongs to user 65534 (any user who has no number in this user "
                       "namespace) may be another user's");
}

}  // namespace
}  // namespace tulle
