// Runs `tulle sim` as a user does.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/terminal_text.h"
#include "cli/program_test.h"

namespace tulle::cli {
namespace {

class SimTest : public ProgramTest {
 protected:
  SimTest() : ProgramTest("sim") {}
};

constexpr char scenario_text[] = R"(title = "Four hosts"
[topology]
kind = "single-switch"
hosts = 4
[traffic]
pattern = "permutation"
bytes = "20KB"
[[variant]]
name = "slow"
topology.link_rate = "100Gbps"
[[variant]]
name = "fast"
topology.link_rate = "400Gbps"
)";

TEST_F(SimTest, ListsWhatComesAlong) {
  const ProgramOutcome list = run("--list");
  EXPECT_EQ(list.status, 0);
  EXPECT_EQ(list.error, "");
  EXPECT_TRUE(contains(list.out, "incast ")) << list.out;
}

TEST_F(SimTest, ATableForPeople) {
  folder.write("s.toml", scenario_text);
  const ProgramOutcome outcome = run(folder.path("s.toml"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.out.rfind("Four hosts\n", 0), 0u);
  EXPECT_TRUE(contains(outcome.out, "\nslow ")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "\nfast ")) << outcome.out;
}

// A scenario may come from anybody.
TEST_F(SimTest, TextsDoNotSteerTheTerminal) {
  folder.write("s.toml", R"(title = "t\u001B]0;x\u0007\u009B31m\u202E"
[topology]
kind = "single-switch"
hosts = 4
[traffic]
pattern = "incast"
bytes = "1KB"
name = "kind\u001B[2J"
[[traffic.and]]
pattern = "incast"
bytes = "1KB"
name = "other\u009B2J"
[[variant]]
name = "one\u001B[31m\nline"
[[variant]]
name = "two"
)");
  const ProgramOutcome text = run(folder.path("s.toml"));
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_TRUE(text.out.starts_with("t?]0;x??31m?\n")) << text.out;
  for (const char* row : {"\none?[31m?line ", "\n  kind?[2J ", "\n  other?2J "}) {
    EXPECT_TRUE(contains(text.out, row)) << row << text.out;
  }
  EXPECT_EQ(text.out, terminal_text(text.out));
  const ProgramOutcome json = run(folder.path("s.toml") + " --json");
  EXPECT_EQ(json.out, terminal_text(json.out));
  const auto read = nlohmann::json::parse(json.out);
  EXPECT_EQ(read["title"], "t\u001B]0;x\a\u009B31m\u202E");
  EXPECT_EQ(read["variants"][0]["variant"], "one\u001B[31m\nline");
  expect_refused(folder.path("s.toml") + " --set topology.hosts=1", "");
  const ProgramOutcome refused = run(folder.path("s.toml") + " --variant three");
  EXPECT_EQ(refused.error, terminal_text(refused.error));
}

TEST_F(SimTest, JsonForPrograms) {
  folder.write("s.toml", scenario_text);
  const auto all = nlohmann::json::parse(run(folder.path("s.toml") + " --json").out);
  EXPECT_EQ(all["title"], "Four hosts");
  ASSERT_EQ(all["variants"].size(), 2u);
  EXPECT_EQ(all["variants"][1]["finished"], 4);
  const auto one =
      nlohmann::json::parse(run(folder.path("s.toml") + " --json --variant fast --set seed=9").out);
  EXPECT_EQ(one["variant"], "fast");
  EXPECT_EQ(one["seed"], 9);
}

