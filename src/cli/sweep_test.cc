// `tulle sweep` as a user runs it.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/terminal_text.h"
#include "cli/program_test.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

class Sweep : public ProgramTest {
 protected:
  Sweep() : ProgramTest("sweep") {
    folder.write("s.toml", R"(title = "Small"
[topology]
kind = "single-switch"
hosts = 8
link_rate = "100Gbps"
[traffic]
pattern = "incast"
senders = 4
bytes = "64KB"
)");
  }

  // Replaces the scenario by one of a file of links, in which two hosts have a switch.
  void write_scenario_of_links() {
    folder.write("links.csv", "a,b,gbps,delay_ns\n0,2,100,100\n1,2,100,100\n");
    folder.write("s.toml",
                 "[topology]\nkind = \"file\"\nfile = \"links.csv\"\n[traffic]\nbytes = \"1MB\"\n");
  }
  std::string command(const std::string& output, const std::string& more) const {
    return "'" + folder.path("s.toml") + "' -o '" + folder.path(output) + "' " + more;
  }
  std::size_t files(const std::string& output) const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder.path(output) + "/points")) {
      count += entry.path().extension() == ".json" ? 1 : 0;
    }
    return count;
  }
};

// A scenario may come from anybody.
TEST_F(Sweep, TextsDoNotSteerTheTerminal) {
  folder.write("h.toml", R"(title = "t\u001B]0;x\u0007"
[topology]
kind = "single-switch"
hosts = 4
[traffic]
pattern = "incast"
bytes = "10KB"
name = "kind\u001B[2J"
[[variant]]
name = "one\u009B31m"
)");
  const ProgramOutcome outcome =
      run("'" + folder.path("h.toml") + "' -o '" + folder.path("h") + "' -k seed=1,2");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(outcome.out.starts_with("t?]0;x?\n")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "seed=1, one?31m ")) << outcome.out;
  EXPECT_EQ(outcome.out, terminal_text(outcome.out));
}

// A point keeps the settings of each variant.
TEST_F(Sweep, SettingsThatAreTooLargeAreRefused) {
  std::string text = folder.read("s.toml") + "hosts = \"0-7" + std::string(1 << 20, ' ') + "\"\n";
  for (int i = 0; i < 100; ++i) text += "[[variant]]\nname = \"v" + std::to_string(i) + "\"\n";
  folder.write("l.toml", text);
  expect_refused("'" + folder.path("l.toml") + "' -o '" + folder.path("l") + "' -k seed=1",
                 "the settings of 100 variants take more than 64 MiB");
}

// Two folders may have files of one name.
TEST_F(Sweep, AnotherFolderIsAnotherScenario) {
  folder.write("a/f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n");
  folder.write("b/f.csv", "src,dst,bytes,start_ns\n0,1,1000000,0\n");
  const auto end_of = [&](const std::string& where) {
    folder.write("t.toml", "folder = \"" + where +
                               "\"\n[topology]\nhosts = 2\n[traffic]\n"
                               "pattern = \"file\"\nfile = \"f.csv\"\n");
    EXPECT_EQ(run("'" + folder.path("t.toml") + "' -k seed=1 -o '" + folder.path("o") + "'").status,
              0);
    const auto json = nlohmann::json::parse(folder.read("o/sweep.json"));
    return json["points"][0]["results"][0]["end_us"].get<double>();
  };
  EXPECT_LT(end_of("a") * 5, end_of("b"));
}

