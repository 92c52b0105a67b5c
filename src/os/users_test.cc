#include "os/users.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/folder_test.h"
#include "os/user_namespace_test.h"

namespace tulle {
namespace {

constexpr uid_t overflow = 65'534;

TEST(Users, AMapMayNameAllUsersOrSome) {
  EXPECT_TRUE(maps_all_users("         0          0 4294967295\n"));
  EXPECT_TRUE(maps_all_users("0 0 1\n1 1 4294967294\n"));
  for (const char* some : {"0 1000 1\n", "0 0 65536\n", "0 0 4294967294\n", "65534 65534 1\n",
                           "0 1000 1\n1 100000 65536\n", "", "\n", "nonsense", "4294967295"}) {
    EXPECT_FALSE(maps_all_users(some)) << some;
  }
}

TEST(Users, TheOverflowNumberIsAUserWhereAllHaveNumbers) {
  const UserNumbers all{overflow, true};
  const UserNumbers some{overflow, false};
  for (const uid_t user : {uid_t{0}, uid_t{1'000}, uid_t{65'533}, uid_t{65'535}}) {
    EXPECT_TRUE(all.is_known(user) && some.is_known(user)) << user;
  }
  EXPECT_TRUE(all.is_known(overflow));
  EXPECT_FALSE(some.is_known(overflow));
  EXPECT_EQ(user_text(overflow, all), "user 65534");
  EXPECT_EQ(user_text(1'000, some), "user 1000");
  EXPECT_EQ(user_text(overflow, some),
            "user 65534 (any user who has no number in this user namespace)");
}

TEST(Users, OneUserIsTheSameInAnyNamespace) {
  EXPECT_TRUE(same_user(1'000, 1'000));
  EXPECT_FALSE(same_user(1'000, 1'001));
  EXPECT_EQ(same_user(overflow, overflow), user_numbers().has_all);
  EXPECT_TRUE(is_trusted(0));
  EXPECT_EQ(is_trusted(geteuid()), is_known_user(geteuid()));
}

// Returns how this process sees itself and some others, in a namespace of a few users.
std::string views() {
  std::string seen;
  const auto note = [&](bool is_right, const char* what) { seen += is_right ? "" : what; };
  note(!user_numbers().has_all, "all are mapped\n");
  note(is_known_user(0) && is_known_user(1'000), "users with numbers are unknown\n");
  note(!is_known_user(overflow), "the overflow number is a user's\n");
  note(!same_user(overflow, overflow), "the overflow number is one user's\n");
  note(!is_trusted(overflow), "the overflow number is trusted\n");
  return seen;
}

TEST(Users, InANamespaceOfSomeUsersNobodyHasTheOverflowNumber) {
  const std::string own = std::to_string(geteuid());
  auto seen = in_user_namespace("0 " + own + " 1", [] {
    return views() + (is_trusted(geteuid()) ? "" : "this user is not trusted\n");
  });
  if (!seen) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(*seen, "");
  // A namespace without a map gives no user a number, and this one may have it as its own.
  for (const std::string& map : {std::string(), "65534 " + own + " 1"}) {
    seen = in_user_namespace(map, [] {
      return views() + (geteuid() == overflow ? "" : "this user has another number\n");
    });
    EXPECT_EQ(seen.value_or(""), "");
  }
}

TEST(Users, WithoutProcTheOverflowNumberIsNobodys) {
  if (geteuid() != 0) GTEST_SKIP() << "only root calls chroot";
  const Folder empty;
  const pid_t child = fork();
  if (child == 0) {
    const bool is_inside = chroot(empty.path().c_str()) == 0;
    const bool is_right = !is_known_user(overflow) && is_known_user(1'000) && is_trusted(0);
    _exit(is_inside && is_right ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tulle