TEST_F(SimTest, FilesAreTheSameInTwoProcessesAndKnowNoClock) {
  folder.write("s.toml", scenario_text);
  ASSERT_EQ(run(folder.path("s.toml") + " -o " + folder.path("one")).status, 0);
  ASSERT_EQ(run(folder.path("s.toml") + " -o " + folder.path("two/deep") + " --timings " +
                folder.path("t.json"))
                .status,
            0);
  for (const std::string file :
       {"summary.json", "slow/flows.csv", "slow/links.csv", "fast/flows.csv", "fast/links.csv"}) {
    EXPECT_EQ(folder.read("one/" + file), folder.read("two/deep/" + file)) << file;
  }
  const auto timings = nlohmann::json::parse(folder.read("t.json"));
  EXPECT_GT(timings["peak_bytes"], 0);
  EXPECT_GE(timings["run_s"], 0);
}

TEST_F(SimTest, FilesAreTheSameWithAnyNumberOfThreads) {
  folder.write(
      "s.toml",
      "[topology]\nkind = \"leaf-spine\"\nleaves = 4\nhosts_per_leaf = 4\n[traffic]\n"
      "pattern = \"poisson\"\nload = 0.6\nduration = \"50us\"\n[report]\nsample = \"7us\"\n"
      "nodes = [\"leaf 1\"]\n");
  const std::string command = folder.path("s.toml") + " -o ";
  ASSERT_EQ(run(command + folder.path("one")).status, 0);
  for (const std::string threads : {"2", "3", "7"}) {
    const ProgramOutcome outcome =
        run(fmt::format("{}{} --threads {}", command, folder.path(threads), threads));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.error, "");
    for (const std::string file :
         {"summary.json", "flows.csv", "links.csv", "report.html", "samples.csv"}) {
      EXPECT_FALSE(folder.read("one/" + file).empty()) << file;
      EXPECT_TRUE(folder.read("one/" + file) == folder.read(fmt::format("{}/{}", threads, file)))
          << file;
    }
  }
}

TEST_F(SimTest, SaysWhyFewerThreadsSimulate) {
  folder.write("s.toml", scenario_text);
  const std::string slow = folder.path("s.toml") + " --variant slow --threads ";
  EXPECT_EQ(run(slow + "9").error,
            "tulle: slow is simulated by 4 threads, because it has 4 hosts\n");
  EXPECT_EQ(
      run(slow + "2 --capture " + folder.path("c.pcapng")).error,
      "tulle: slow is simulated by 1 thread, because a capture has all frames in their order\n");
  EXPECT_EQ(
      run(slow + "2 --set 'traffic.payload=\"bytes\"'").error,
      "tulle: slow is simulated by 1 thread, because the bytes of a message are looked at from "
      "both of its ends at once\n");
  EXPECT_EQ(
      run(slow + "2 --set 'topology.link_delay=\"0ns\"' --set 'fabric.switch_latency=\"0ns\"' "
                 "--set 'host.send_delay=\"0ns\"' --set 'host.receive_delay=\"0ns\"'")
          .error,
      "tulle: slow is simulated by 1 thread, because a link without delay lets nothing happen at "
      "the same time\n");
}

TEST_F(SimTest, TablesInsteadOfAScenario) {
  folder.write("l.csv", "a,b,gbps,delay_ns\n0,2,100,1000\n1,2,100,1000\n");
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n");
  const std::string tables =
      "--topology " + folder.path("l.csv") + " --flows " + folder.path("f.csv");
  for (const char* more : {"", " --fabric infiniband", " --congestion-control dcqcn-hpcc"}) {
    const ProgramOutcome outcome = run(tables + " --json" + more);
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["finished"], 1) << more;
  }
  expect_refused(tables + " --fabric infiniband --congestion-control dcqcn-hpcc",
                 "choose --fabric roce");
  expect_refused("--topology " + folder.path("l.csv"), "both --topology and --flows");
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,7,1000,0\n");
  expect_refused(tables, "f.csv:2: there is no host 7");
  expect_refused("--topology nowhere.csv --flows nowhere.csv",
                 "there is no file \"nowhere.csv\" in the current folder or ");
}

