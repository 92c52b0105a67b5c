#include "study/report/results.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/folder_test.h"

namespace tulle::report {
namespace {

constexpr Figure frames{.key = "frames", .unit = "frames", .heading = "frames"};
constexpr Figure used{
    .key = "utilisation", .unit = "1", .heading = "utilisation", .form = Form::per_cent};
constexpr Figure paused{
    .key = "paused_us", .unit = "us", .heading = "paused us", .form = Form::number};
constexpr Figure least{.key = "fct_us.min", .unit = "us", .heading = "min", .form = Form::number};
constexpr Figure most{.key = "fct_us.max", .unit = "us", .heading = "max", .form = Form::number};
constexpr Figure goodput{
    .key = "goodput_gbps", .unit = "Gb/s", .heading = "goodput", .form = Form::rate};

TEST(Results, Tables) {
  Outcome outcome;
  outcome.flows = {{3, 4, 1'000, Time{1'500}, Time{2'001'500}, Time{1'001'750}, 1.25},
                   {4, 3, 5, Time::zero()},
                   {4, 3, 5},
                   {4, 3, 5, Time::zero()}};
  outcome.flows[3].failed = true;
  EXPECT_EQ(flows_csv(outcome),
            "flow,src,dst,bytes,start_ns,end_ns,fct_ns,slowdown,status,latency_ns\n"
            "0,3,4,1000,1.500,2001.500,2000,1.2500,done,1000.250\n"
            "1,4,3,5,0,,,,unfinished,\n"
            "2,4,3,5,,,,,not begun,\n"
            "3,4,3,5,0,,,,failed,\n");
  const Sheet sheet{{"from", "port", "to"},
                    {&frames, &used, &paused},
                    {{{"host 3", "2", "leaf 0"}, {std::uint64_t{5}, 0.123456, Time{11'012}}}}};
  EXPECT_EQ(sheet_csv(sheet),
            "from,port,to,frames,utilisation,paused_ns\n"
            "host 3,2,leaf 0,5,0.1235,11.012\n");
}

TEST(Results, TheSummaryHasItsFiguresInTheirOrder) {
  Outcome outcome;
  outcome.figures = {{&least, 1.00000000001}, {&most, 2.5}, {&paused, Time{1'500'000}}};
  outcome.kinds = {{"victims", {{&goodput, Rate{2e9}}}}};
  outcome.kinds.front().method = Method{"tree", "ll"};
  outcome.simulator = {{&frames, std::uint64_t{7}}};
  EXPECT_EQ(summary_json({"s", "\"T\"", "", {outcome}}), R"({
  "scenario": "s",
  "title": "\"T\"",
  "fct_us": {
    "min": 1.0,
    "max": 2.5
  },
  "paused_us": 1.5,
  "traffic": {
    "victims": {
      "algorithm": "tree",
      "protocol": "ll",
      "goodput_gbps": 2.0
    }
  },
  "frames": 7
}
)");
  Outcome other = outcome;
  outcome.variant = "a";
  other.variant = "b";
  const std::string two = summary_json({"s", "T", "", {outcome, other}});
  EXPECT_NE(two.find("\"variants\": ["), std::string::npos);
  EXPECT_LT(two.find("\"variant\": \"a\""), two.find("\"variant\": \"b\""));
}

Result<void> write_to(const std::string& path, const Results& results, bool are_several) {
  auto folder = OutputFolder::open(path);
  if (!folder) return folder.error();
  return write_results(*folder, results, are_several);
}

TEST(Results, FilesAppearWholeInFoldersOfTheirVariants) {
  Folder folder;
  Outcome a, b;
  a.variant = "a";
  b.variant = "b";
  ASSERT_TRUE(write_to(folder.path("one/deep"), {"s", "", "", {a}}, false));
  EXPECT_EQ(folder.read("one/deep/summary.json"), summary_json({"s", "", "", {a}}));
  EXPECT_EQ(folder.read("one/deep/flows.csv"), flows_csv(a));
  EXPECT_EQ(folder.read("one/deep/links.csv"), sheet_csv(a.links));
  ASSERT_TRUE(write_to(folder.path("two"), {"s", "", "", {a, b}}, true));
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path("two"))) {
    if (entry.is_regular_file()) {
      files.insert(std::filesystem::relative(entry.path(), folder.path("two")).string());
    }
  }
  EXPECT_EQ(files, (std::set<std::string>{"a/flows.csv", "a/links.csv", "b/flows.csv",
                                          "b/links.csv", "summary.json"}));
}

// Another user may own the folder, and have put a link in place of a variant's.
TEST(Results, NoLinkToAFolderIsFollowed) {
  const Folder folder;
  folder.write("private/flows.csv", "kept");
  folder.write("out/x", "");
  std::filesystem::create_symlink("../private", folder.path("out/a"));
  Outcome a, b;
  a.variant = "a";
  b.variant = "b";
  const auto written = write_to(folder.path("out"), {"s", "", "", {a, b}}, true);
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("out/a is a link"), std::string::npos);
  EXPECT_EQ(folder.read("private/flows.csv"), "kept");
}

TEST(Results, NoLinkIsFollowed) {
  const Folder folder;
  std::ofstream(folder.path("other")) << "kept";
  std::filesystem::create_symlink(folder.path("other"), folder.path("a.csv.part"));
  ASSERT_TRUE(write_file(folder.path("a.csv"), "new"));
  EXPECT_EQ(folder.read("other"), "kept");
  EXPECT_EQ(folder.read("a.csv"), "new");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.path("a.csv")));
}

TEST(Results, WhereNothingCanBeWrittenItIsSaid) {
  Folder folder;
  folder.write("file", "");
  const auto written = write_to(folder.path("file/results"), {"s", "", "", {Outcome{}}}, false);
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("file/results"), std::string::npos);
  EXPECT_EQ(written.error().message.find('\n'), std::string::npos);
  std::filesystem::create_directories(folder.path("taken/flows.csv/x"));
  EXPECT_FALSE(write_to(folder.path("taken"), {"s", "", "", {Outcome{}}}, false));
  EXPECT_FALSE(std::filesystem::exists(folder.path("taken/flows.csv.part"))) << "nothing is left";
}

}  // namespace
}  // namespace tulle::report