TEST_F(Sweep, AllCombinationsAreSimulated) {
  const ProgramOutcome outcome =
      run(command("o", "-k traffic.bytes=16KB,64KB -k traffic.senders=2..4"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("traffic.bytes=64KB, traffic.senders=3"), std::string::npos)
      << outcome.out;
  EXPECT_EQ(files("o"), 6u);
  const std::string csv = folder.read("o/sweep.csv");
  EXPECT_TRUE(csv.starts_with("traffic.bytes,traffic.senders,variant,traffic,")) << csv;
  EXPECT_NE(csv.find("\n16KB,2,,,"), std::string::npos) << csv;
  const auto json = nlohmann::json::parse(folder.read("o/sweep.json"));
  ASSERT_EQ(json["points"].size(), 6u);
  EXPECT_EQ(json["points"][5]["keys"]["traffic.bytes"], "64KB");
  EXPECT_EQ(json["points"][5]["results"][0]["flows"], 4);
  // The results are those of tulle sim.
  const ProgramOutcome alone = shell("exec '" TULLE_PROGRAM "' sim '" + folder.path("s.toml") +
                                     "' --json --set traffic.senders=4");
  const auto one = nlohmann::json::parse(alone.out);
  EXPECT_EQ(json["points"][5]["results"][0]["fct_us"], one["fct_us"]);
  const std::string page = folder.read("o/report.html");
  EXPECT_NE(page.find("traffic.senders=3"), std::string::npos);
  EXPECT_EQ(page.find("nothing was paused"), std::string::npos) << "its links are not known";
}

TEST_F(Sweep, WhatIsThereIsNotSimulatedAgain) {
  ASSERT_EQ(run(command("o", "-k seed=1..3")).status, 0);
  std::vector<fs::file_time_type> before;
  for (const auto& entry : fs::directory_iterator(folder.path("o/points"))) {
    before.push_back(entry.last_write_time());
  }
  ASSERT_EQ(run(command("o", "-k seed=1..5")).status, 0);
  EXPECT_EQ(files("o"), 5u);
  std::size_t same = 0;
  for (const auto& entry : fs::directory_iterator(folder.path("o/points"))) {
    same += std::ranges::find(before, entry.last_write_time()) != before.end() ? 1 : 0;
  }
  EXPECT_EQ(same, 3u);
  // A damaged file, one of another point, and one with too many results count for nothing.
  const std::string csv = folder.read("o/sweep.csv");
  int damaged = 0;
  for (const auto& entry : fs::directory_iterator(folder.path("o/points"))) {
    auto json =
        nlohmann::ordered_json::parse(folder.read("o/points/" + entry.path().filename().string()));
    json["outcomes"].push_back(json["outcomes"][0]);
    const std::array<std::string, 3> texts = {"{", "{\"identity\": {}}", json.dump()};
    std::ofstream(entry.path()) << texts[static_cast<std::size_t>(damaged++) % texts.size()];
  }
  std::ofstream(folder.path("o/points/left.json.part")) << "{";
  ASSERT_EQ(run(command("o", "-k seed=1..5")).status, 0);
  EXPECT_EQ(folder.read("o/sweep.csv"), csv);
  EXPECT_FALSE(fs::exists(folder.path("o/points/left.json.part")));
}

// A file that the scenario names is a part of the point.
TEST_F(Sweep, AFileThatHasChangedIsSimulatedAgain) {
  write_scenario_of_links();
  ASSERT_EQ(run(command("o", "-k seed=1,2")).status, 0);
  const std::string before = folder.read("o/sweep.csv");
  folder.write("links.csv", "a,b,gbps,delay_ns\n0,2,50,100\n1,2,50,100\n");
  ASSERT_EQ(run(command("o", "-k seed=1,2")).status, 0);
  EXPECT_NE(folder.read("o/sweep.csv"), before);
  // A profile is read from a folder beside the scenario.
  folder.write("profiles/switches/mine.toml", "title = \"Mine\"\nbuffer = \"1MB\"\n");
  folder.write("s.toml",
               "[topology]\nkind = \"single-switch\"\nhosts = 8\n[fabric]\n"
               "kind = \"roce\"\nprofile = \"mine\"\n[traffic]\npattern = \"incast\"\n"
               "senders = 7\nbytes = \"1MB\"\n");
  const ProgramOutcome first = run(command("p", "-k seed=1"));
  ASSERT_EQ(first.status, 0) << first.error;
  const std::string with_much = folder.read("p/sweep.csv");
  folder.write("profiles/switches/mine.toml", "title = \"Mine\"\nbuffer = \"600KB\"\n");
  const ProgramOutcome second = run(command("p", "-k seed=1"));
  ASSERT_EQ(second.status, 0) << second.error;
  EXPECT_NE(folder.read("p/sweep.csv"), with_much);
}

// A trace has a file for each rank, and its name may be that of a folder, or what the files share.
TEST_F(Sweep, ATraceWithAnotherFileIsSimulatedAgain) {
  const auto rank = [](int runtime) {
    return R"({"workload_graph": [{"Id": 1, "Name": "c", "NodeType": 4, "is_cpu_op": false, )"
           R"("data_deps": [], "runtime": )" +
           std::to_string(runtime) + "}]}";
  };
  for (const std::string name : {"tr", "tr/step", "tr/step.1.json"}) {
    fs::remove_all(folder.path("tr"));
    folder.write("tr/step.0.json", rank(100));
    folder.write("tr/step.1.json", rank(200));
    folder.write("s.toml", "[topology]\nhosts = 4\n[traffic]\npattern = \"trace\"\ntrace = \"" +
                               name + "\"\n");
    const auto job_us = [&] {
      const ProgramOutcome outcome = run(command("o", "-k seed=1"));
      EXPECT_EQ(outcome.status, 0) << outcome.error;
      const auto json = nlohmann::json::parse(folder.read("o/sweep.json"));
      return json["points"][0]["results"][0]["job_us"].get<double>();
    };
    EXPECT_EQ(job_us(), 200) << name;
    folder.write("tr/step.2.json", rank(900));
    EXPECT_EQ(job_us(), 900) << name;
    fs::remove(folder.path("tr/step.2.json"));
    EXPECT_EQ(job_us(), 200) << name;
  }
}

// A file of results may name more bytes than are read to check it. The points that are simulated
// then are checked as if nothing had been read.
TEST_F(Sweep, WhatWasReadToCheckFilesIsForgottenAfterAPoint) {
  write_scenario_of_links();
  ASSERT_EQ(run(command("o", "-k seed=1")).status, 0);
  const std::string csv = folder.read("o/sweep.csv");
  const fs::path path = fs::directory_iterator(folder.path("o/points"))->path();
  const std::string huge = folder.path("huge");
  folder.write("huge", "");
  fs::resize_file(huge, std::uintmax_t{16} << 30);  // it has no blocks
  auto json = nlohmann::ordered_json::parse(std::ifstream(path));
  const std::string empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  const auto files = json["files"];
  json["files"] = {{huge, empty}};
  json["files"].update(files);
  json["outcomes"][0]["tally"] = {0, 0, 0, 0};
  std::ofstream(path) << json.dump();
  const ProgramOutcome outcome = run(command("o", "-k seed=1,2"));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(path))["outcomes"][0]["tally"][0], 2)
      << "it was simulated again";
  EXPECT_TRUE(folder.read("o/sweep.csv").starts_with(csv.substr(0, csv.size() - 1)));
}