TEST_F(SimTest, MistakesGetOneLine) {
  expect_refused("nowhere.toml", "there is no file \"nowhere.toml\" in the current folder or ");
  expect_refused("no-such-name", "no scenario \"no-such-name\"; ");
  expect_refused("incats", "no scenario \"incats\"; did you mean incast? ");
  expect_refused("", "no scenario is named");
  folder.write("s.toml", scenario_text);
  const std::string s = folder.path("s.toml");
  expect_refused(s + " --variant quick", "has no variant \"quick\"; the variants are slow, fast");
  expect_refused(s + " --capture " + folder.path("c.pcapng"), "scenario s has 2 variants");
  expect_refused(s + " --variant fats", "has no variant \"fats\"; did you mean fast? ");
  expect_refused(s + " --set traffic.bytes", "write KEY=VALUE, such as traffic.bytes=4MB");
  expect_refused(s + " --set traffic.bytes=[20KB", "--set traffic.bytes: \"[20KB\" is no value");
  expect_refused(s + " --set trafic.bytes=20KB", "trafic: is not a known key; did you mean");
  expect_refused(s + " --set traffic.byte=20KB", "did you mean bytes?");
  expect_refused(s + " --set 'traffic.bytes=\"20Gbps\"'",
                 "--set: traffic.bytes: must be an amount");
  folder.write("file", "");
  expect_refused(s + " -o " + folder.path("file"), folder.path("file"), 1);
  expect_refused(s + " --timings /nowhere/t.json", "cannot write /nowhere/t.json: No such file", 1);
  expect_refused(s + " --fabric token-ring", "token-ring", 2);
  expect_refused(s + " --colour", "no option \"--colour\"; `tulle sim --help` lists the options");
  expect_refused(s + " --ouput=x", "no option \"--ouput\"; did you mean --output?");
  expect_refused(s + " --threads 0", "--threads: 0 is no number from 1 to 256", 2);
  expect_refused(s + " --threads 10000", "--threads: 10000 is no number from 1 to 256", 2);
  expect_refused(s + " --threads some", "--threads: some is no number from 1 to 256", 2);
  folder.write("s.toml", "[topology]\nkind = \"moebius\"\n");
  expect_refused(s, "s.toml:2: topology.kind: must be \"single-switch\"");
}

// What would have no effect is refused.
TEST_F(SimTest, OptionsThatDoNotGoTogetherAreRefused) {
  folder.write("s.toml", scenario_text);
  const std::string s = folder.path("s.toml");
  for (const char* of_tables : {"--topology x.csv", "--flows x.csv", "--fabric infiniband",
                                "--congestion-control dcqcn-hpcc"}) {
    expect_refused(s + " " + of_tables, "has no effect with SCENARIO: leave one of them out");
  }
  expect_refused(s + " --capture-at 'host 999'", "--capture-at requires --capture");
  for (const char* other : {"--level flow", "--threads 7", "--fabric roce", "--unvalidated",
                            "--capture-at 'host 9' --capture x"}) {
    expect_refused("--gallery " + s + " -o " + folder.path("g") + " " + other, "--gallery");
  }
  expect_refused("--list --seed 3", "--seed has no effect with --list: leave one of them out");
  expect_refused(s + " --list", "SCENARIO has no effect with --list");
  expect_refused(s + " --level flow --threads 2", "--threads has no effect with --level flow");
}

TEST_F(SimTest, WhatIsWrongIsSaidBeforeTheFirstVariantRuns) {
  constexpr char text[] =
      "[topology]\nhosts = 2\n[traffic]\npattern = \"permutation\"\nbytes = \"1TB\"\n"
      "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n";
  folder.write("s.toml", std::string(text) + "traffic.size = \"1B\"\n");
  expect_refused(folder.path("s.toml"), "s.toml:10: traffic.size: is not a known key");
  folder.write("s.toml", text);
  folder.write("file", "");
  expect_refused(folder.path("s.toml") + " -o " + folder.path("file"), folder.path("file"), 1);
}

