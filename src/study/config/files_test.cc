#include "study/config/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <string>

#include "base/folder_test.h"

namespace tulle::config {
namespace {

class Files : public testing::Test {
 protected:
  Files() {
    own.write("here.csv", "1");
    own.write("both.csv", "2");
    come_along.write("both.csv", "3");
    come_along.write("tables/links.csv", "4");
    come_along.write("profiles/servers/dgx-h100.toml", "5");
    set_shipped_folder(come_along.path());
  }
  ~Files() override {
    set_shipped_folder("");
    observe_files({});
  }
  std::string found(const std::string& name) const { return text_of(find_file(own.path(), name)); }
  std::string profile(const std::string& name) const {
    return text_of(find_named(own.path(), "profiles/servers", name, "profile"));
  }
  static std::string text_of(Result<std::string> path) {
    return path ? *path : path.error().message;
  }

  Folder own, come_along;
};

TEST_F(Files, AFileBesideTheScenarioComesFirst) {
  EXPECT_EQ(found("here.csv"), own.path("here.csv"));
  EXPECT_EQ(found("both.csv"), own.path("both.csv"));
  EXPECT_EQ(found("tables/links.csv"), come_along.path("tables/links.csv"));
  EXPECT_EQ(found(own.path("here.csv")), own.path("here.csv"));
  EXPECT_EQ(profile("dgx-h100"), come_along.path("profiles/servers/dgx-h100.toml"));
  own.write("profiles/servers/dgx-h100.toml", "6");
  EXPECT_EQ(profile("dgx-h100"), own.path("profiles/servers/dgx-h100.toml"));
}

TEST_F(Files, ANameOrAFile) {
  const auto named = [&](const std::string& name) {
    return text_of(find_named_or_file(own.path(), "profiles/servers", name, "profile"));
  };
  EXPECT_EQ(named("dgx-h100"), come_along.path("profiles/servers/dgx-h100.toml"));
  EXPECT_EQ(named("profiles/servers/dgx-h100.toml"), named("dgx-h100"));
  own.write("mine.toml", "7");
  EXPECT_EQ(named("mine.toml"), own.path("mine.toml"));
}

TEST_F(Files, TheErrorNamesBothPlacesAndWhatIsNear) {
  EXPECT_EQ(found("her.csv"), "there is no file \"her.csv\" in " + own.path() + " or " +
                                  come_along.path() + "; did you mean here.csv?");
  EXPECT_EQ(found("tables/linsk.csv"), "there is no file \"tables/linsk.csv\" in " + own.path() +
                                           " or " + come_along.path() +
                                           "; did you mean tables/links.csv?");
  EXPECT_EQ(profile("dgx-h10"), "there is no profile \"dgx-h10\" in " +
                                    own.path("profiles/servers") + " or " +
                                    come_along.path("profiles/servers") +
                                    "; did you mean dgx-h100? There are dgx-h100");
  EXPECT_EQ(found("/nowhere/x"), "there is no file \"/nowhere/x\"");
  set_shipped_folder(own.path());
  EXPECT_EQ(found("other"), "there is no file \"other\" in " + own.path()) << "it is one place";
}

// Work that goes on where it was simulates again if such a file appears.
TEST_F(Files, WhatIsFoundIsReported) {
  using Words = std::vector<std::string>;
  Words seen;
  FileObserver observer;
  observer.read = [&](const std::string& path, const std::string& text) {
    seen.push_back(path + ": " + text);
  };
  observer.absent = [&](const std::string& path) { seen.push_back("no " + path); };
  observer.listed = [&](const Listing& listing, const Words& names) {
    seen.push_back(listing.folder + ": " + std::to_string(names.size()));
  };
  observe_files(observer);
  found("tables/links.csv");
  EXPECT_EQ(seen, Words{"no " + own.path("tables/links.csv")});
  seen.clear();
  ASSERT_TRUE(read_file(own.path("here.csv")));
  EXPECT_EQ(seen, Words{own.path("here.csv") + ": 1"});
  seen.clear();
  EXPECT_EQ(list_names({own.path(), "", ".csv"}), (Words{"both.csv", "here.csv"}));
  EXPECT_EQ(list_names({own.path(), "here.", ""}), Words{"here.csv"});
  EXPECT_EQ(list_names({own.path("nowhere"), "", ""}), Words());
  EXPECT_EQ(seen, (Words{own.path() + ": 2", own.path() + ": 1", own.path("nowhere") + ": 0"}));
  std::size_t few = 1;
  EXPECT_FALSE(list_names({own.path(), "", ""}, few));
}

TEST(FileText, AFileHasABoundedLength) {
  Folder folder;
  folder.write("file", std::string(100'000, 'x'));
  const std::string path = folder.path("file");
  auto all = read_file(path, 100'000);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(*all, std::string(100'000, 'x'));
  EXPECT_FALSE(read_file(path, 99'999));
}

// A device may never end, and a pipe into which nobody writes would be waited for.
TEST(FileText, OnlyRegularFilesAreRead) {
  Folder folder;
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  const auto refusal = [](const std::string& path) {
    auto text = read_file(path);
    return text ? "it is read" : text.error().message;
  };
  EXPECT_EQ(refusal("/dev/null"), "/dev/null: is no regular file");
  EXPECT_EQ(refusal(folder.path("pipe")), folder.path("pipe") + ": is no regular file");
  EXPECT_EQ(refusal(folder.path()), folder.path() + ": is a folder, not a file");
}

// The system would take the name to end there, and a name from a file would open any other.
TEST(FileText, AFileNameHasNoZeroByte) {
  auto refused = read_file(std::string("/dev/null\0.toml", 15));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("zero byte"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace tulle::config
