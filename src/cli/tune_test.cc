// `tulle tune` as a user runs it.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/terminal_text.h"
#include "cli/program_test.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

class Tune : public ProgramTest {
 protected:
  Tune() : ProgramTest("tune") {
    folder.write("s.toml", R"(title = "Small"
[topology]
kind = "single-switch"
hosts = 8
link_rate = "100Gbps"
[traffic]
pattern = "incast"
senders = 6
bytes = "1MB"
[fabric]
ecn = { kmin = "5KB", kmax = "10KB", pmax = 1.0 }
[congestion]
control = "dcqcn"
[[variant]]
name = "one"
[[variant]]
name = "credits"
fabric = { kind = "infiniband" }
congestion.control = "none"
)");
  }

  std::string command(const std::string& output, const std::string& more) const {
    return "'" + folder.path("s.toml") + "' --variant one -o '" + folder.path(output) + "' " + more;
  }
};

constexpr char search[] =
    "-k fabric.ecn.kmin=5KB..500KB -k congestion.additive=40Mbps..4Gbps --set "
    "fabric.ecn.kmax=\\\"1MB\\\" --minimize fct_us.p99 --budget 16 ";

// A scenario may come from anybody.
TEST_F(Tune, TextsDoNotSteerTheTerminal) {
  folder.write("h.toml", R"(title = "t\u001B]0;x\u0007"
[topology]
kind = "single-switch"
hosts = 4
[traffic]
pattern = "incast"
bytes = "1MB"
name = "kind\u001B[2J"
[[variant]]
name = "one\u009B31m"
)");
  const ProgramOutcome outcome =
      run("'" + folder.path("h.toml") + "' -o '" + folder.path("h") +
          "' -k traffic.queue_pairs=1,2 --minimize fct_us.p99 --budget 2");
  EXPECT_TRUE(outcome.out.starts_with("t?]0;x?\n")) << outcome.out << outcome.error;
  EXPECT_EQ(outcome.out + outcome.error, terminal_text(outcome.out + outcome.error));
}

TEST_F(Tune, WhatIsFoundIsBetterOnValidationSeeds) {
  const ProgramOutcome outcome = run(command("o", search));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "16 settings tried to minimize fct_us.p99")) << outcome.out;
  const auto json = nlohmann::json::parse(folder.read("o/tune.json"));
  EXPECT_GT(json["validation_gain"].get<double>(), 0.2) << outcome.out;
  EXPECT_EQ(json["recommended"], true);
  ASSERT_EQ(json["validation"].size(), 5u);
  for (const auto& seed : json["validation"]) EXPECT_GE(seed["seed"].get<int>(), 101);
  EXPECT_EQ(json["knobs"]["fabric.ecn.kmin"]["was"], "5KB");
  EXPECT_EQ(json["knobs"]["congestion.additive"]["was"], "default");
  // The file that it wrote stands by itself, and has what was found.
  const ProgramOutcome tuned =
      shell("'" TULLE_PROGRAM "' sim '" + folder.path("o/tuned.toml") + "' --json --set seed=103");
  ASSERT_EQ(tuned.status, 0) << tuned.error;
  EXPECT_NEAR(nlohmann::json::parse(tuned.out)["fct_us"]["p99"].get<double>(),
              json["validation"][2]["tuned"].get<double>(), 1e-3);
  const auto sonic = nlohmann::json::parse(folder.read("o/sonic.json"));
  EXPECT_EQ(sonic["WRED_PROFILE"]["TULLE_ECN"]["green_max_threshold"], "1000000");
  EXPECT_EQ(shell("sh -n '" + folder.path("o/adapter.sh") + "'").status, 0);
  EXPECT_TRUE(contains(folder.read("o/report.html"), "seed=105"));
}