// It would be waited for without end.
TEST_F(SimTest, ACaptureIsNoFifoThatNobodyReads) {
  folder.write("s.toml", scenario_text);
  const std::string fifo = folder.path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string arguments = folder.path("s.toml") + " --variant slow --capture " + fifo;
  const ProgramOutcome refused = shell("exec timeout 30 " + program() + arguments);
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.error, "nobody reads from this FIFO")) << refused.error;
  const ProgramOutcome read =
      shell("wc -c <" + fifo + " & exec timeout 30 " + program() + arguments);
  EXPECT_EQ(read.status, 0) << read.error;
}

TEST_F(SimTest, AFullDiskIsNoSuccess) {
  folder.write("s.toml", scenario_text);
  const std::string s = folder.path("s.toml");
  for (const char* where :
       {" >/dev/full", " --json >/dev/full", " --variant slow --capture /dev/full"}) {
    const ProgramOutcome outcome = shell(program() + s + where);
    EXPECT_EQ(outcome.status, 1) << where;
    EXPECT_TRUE(contains(outcome.error, "No space left on device")) << outcome.error;
  }
}

// The results are those of the variants that had begun.
TEST_F(SimTest, AnInterruptKeepsTheResultsSoFar) {
  folder.write("s.toml",
               "[topology]\nhosts = 2\n[traffic]\npattern = \"permutation\"\nbytes = \"1TB\"\n"
               "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n");
  const auto interrupt = [&](const std::string& jobs) {
    const std::string out = folder.path("out" + jobs);
    const ProgramOutcome outcome =
        shell(program() + folder.path("s.toml") + " -o " + out + " --jobs " + jobs +
              " & pid=$!; sleep 1; kill -INT $pid; wait $pid");
    EXPECT_EQ(outcome.status, 130);
    EXPECT_EQ(outcome.error,
              "tulle: interrupted: the results cover only what was simulated by then\n");
    return nlohmann::json::parse(folder.read("out" + jobs + "/summary.json"));
  };
  const auto first = interrupt("1");
  EXPECT_EQ(first["variant"], "a");
  EXPECT_EQ(first["finished"], 0);
  EXPECT_GT(first["packet_hops"], 0);
  EXPECT_TRUE(contains(folder.read("out1/flows.csv"), ",unfinished"));
  const auto both = interrupt("2");
  ASSERT_EQ(both["variants"].size(), 2u);
  for (const auto& variant : both["variants"]) EXPECT_GT(variant["packet_hops"], 0);
}

TEST_F(SimTest, KeysNeedNoQuotes) {
  folder.write("s.toml", scenario_text);
  const std::string s = folder.path("s.toml") + " --json --variant slow --set ";
  const std::string quoted = run(s + "'traffic.bytes=\"64KB\"'").out;
  EXPECT_EQ(run(s + "traffic.bytes=64KB").out, quoted);
  EXPECT_EQ(run(s + "'traffic.bytes = 64KB'").out, quoted);
  EXPECT_NE(run(s + "traffic.bytes=32KB").out, quoted);
}

TEST_F(SimTest, ASeedIsAnOption) {
  folder.write("s.toml", scenario_text);
  const std::string s = folder.path("s.toml") + " --json --variant slow ";
  EXPECT_EQ(nlohmann::json::parse(run(s + "--seed 9").out)["seed"], 9);
  EXPECT_EQ(run(s + "--seed 9").out, run(s + "--set seed=9").out);
  expect_refused(s + "--seed x", "--seed");
}