// Another user may have put the folder there. What is in it makes no sweep end or wait.
TEST_F(Sweep, FilesOfAStrangerCostNothing) {
  ASSERT_EQ(run(command("o", "-k seed=1..3")).status, 0);
  const std::string csv = folder.read("o/sweep.csv");
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder.path("o/points"))) {
    paths.push_back(entry.path());
  }
  ASSERT_EQ(paths.size(), 3u);
  auto json =
      nlohmann::ordered_json::parse(folder.read("o/points/" + paths[0].filename().string()));
  json["files"]["/dev/zero"] = "0";
  std::ofstream(paths[0]) << json.dump();
  constexpr std::size_t depth = 200'000;
  std::ofstream(paths[1]) << std::string(depth, '[') << std::string(depth, ']');
  fs::remove(paths[2]);
  fs::create_symlink("/dev/zero", paths[2]);
  EXPECT_EQ(run(command("o", "-k seed=1..3")).status, 0);
  EXPECT_EQ(folder.read("o/sweep.csv"), csv);
}

// A sweep of a hundred points is killed five times at random.
TEST_F(Sweep, GoesOnAfterItWasKilled) {
  const std::string knobs = "-j 2 -k seed=1..25 -k traffic.bytes=16KB,64KB,256KB,4MB";
  ASSERT_EQ(run(command("whole", knobs)).status, 0);
  Random random(7);
  const auto points = [this] {
    return fs::exists(folder.path("pieces/points")) ? files("pieces") : 0;
  };
  std::size_t had = 0;
  for (int i = 0; i < 5; ++i) {
    const std::size_t enough = had + 1 + random.below(15);
    begin_and_kill(command("pieces", knobs), [&] { return points() >= enough; });
    EXPECT_GE(points(), enough) << "nothing is lost";
    had = points();
  }
  EXPECT_LT(had, 100u) << "it was killed in between";
  ASSERT_EQ(run(command("pieces", knobs)).status, 0);
  EXPECT_EQ(folder.read("pieces/sweep.csv"), folder.read("whole/sweep.csv"));
  EXPECT_EQ(folder.read("pieces/sweep.json"), folder.read("whole/sweep.json"));
}

