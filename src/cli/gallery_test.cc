// Runs `tulle sim --gallery` as a user does.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program_test.h"

namespace tulle::cli {
namespace {

class GalleryTest : public ProgramTest {
 protected:
  GalleryTest() : ProgramTest("sim") {}
  void SetUp() override {
    folder.write("bars.toml", text("show = \"goodput_gbps\""));
    folder.write("curves.toml", text("kind = \"cdf\"\nshow = \"fct_us\""));
  }

  static std::string text(const std::string& picture) {
    return "title = \"Four & <more> hosts\"\ndescription = \"\"\"\nTwo "
           "words.\n\"\"\"\n[picture]\n" +
           picture +
           "\n[topology]\nkind = \"single-switch\"\nhosts = 6\n[traffic]\npattern = \"incast\"\n"
           "bytes = \"200KB\"\n[fabric]\nbuffer = \"200KB\"\n"
           "[[variant]]\nname = \"slow\"\ntopology.link_rate = \"100Gbps\"\n"
           "[[variant]]\nname = \"fast\"\ntopology.link_rate = \"400Gbps\"\n"
           "[[variant]]\nname = \"lossy\"\nfabric.flow_control = \"none\"\nhost.timeout = 8\n";
  }
  ProgramOutcome gallery(const std::string& arguments) const {
    return run("--gallery -o " + folder.path("g") + " " + arguments);
  }
  ProgramOutcome both() const {
    return gallery(folder.path("bars.toml") + " " + folder.path("curves.toml"));
  }
  bool has(const std::string& name) const {
    return std::filesystem::exists(folder.path("g/" + name));
  }
};

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

// Returns the cells of a page's table, row by row.
std::vector<std::vector<std::string>> table_of(const std::string& page) {
  std::istringstream in(page);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| ") || line.starts_with("| ---")) continue;
    std::vector<std::string>& row = rows.emplace_back();
    for (std::size_t at = 2; at < line.size();) {
      const std::size_t end = line.find(" |", at);
      row.push_back(line.substr(at, end - at));
      at = end + 3;
    }
  }
  return rows;
}

TEST_F(GalleryTest, ThePageHasTheSummarysFigures) {
  const ProgramOutcome outcome = both();
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::string page = folder.read("g/bars.md");
  EXPECT_EQ(page.rfind("# Four & \\<more\\> hosts\n", 0), 0u) << page;
  EXPECT_TRUE(contains(page, "\nTwo words.\n"));
  ASSERT_EQ(run(folder.path("bars.toml") + " -o " + folder.path("r")).status, 0);
  const auto summary = nlohmann::json::parse(folder.read("r/summary.json"))["variants"];
  const auto table = table_of(page);
  ASSERT_EQ(table.size(), 4u) << page;
  const std::vector<std::pair<std::string, std::string>> keys = {
      {"dropped", "/dropped"},
      {"resent", "/retransmitted"},
      {"pauses", "/pauses"},
      {"max us", "/fct_us/max"},
      {"FCT median us", "/fct_us/median"},
      {"all done us", "/end_us"},
      {"slowdown 99 %", "/slowdown/p99"}};
  for (const auto& [head, key] : keys) {
    const auto column = std::find(table[0].begin(), table[0].end(), head) - table[0].begin();
    ASSERT_LT(column, std::ssize(table[0])) << head;
    for (std::size_t i = 0; i < 3; ++i) {
      const double value = summary[i][nlohmann::json::json_pointer(key)].get<double>();
      EXPECT_NEAR(std::stod(table[i + 1][column]), value, value >= 100 ? 0.051 : 0.0051) << head;
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(table[i + 1][0], summary[i]["variant"].get<std::string>());
    EXPECT_EQ(table[i + 1][1], "5/5");
  }
  EXPECT_TRUE(contains(folder.read("g/README.md"), "[**bars**](bars.md): Four & \\<more\\> hosts"));
}

TEST_F(GalleryTest, ThePictureHasABarOrCurveForEachVariant) {
  if (shell("command -v gnuplot").status != 0) GTEST_SKIP() << "no gnuplot";
  ASSERT_EQ(both().status, 0);
  for (const std::string name : {"bars", "curves"}) {
    EXPECT_TRUE(contains(folder.read("g/" + name + ".md"), "](" + name + ".svg)"));
    const std::string svg = folder.read("g/" + name + ".svg");
    EXPECT_EQ(count(svg, "<g id=\"" + name + "_plot_"), 3) << name;
    for (const char* variant : {">slow<", ">fast<", ">lossy<"}) {
      EXPECT_EQ(count(svg, variant), 1) << name << variant;
    }
    EXPECT_FALSE(contains(svg, "GNUPLOT")) << "which version of it is no matter of the picture";
    EXPECT_LT(svg.size(), 60'000u);
    const ProgramOutcome parsed =
        shell("/usr/bin/python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' " +
              folder.path("g/" + name + ".svg"));
    EXPECT_EQ(parsed.status, 0) << "well-formed XML: " << parsed.error;
  }
}

TEST_F(GalleryTest, TheSameBytesAgain) {
  ASSERT_EQ(both().status, 0);
  ASSERT_EQ(shell("mv " + folder.path("g") + " " + folder.path("first")).status, 0);
  // The user's settings for gnuplot must not change the pictures.
  folder.write(".gnuplot", "set title 'mine'\nset terminal dumb\n");
  ASSERT_EQ(
      shell("HOME=" + folder.path("") + " LC_ALL=de_DE.UTF-8 " + program() + "--gallery -o " +
            folder.path("g") + " " + folder.path("bars.toml") + " " + folder.path("curves.toml"))
          .status,
      0);
  EXPECT_EQ(shell("diff -r " + folder.path("g") + " " + folder.path("first")).out, "");
}

TEST_F(GalleryTest, WithoutGnuplotTheTablesAreThere) {
  const ProgramOutcome outcome = shell("PATH=/nowhere " + program() + "--gallery -o " +
                                       folder.path("g") + " " + folder.path("bars.toml"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.error,
            "tulle: the pages have no pictures, because gnuplot is missing: install gnuplot-nox\n");
  EXPECT_EQ(table_of(folder.read("g/bars.md")).size(), 4u);
  EXPECT_FALSE(contains(folder.read("g/bars.md"), ".svg"));
  EXPECT_FALSE(has("bars.svg"));
}

TEST_F(GalleryTest, OneThatFailsDoesNotLoseTheOthers) {
  folder.write("wrong.toml", text("") + "traffic.receiver = 17\n");
  const ProgramOutcome outcome =
      gallery(folder.path("wrong.toml") + " " + folder.path("bars.toml"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.error.rfind("tulle: wrong: ", 0), 0u) << outcome.error;
  EXPECT_EQ(count(outcome.error, "\n"), 1) << outcome.error;
  EXPECT_FALSE(has("wrong.md"));
  EXPECT_TRUE(has("bars.md"));
  EXPECT_FALSE(contains(folder.read("g/README.md"), "wrong.md"));
}

TEST_F(GalleryTest, AnInterruptLeavesWholeFiles) {
  folder.write("long.toml",
               "description = \"D\"\n[topology]\nhosts = 2\n[traffic]\nbytes = \"1TB\"\n");
  const ProgramOutcome outcome =
      shell(program() + "--gallery -o " + folder.path("g") + " " + folder.path("bars.toml") + " " +
            folder.path("long.toml") + " & pid=$!; n=0; while [ ! -e " + folder.path("g/bars.md") +
            " ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done; kill -INT $pid; wait $pid");
  EXPECT_EQ(outcome.status, 130);
  EXPECT_TRUE(contains(outcome.error, "tulle: interrupted: only the scenarios that were finished"));
  EXPECT_TRUE(has("bars.md"));
  EXPECT_FALSE(has("long.md"));
  EXPECT_TRUE(contains(folder.read("g/README.md"), "(bars.md)"));
  EXPECT_EQ(shell("ls " + folder.path("g") + " | grep -c part").out, "0\n");
}

TEST_F(GalleryTest, MistakesGetOneLine) {
  expect_refused("--gallery nowhere.toml -o " + folder.path("g"),
                 "there is no file \"nowhere.toml\"");
  expect_refused("--gallery --json", "--json", 2);
  folder.write("file", "");
  expect_refused("--gallery " + folder.path("bars.toml") + " -o " + folder.path("file"),
                 folder.path("file"), 1);
  expect_refused(folder.path("bars.toml") + " " + folder.path("curves.toml"),
                 "several scenarios are named");
  folder.write("bars.toml", text("show = \"goodput\""));
  expect_refused("--gallery " + folder.path("bars.toml") + " -o " + folder.path("g"),
                 "picture.show: no variant has a figure \"goodput\"", 1);
}

}  // namespace
}  // namespace tulle::cli