// Names of what comes with Tulle mean the same in any folder, and what lies beside a scenario comes
// first.
TEST_F(SimTest, NamesAreFoundFromAnyFolder) {
  constexpr char text[] =
      "[topology]\nkind = \"single-switch\"\nhosts = 8\nlink_rate = \"400Gbps\"\n"
      "[traffic]\npattern = \"collective\"\nbytes = \"64KiB\"\n"
      "[traffic.servers]\nprofile = \"dgx-h100\"\n";
  folder.write("elsewhere/s.toml", text);
  const auto in_folder = [&](const std::string& arguments) {
    return shell("cd '" + folder.path("elsewhere") + "' && exec " + program() + arguments);
  };
  const ProgramOutcome plain = in_folder("s.toml --json");
  EXPECT_EQ(plain.status, 0) << plain.error;
  for (const char* set : {"host.profile=infiniband", "fabric.profile=ethernet-800g",
                          "prices=example", "prices=prices/example.toml"}) {
    const ProgramOutcome outcome = in_folder(std::string("s.toml --set ") + set);
    EXPECT_EQ(outcome.status, 0) << set << ": " << outcome.error;
  }
  for (const char* model : {"step", "serve"}) {
    const ProgramOutcome outcome =
        in_folder(std::string("s.toml --level flow --set traffic.pattern=") + model +
                  " --set traffic." + model + "=models/llama-3-9b.toml");
    EXPECT_TRUE(contains(outcome.error, "did you mean models/llama-3-8b.toml")) << outcome.error;
  }
  for (const char* tables :
       {"--topology tables/links.csv --flows tables/flows.csv", "incast.toml --variant lossy"}) {
    const ProgramOutcome outcome = in_folder(tables);
    EXPECT_EQ(outcome.status, 0) << tables << ": " << outcome.error;
  }
  const ProgramOutcome none = in_folder("s.toml --set traffic.servers.profile=dgx-h10");
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(contains(none.error,
                       "traffic.servers.profile: there is no profile \"dgx-h10\" in "
                       "profiles/servers or /"))
      << none.error;
  EXPECT_TRUE(contains(none.error, "; did you mean dgx-h100? ")) << none.error;
  // One of the same name beside the scenario comes first.
  folder.write("elsewhere/profiles/servers/dgx-h100.toml",
               "title = \"Slow\"\ngpus = 1\nadapters = 1\n");
  const ProgramOutcome own = in_folder("s.toml --json");
  EXPECT_EQ(own.status, 0) << own.error;
  EXPECT_NE(own.out, plain.out);
}

TEST_F(SimTest, OlderResultsAreReplacedAndNotMixed) {
  folder.write("s.toml", scenario_text);
  const std::string s = "'" + folder.path("s.toml") + "' -o '" + folder.path("o") + "'";
  ASSERT_EQ(run(s).error, "");
  ASSERT_TRUE(std::filesystem::exists(folder.path("o/slow/flows.csv")));
  const ProgramOutcome again = run(s + " --variant fast");
  EXPECT_EQ(again.status, 0) << again.error;
  EXPECT_EQ(again.error, "tulle: replacing the results of s in " + folder.path("o") + "\n");
  for (const char* old : {"slow", "slow.pftrace", "fast/flows.csv"}) {
    EXPECT_FALSE(std::filesystem::exists(folder.path(std::string("o/") + old))) << old;
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path("o/flows.csv")));
  folder.write("o/notes", "of a person");
  EXPECT_EQ(run(s).status, 0);
  EXPECT_EQ(folder.read("o/notes"), "of a person");

  folder.write("letters/to-anne", "Dear Anne");
  expect_refused("'" + folder.path("s.toml") + "' -o '" + folder.path("letters") + "'",
                 "has files that are not results of Tulle: name an empty or a new folder");
  EXPECT_FALSE(std::filesystem::exists(folder.path("letters/summary.json")));
  folder.write("w/points/1.json", "{}");
  expect_refused("'" + folder.path("s.toml") + "' -o '" + folder.path("w") + "'",
                 "has the results of a sweep");
}

constexpr char open_text[] = R"(title = "Web search"
[topology]
kind = "fat-tree"
k = 4
link_rate = "100Gbps"
[traffic]
pattern = "poisson"
load = 0.3
duration = "1ms"
[fabric]
flow_control = "none"
[host]
recovery = "selective-repeat"
)";