TEST_F(Sweep, APointThatIsRefusedHarmsNoOther) {
  const ProgramOutcome outcome = run(command("o", "-k traffic.senders=2,900,3"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.error.find("1 of 3 points have no results; the first is traffic.senders=900: "),
            std::string::npos)
      << outcome.error;
  EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  EXPECT_EQ(files("o"), 2u);
}

TEST_F(Sweep, PointsMayBeAList) {
  folder.write("points.toml",
               "[[point]]\ntraffic.bytes = \"16KB\"\nseed = 4\n[[point]]\ntraffic.senders = 2\n"
               "[[point]]\ntraffic.senders = 2\n");
  const ProgramOutcome outcome = run(command("o", "--points '" + folder.path("points.toml") + "'"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(files("o"), 2u) << "two points are the same";
  const auto json = nlohmann::json::parse(folder.read("o/sweep.json"));
  EXPECT_EQ(json["points"].size(), 3u);
  EXPECT_EQ(json["points"][1]["results"], json["points"][2]["results"]);
}

TEST_F(Sweep, MistakesAreOneLine) {
  expect_refused(command("o", ""), "name what is to vary");
  expect_refused(command("o", "-k seed"), "write KEY=VALUE");
  expect_refused(command("o", "-k traffic.colour=red"), "traffic.colour");
  expect_refused(command("o", "-k seed=1,2 --variant none"),
                 "has no variants: leave --variant out");
  expect_refused("/nowhere.toml -k seed=1 -o '" + folder.path("o") + "'", "/nowhere.toml");
  expect_refused("'" + folder.path("s.toml") + "' -k seed=1 -o /proc/nowhere", "/proc/nowhere", 1);
  folder.write("letters/to-anne", "Dear Anne");
  expect_refused(command("letters", "-k seed=1"), "has files that are not results of Tulle");
  folder.write("r/summary.json", R"({"scenario": "s", "title": "T"})");
  expect_refused(command("r", "-k seed=1"), "has the results of a simulation");
}

// A point is another one at another level.
TEST_F(Sweep, TheFlowLevelHasResultsOfItsOwn) {
  folder.write("open.toml",
               "[topology]\nkind = \"fat-tree\"\nk = 4\nlink_rate = \"100Gbps\"\n[traffic]\n"
               "pattern = \"poisson\"\nload = 0.1\nduration = \"4ms\"\n[fabric]\n"
               "flow_control = \"none\"\n[host]\nrecovery = \"selective-repeat\"\n");
  const std::string sweep =
      "'" + folder.path("open.toml") + "' -k seed=1,2 -o '" + folder.path("o") + "' --level ";
  const ProgramOutcome flows = run(sweep + "flow");
  ASSERT_EQ(flows.status, 0) << flows.error;
  EXPECT_NE(flows.out.find("Flow level: in such runs"), std::string::npos) << flows.out;
  EXPECT_EQ(files("o"), 2u);
  const ProgramOutcome packets = run(sweep + "packet");
  ASSERT_EQ(packets.status, 0) << packets.error;
  EXPECT_EQ(packets.out.find("Flow level"), std::string::npos) << packets.out;
  EXPECT_EQ(files("o"), 4u);
  expect_refused(sweep + "flow --set 'host.recovery=\"go-back-n\"'",
                 "2 of 2 points have no results");
}

TEST_F(Sweep, SignalsAreTheExitStatus) {
  const std::string long_one = command("o", "-j 2 -k seed=1..200 --set traffic.bytes=64MB");
  for (const auto& [signal, status] : {std::pair("INT", 130), std::pair("TERM", 143)}) {
    const ProgramOutcome outcome =
        shell(program() + long_one + " & pid=$!; sleep 1; kill -" + signal + " $pid; wait $pid");
    EXPECT_EQ(outcome.status, status) << outcome.error;
  }
}

TEST_F(Sweep, TwoDoNotWriteToOneFolder) {
  const std::string first = command("o", "-j 1 -k seed=1..200 --set traffic.bytes=64MB");
  const std::string whole = "exec " + program() + first + " >/dev/null 2>&1";
  const pid_t process = fork();
  if (process == 0) {
    execl("/bin/sh", "sh", "-c", whole.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  for (int i = 0; i < 500 && !fs::exists(folder.path("o/.lock")); ++i) usleep(10'000);
  usleep(100'000);
  const ProgramOutcome second = run(first);
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  EXPECT_EQ(second.status, 1);
  EXPECT_NE(second.error.find("another sweep or search writes to the folder"), std::string::npos);
}

}  // namespace
}  // namespace tulle::cli
