#include "shim/launch/launch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/folder_test.h"

namespace tulle::shim {
namespace {

namespace fs = std::filesystem;

class LaunchTest : public testing::Test {
 protected:
  static std::string refused(const LaunchOptions& options) {
    const auto checked = check_launch(options);
    EXPECT_FALSE(checked);
    return checked ? "" : checked.error().message;
  }
  static Result<void> prepare(const LaunchOptions& options, const Installation& installation) {
    return prepare_launch(options, installation, [](const std::string&) {});
  }

  Folder folder;
};

TEST_F(LaunchTest, OptionsWithoutEffectOnAFabricAreRefused) {
  LaunchOptions options;
  EXPECT_TRUE(check_launch(options));
  options.host = "h0";
  EXPECT_TRUE(check_launch(options));
  options.no_direct = true;
  EXPECT_EQ(refused(options), "--no-direct has no effect on a host of a software fabric");
}

TEST_F(LaunchTest, FilesAndInterfacesThatAreNoneAreRefused) {
  LaunchOptions options;
  options.secure = folder.path("none");
  EXPECT_NE(refused(options).find("none"), std::string::npos);
  LaunchOptions other;
  other.interfaces = "lo,no_such_one";
  EXPECT_EQ(refused(other).find("there is no network interface \"no_such_one\""), 0u);
}

TEST_F(LaunchTest, AnInstallationWithoutLibrariesIsNotUsed) {
  LaunchOptions options;
  options.command = {"true"};
  const auto without = prepare(options, {"", folder.path()});
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().message, "cannot find Tulle's libraries: /proc is not mounted");
  const auto empty = prepare(options, {"/usr/bin/tulle", folder.path()});
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().message,
            "cannot find Tulle's libibverbs.so.1 from /usr/bin/tulle; is the installation "
            "complete?");
}

TEST_F(LaunchTest, AnInstallationWhosePathTheDynamicLinkerDividesIsNotUsed) {
  LaunchOptions options;
  options.command = {"true"};
  for (const char* name : {"a:b", "a;b", "a$LIB"}) {
    const fs::path libraries = folder.path(name);
    fs::create_directory(libraries);
    std::ofstream(libraries / "libibverbs.so.1") << "";
    const auto refused = prepare(options, {"/usr/bin/tulle", libraries});
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().is_misuse);
    EXPECT_NE(refused.error().message.find("move the installation"), std::string::npos)
        << refused.error().message;
  }
}

TEST_F(LaunchTest, ALibraryWhosePathHasASpaceIsPreloadedByItsName) {
  LaunchOptions options;
  options.command = {"true"};
  const fs::path libraries = folder.path("in st");
  fs::create_directory(libraries);
  for (const char* name : {"libibverbs.so.1", "libtulle-paths.so"}) {
    std::ofstream(libraries / name) << "";
  }
  ASSERT_TRUE(prepare(options, {"/usr/bin/tulle", libraries}));
  EXPECT_STREQ(std::getenv("LD_PRELOAD"), "libtulle-paths.so");
  EXPECT_TRUE(std::string(std::getenv("LD_LIBRARY_PATH")).starts_with(libraries.string()));
  unsetenv("LD_PRELOAD");
  unsetenv("LD_LIBRARY_PATH");
}

TEST_F(LaunchTest, ProgramsAreFoundByTheirNames) {
  EXPECT_EQ(program_of("./x"), "./x");
  EXPECT_EQ(program_of("sh").filename(), "sh");
  EXPECT_EQ(program_of("no_such_program_of_tulle"), "");
}

TEST_F(LaunchTest, AProgramThatIsNoneSaysWhy) {
  const Error error = become({"no_such_program_of_tulle"});
  EXPECT_EQ(error.error_number, ENOENT);
  EXPECT_EQ(error.message, "cannot run \"no_such_program_of_tulle\": No such file or directory");
}

TEST_F(LaunchTest, ProgramsThatStartOthersWithPrivilegesAreNamed) {
  std::vector<fs::path> preloads;
  EXPECT_EQ(warnings_of(program_of("sh"), folder.path(), preloads), std::vector<std::string>());
  EXPECT_EQ(warnings_of("", folder.path(), preloads), std::vector<std::string>());
  const fs::path script = folder.path("script");
  std::ofstream(script) << "#!/bin/sh\n";
  EXPECT_EQ(warnings_of(script, folder.path(), preloads), std::vector<std::string>());
  EXPECT_TRUE(preloads.empty());
}

}  // namespace
}  // namespace tulle::shim