TEST_F(SimTest, TheFlowLevelSaysItsError) {
  folder.write("s.toml", open_text);
  const ProgramOutcome outcome = run(folder.path("s.toml") + " --level flow");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "slowdown p99")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "\nFlow level: in such runs the mean slowdown was within "))
      << outcome.out;
  const auto json = nlohmann::json::parse(run(folder.path("s.toml") + " --level flow --json").out);
  EXPECT_GT(json["slowdown_error"], 0);
  EXPECT_LE(json["slowdown_error"], 0.1);
  EXPECT_EQ(json["finished"], json["flows"]);
  EXPECT_FALSE(json.contains("marked"));
}

TEST_F(SimTest, TheFlowLevelWritesFilesAndAPage) {
  folder.write("s.toml", open_text);
  const ProgramOutcome outcome =
      run(folder.path("s.toml") + " --level flow -o '" + folder.path("o") + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(folder.read("o/flows.csv"), ",done,")) << folder.read("o/flows.csv");
  EXPECT_TRUE(contains(folder.read("o/report.html"), "Web search"));
}

constexpr char job_text[] = R"(title = "A ring"
[topology]
kind = "rail-optimised"
servers = 2
rails = 8
link_rate = "400Gbps"
link_delay = "100ns"
[traffic]
pattern = "collective"
bytes = "16MiB"
algorithm = "ring"
servers = { gpus = 8, adapters = 8 }
[fabric]
kind = "infiniband"
)";

TEST_F(SimTest, TheFlowLevelOfAJobSaysItsError) {
  folder.write("s.toml", job_text);
  const ProgramOutcome outcome = run(folder.path("s.toml") + " --level flow");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, "busbw")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "\nFlow level: in such runs a job's time was within "));
  const auto flows = nlohmann::json::parse(run(folder.path("s.toml") + " --level flow --json").out);
  const auto packets = nlohmann::json::parse(run(folder.path("s.toml") + " --json").out);
  EXPECT_LE(flows["time_error"], 0.01);
  EXPECT_NEAR(flows["job_us"].get<double>() / packets["job_us"].get<double>(), 1,
              flows["time_error"].get<double>());
  // Seventeen messages share a bottleneck here, and the error would be more.
  expect_refused(folder.path("s.toml") +
                     " --level flow --set 'traffic.collective=\"all-to-all\"' "
                     "--set 'traffic.algorithm=\"direct\"'",
                 "flows that share a bottleneck");
}

// Packets of incasts and their victims wait as no fluid does.
TEST_F(SimTest, TheFlowLevelRefusesWhatItWouldGetWrong) {
  for (const char* scenario : {"incast", "victim"}) {
    for (const char* variant : {"", " --variant infiniband"}) {
      const std::string arguments = std::string(scenario) + variant + " --level flow";
      expect_refused(arguments, "--level packet");
    }
  }
  expect_refused("incast --variant lossy-selective-repeat --level flow", "--level packet");
  folder.write("s.toml", open_text);
  const std::string windows = folder.path("s.toml") + " --level flow";
  expect_refused(windows + " --set traffic.load=1", "the flow level was compared");
  expect_refused(windows + " --set 'host.recovery=\"go-back-n\"'", "in flight");
  const ProgramOutcome unvalidated = run(windows + " --unvalidated --set traffic.load=1");
  EXPECT_EQ(unvalidated.status, 0) << unvalidated.error;
  EXPECT_TRUE(contains(unvalidated.out, "its error is unknown")) << unvalidated.out;
  expect_refused(windows + " --capture '" + folder.path("c.pcapng") + "'", "--capture");
  expect_refused(folder.path("s.toml") + " --unvalidated", "--level flow");
  EXPECT_NE(run(folder.path("s.toml") + " --level magic").status, 0);
}

}  // namespace
}  // namespace tulle::cli