// The best setting of a search may be worse than the scenario as it was, or just the same. A user
// must not be told to take it, nor find it in a file.
TEST_F(Tune, AScenarioThatNothingIsBetterThanIsKept) {
  ASSERT_EQ(run(command("o", search)).status, 0) << "its files must not stay";
  for (const std::string knob : {"traffic.bytes=2MB,3MB", "fabric.ecn.kmin=5KB,5KB"}) {
    const ProgramOutcome outcome =
        run(command("o", "-k " + knob + " --minimize fct_us.p99 --budget 2"));
    EXPECT_EQ(outcome.status, 1) << knob;
    EXPECT_TRUE(contains(outcome.out,
                         "\nKeep the scenario as it is: on the validation seeds, the best "
                         "setting is no better.\n"))
        << outcome.out;
    const auto json = nlohmann::json::parse(folder.read("o/tune.json"));
    EXPECT_EQ(json["recommended"], false);
    EXPECT_LE(json["validation_gain"].get<double>(), 0);
    for (const char* name : {"tuned.toml", "sonic.json", "adapter.sh"}) {
      EXPECT_FALSE(fs::exists(folder.path(std::string("o/") + name))) << name;
    }
    EXPECT_TRUE(fs::exists(folder.path("o/report.html")));
    EXPECT_TRUE(fs::exists(folder.path("o/evaluations.csv")));
  }
}

TEST_F(Tune, TheFolderSaysWhatWasTried) {
  const ProgramOutcome outcome = run(command("o", search));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::string csv = folder.read("o/evaluations.csv");
  EXPECT_TRUE(
      csv.starts_with("fabric.ecn.kmin,congestion.additive,mean,seed 1,seed 2,failure\n"
                      "5KB,default,"))
      << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 18) << "a heading, as it was, and sixteen";
}

TEST_F(Tune, ASearchThatWasKilledGoesOn) {
  const std::string arguments = command("o", search);
  for (const int milliseconds : {60, 120, 240}) {
    begin_and_kill(arguments, std::chrono::milliseconds(milliseconds));
  }
  ASSERT_EQ(run(arguments).status, 0);
  ASSERT_EQ(run(command("whole", search)).status, 0);
  for (const char* name : {"tune.json", "evaluations.csv", "sonic.json", "adapter.sh"}) {
    EXPECT_EQ(folder.read(std::string("o/") + name), folder.read(std::string("whole/") + name));
  }
}

TEST_F(Tune, ALimitIsKept) {
  const std::string limited = std::string(search) + "--limit 'fct_us.min>=900' ";
  const ProgramOutcome outcome = run(command("o", limited));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(folder.read("o/evaluations.csv"), "fct_us.min is ")) << "some break it";
  const ProgramOutcome tuned =
      shell("'" TULLE_PROGRAM "' sim '" + folder.path("o/tuned.toml") + "' --json");
  EXPECT_GE(nlohmann::json::parse(tuned.out)["fct_us"]["min"].get<double>(), 900);
  expect_refused(command("none", std::string(search) + "--limit 'fct_us.min>=100000'"),
                 "none of 16 settings keeps to the limits; with the nearest, fct_us.min is ", 1);
}

// A limit must be kept on the validation seeds as well.
TEST_F(Tune, ASettingThatBreaksALimitOnAValidationSeedIsNotTaken) {
  const ProgramOutcome outcome = run(command(
      "o",
      "-k fabric.ecn.kmin=5KB..500KB --set fabric.ecn.kmax=\\\"1MB\\\" --minimize "
      "fct_us.p99 --budget 2 --seeds 2 --validation-seeds 3..6 --limit 'fct_us.p99<=1900'"));
  EXPECT_EQ(outcome.status, 1) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "the best setting breaks a limit, fct_us.p99 is "))
      << outcome.out;
  const auto json = nlohmann::json::parse(folder.read("o/tune.json"));
  EXPECT_EQ(json["recommended"], false);
  EXPECT_GT(json["validation_gain"].get<double>(), 0) << "the limit is the reason, not the figure";
  EXPECT_FALSE(fs::exists(folder.path("o/tuned.toml")));
}

TEST_F(Tune, ALimitThatTheScenarioBreaksIsWorthAWorseFigure) {
  const ProgramOutcome outcome =
      run(command("o",
                  "-k traffic.bytes=2MB,3MB --minimize fct_us.p99 --budget 2 "
                  "--limit 'fct_us.min>=3000'"));
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_TRUE(contains(
      outcome.out, "\nOn the validation seeds, the scenario as it was breaks a limit: fct_us.min "))
      << outcome.out;
  const auto json = nlohmann::json::parse(folder.read("o/tune.json"));
  EXPECT_EQ(json["recommended"], true);
  EXPECT_LT(json["validation_gain"].get<double>(), 0);
  EXPECT_TRUE(fs::exists(folder.path("o/tuned.toml")));
}

TEST_F(Tune, TheFlowLevelSaysItsError) {
  folder.write("open.toml",
               "[topology]\nkind = \"fat-tree\"\nk = 4\nlink_rate = \"100Gbps\"\n[traffic]\n"
               "pattern = \"poisson\"\nload = 0.1\nduration = \"4ms\"\n[fabric]\n"
               "flow_control = \"none\"\n[host]\nrecovery = \"selective-repeat\"\n");
  const ProgramOutcome outcome =
      run("'" + folder.path("open.toml") + "' -o '" + folder.path("o") +
          "' -k traffic.queue_pairs=1..4 --minimize fct_us.p99 --budget 4 --level flow");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "\nFlow level: in such runs the mean slowdown was within "))
      << outcome.out;
  EXPECT_EQ(nlohmann::json::parse(folder.read("o/tune.json"))["level"], "flow");
  expect_refused(command("p", search) + "--level flow", "--level packet");
}

TEST_F(Tune, StepsOfSwitchesAreSaid) {
  const ProgramOutcome outcome =
      run(command("o", std::string(search) + "--set fabric.ecn.pmax=0.001"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "sonic.json: its drop probability is 1 %, and 0.001 was"))
      << outcome.out;
}

TEST_F(Tune, AFailedSearchLeavesNoResultsOfAnother) {
  ASSERT_EQ(run(command("o", search)).status, 0);
  ASSERT_TRUE(fs::exists(folder.path("o/tuned.toml")));
  const ProgramOutcome failed = run(command("o", std::string(search) + "--limit 'fct_us.max<=1'"));
  EXPECT_EQ(failed.status, 1);
  EXPECT_TRUE(contains(failed.error, "replacing the results of ")) << failed.error;
  EXPECT_TRUE(contains(failed.error, "none of 16")) << failed.error;
  for (const char* name : {"tuned.toml", "tune.json", "report.html", "sonic.json"}) {
    EXPECT_FALSE(fs::exists(folder.path(std::string("o/") + name))) << name;
  }
}

// Files are found from anywhere.
TEST_F(Tune, AScenarioInTheCurrentFolderIsTuned) {
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,100000,0\n2,1,100000,0\n");
  folder.write("t.toml",
               "[topology]\nhosts = 4\n[traffic]\npattern = \"file\"\n"
               "file = \"f.csv\"\n");
  const auto tune = [&](const std::string& more) {
    return shell("cd '" + folder.path() + "' && exec " + program() + "t.toml -o o --budget 4 " +
                 "--set \"$(printf 'host.mtu = 1024\\nhost.train = 1')\" " + more);
  };
  const ProgramOutcome outcome = tune("-k host.mtu=2048,4096 --minimize fct_us.p99");
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(outcome.out.starts_with("t.toml\n4 settings")) << "the name stands for the title";
  EXPECT_EQ(shell("'" TULLE_PROGRAM "' sim '" + folder.path("o/tuned.toml") + "'").status, 0);
  // The options' older names.
  const ProgramOutcome old = tune("-k host.mtu=2048,4096 --least fct_us.p99 --held-back 102");
  EXPECT_EQ(old.status, 0) << old.error;
  EXPECT_TRUE(contains(old.out, "validation seeds (1)")) << old.out;
  EXPECT_EQ(tune("-k host.mtu=2048,4096 --minimize fct_us.p99 --least goodput_gbps").status, 2);
  // A figure that is shown only where it is not 0 is 0 elsewhere.
  const ProgramOutcome zero = tune("-k host.mtu=2048,4096 --minimize discarded");
  EXPECT_EQ(zero.status, 1) << "nothing is less than 0";
  EXPECT_TRUE(contains(zero.out, "Keep the scenario as it is: ")) << zero.error;
}

TEST_F(Tune, SettingsThatAreRefusedDoNotCount) {
  const ProgramOutcome outcome =
      run(command("o",
                  "-k fabric.ecn.kmin=5KB..500KB -k fabric.ecn.kmax=10KB..1MB "
                  "--minimize fct_us.p99 --budget 12"));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(folder.read("o/evaluations.csv"), "must not be less than kmin"));
}

TEST_F(Tune, KnobsThatComeAlongAreKnown) {
  for (const char* name : {"dcqcn", "ecn", "pfc", "routing", "queue-pairs", "collective"}) {
    const ProgramOutcome outcome =
        run(command(name, std::string("--knobs ") + name +
                              " --minimize fct_us.p99 --budget 2 --seeds 1 "
                              "--validation-seeds 2"));
    // A collective's keys are none of an incast's.
    const bool fits = std::string(name) != "collective";
    EXPECT_EQ(outcome.error.empty(), fits) << name << ": " << outcome.error;
    EXPECT_TRUE(fits || contains(outcome.error, "traffic.")) << outcome.error;
  }
}

TEST_F(Tune, MistakesAreOneLine) {
  const std::string rest = " --minimize fct_us.p99 --budget 4";
  expect_refused(command("o", "--minimize fct_us.p99"), "--knobs dcqcn, or --knob KEY=LEAST..MOST");
  expect_refused(command("o", "-k a=1..2"), "name the objective");
  expect_refused(command("o", "-k a=1..1KB" + rest), "have different units");
  expect_refused(command("o", "-k seed=1..9" + rest), "seeds are drawn, not tuned");
  expect_refused(command("o", "--knobs nothing" + rest), "there are collective, dcqcn, ecn, pfc");
  expect_refused(command("o", "-k a=1..2 --seeds 5 --validation-seeds 4..6" + rest),
                 "seed 5 is searched on");
  expect_refused(command("o", "-k a=1..2 --seeds x" + rest), "write whole numbers");
  expect_refused(command("o", "-k a=1..2 --limit pauses=0" + rest), "such as pauses<=0");
  expect_refused(command("o", "-k a=1..2 --limit 'puases<=0'" + rest),
                 "no figure \"puases\"; did you mean pauses? ");
  expect_refused(command("o",
                         "-k a=1..2 --minimize fct_us.p99 --budget 10000 --seeds 1..100 "
                         "--validation-seeds 101"),
                 "at most 100000 simulations");
  expect_refused(command("o", "-k a=1..2 --minimize fct_us.p99 --budget 1"), "must be 2 to 10000");
  expect_refused(command("o", "-k a=1..2 --minimize nonsense"),
                 "--minimize: no figure \"nonsense\"");
  expect_refused(command("o", "-k no.such=1..2" + rest),
                 "none of 2 settings counts; the first: ", 1);
  expect_refused("'" + folder.path("s.toml") + "' -o '" + folder.path("o") + "' -k a=1..2" + rest,
                 "has 2 variants, and one is tuned");
  expect_refused("'" + folder.path("s.toml") + "' --variant two -o '" + folder.path("o") +
                     "' -k a=1..2" + rest,
                 "has no variant \"two\"; the variants are one, credits");
}

}  // namespace
}  // namespace tulle::cli
