// Runs `tulle compare` as a user does.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/terminal_text.h"
#include "cli/program_test.h"

namespace tulle::cli {
namespace {

class CompareTest : public ProgramTest {
 protected:
  CompareTest() : ProgramTest("compare") {}

  nlohmann::json json_of(const std::string& arguments) const {
    const ProgramOutcome outcome = run(arguments + " --json");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.error, "");
    return nlohmann::json::parse(outcome.out, nullptr, false);
  }
};

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(in, line);) found.push_back(line);
  return found;
}

// Returns the title and the table of fabrics, without the links below them.
std::vector<std::string> table_of(const std::string& out) {
  return lines(out.substr(0, out.find("\n\n")));
}

constexpr char small[] = "--workload permutation --hosts 9 --bytes 20KB ";

TEST_F(CompareTest, ListsFabricsAndWorkloads) {
  const ProgramOutcome list = run("--list");
  EXPECT_EQ(list.status, 0);
  EXPECT_TRUE(contains(list.out, "\n* infiniband ")) << list.out;
  EXPECT_TRUE(contains(list.out, "\n  roce-spray ")) << list.out;
  EXPECT_TRUE(contains(list.out, "\n  web-search ")) << list.out;
}

// A scenario may come from anybody.
TEST_F(CompareTest, TextsDoNotSteerTheTerminal) {
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
      run("--workload " + folder.path("h.toml") + " --fabrics infiniband,roce-pfc");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(outcome.out.starts_with("t?]0;x?\n")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "kind?[2J ")) << outcome.out;
  EXPECT_EQ(outcome.out, terminal_text(outcome.out));
}

TEST_F(CompareTest, ARowForEachFabric) {
  const ProgramOutcome outcome = run(std::string(small) + "--fabrics roce-pfc,infiniband");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.error, "");
  const std::vector<std::string> all = table_of(outcome.out);
  ASSERT_EQ(all.size(), 4u) << outcome.out;
  EXPECT_EQ(all[0], "Each host to one other, 20KB: 9 hosts, 3 leaves and 3 spines, 200Gbps");
  EXPECT_EQ(all[1].rfind("fabric ", 0), 0u);
  EXPECT_EQ(all[2].rfind("roce-pfc ", 0), 0u);
  EXPECT_EQ(all[3].rfind("infiniband ", 0), 0u);
  EXPECT_FALSE(contains(outcome.out, "\033")) << "no terminal, no colours";
  const std::vector<std::string> listed = lines(run("--list").out);
  const auto by_default =
      std::ranges::count_if(listed, [](const std::string& line) { return line.starts_with("* "); });
  EXPECT_GT(by_default, 3);
  EXPECT_EQ(std::ssize(table_of(run(small).out)), 2 + by_default);
}

// A ring on rails has nearly the same time at both levels. A permutation was not measured.
TEST_F(CompareTest, TheFlowLevelSaysItsError) {
  const std::string ring =
      "--workload allreduce:64MiB --gpus 16 --algorithm ring --fabrics infiniband,roce-pfc ";
  const ProgramOutcome flows = run(ring + "--level flow");
  EXPECT_EQ(flows.status, 0) << flows.error;
  EXPECT_TRUE(contains(flows.out, "\nFlow level: in such runs a job's time was within "))
      << flows.out;
  EXPECT_FALSE(contains(run(ring).out, "Flow level"));
  const auto at_flow_level = json_of(ring + "--level flow")["variants"];
  const auto packets = json_of(ring)["variants"];
  ASSERT_EQ(at_flow_level.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const double error = at_flow_level[i]["time_error"].get<double>();
    EXPECT_LE(error, 0.01);
    EXPECT_NEAR(at_flow_level[i]["job_us"].get<double>() / packets[i]["job_us"].get<double>(), 1,
                error);
  }
  expect_refused(std::string(small) + "--level flow", "--level packet");
  expect_refused(std::string(small) + "--unvalidated", "--level flow");
  const ProgramOutcome unvalidated =
      run(std::string(small) + "--fabrics infiniband --level flow --unvalidated");
  EXPECT_EQ(unvalidated.status, 0) << unvalidated.error;
  EXPECT_TRUE(contains(unvalidated.out, "its error is unknown")) << unvalidated.out;
}

TEST_F(CompareTest, RailsApartInPlanesAt800G) {
  const auto all = json_of(
      "--workload alltoall:256KiB --gpus 16 --topology rail-only --planes 2 --link-rate 800Gbps "
      "--fabrics infiniband-xdr,roce-800g");
  ASSERT_EQ(all["variants"].size(), 2u);
  for (const auto& fabric : all["variants"]) {
    EXPECT_EQ(fabric["finished"], fabric["flows"]) << fabric["variant"];
    EXPECT_EQ(fabric["flows"], 2 * 8 * 8) << "messages between servers, and not their parts";
  }
  const auto usual = run("--workload allreduce:64KiB --gpus 16 --planes 2");
  EXPECT_EQ(usual.status, 0) << usual.error;
  EXPECT_TRUE(contains(usual.error, "tulle: tcp is left out: it goes with one plane\n"));
  EXPECT_TRUE(contains(usual.out, "\nroce-pfc-dcqcn ")) << usual.out;
  EXPECT_FALSE(contains(usual.out, "\ntcp ")) << usual.out;
  // Two jobs of two servers each meet nowhere, since one leaf of each rail and plane joins all.
  const auto two = json_of(
      "--workload alltoall:256KiB --gpus 16 --workload allreduce:256KiB --gpus 16 --topology "
      "rail-only --planes 2 --placement spread --fabrics infiniband --alone --jobs 1");
  EXPECT_EQ(two["finished"], two["flows"]);
  EXPECT_EQ(two["traffic"]["alltoall:256KiB"]["flows"], 2 * 8 * 8);
  for (const char* job : {"alltoall:256KiB", "allreduce:256KiB"}) {
    EXPECT_EQ(two["traffic"][job]["job_slowdown"], 1) << job;
  }
  const ProgramOutcome wrong = run("--workload alltoall --topology torus");
  EXPECT_NE(wrong.status, 0);
  EXPECT_TRUE(contains(wrong.error, "--topology: a job's is rail-optimised or rail-only"));
}

// Each fabric that comes with Tulle carries each workload.
TEST_F(CompareTest, AllFabricsFinishAllWorkloads) {
  for (const char* workload : {"incast", "permutation", "all-to-all", "ring-all-reduce"}) {
    const auto all =
        json_of(std::string("--fabrics all --hosts 12 --bytes 30KB --workload ") + workload);
    ASSERT_GE(all["variants"].size(), 8u);
    for (const auto& fabric : all["variants"]) {
      EXPECT_EQ(fabric["finished"], fabric["flows"]) << workload << " " << fabric["variant"];
      EXPECT_EQ(fabric["flows"], all["variants"][0]["flows"]);
    }
  }
}

TEST_F(CompareTest, FilesAsSimWritesThemWithTheSameFlows) {
  ASSERT_EQ(
      run(std::string(small) + "--seed 5 --fabrics infiniband,roce-lossy -o " + folder.path("o"))
          .status,
      0);
  const auto summary = nlohmann::json::parse(folder.read("o/summary.json"));
  EXPECT_EQ(summary["variants"][1]["variant"], "roce-lossy");
  EXPECT_EQ(summary["variants"][1]["seed"], 5);
  const auto a = lines(folder.read("o/infiniband/flows.csv"));
  const auto b = lines(folder.read("o/roce-lossy/flows.csv"));
  ASSERT_EQ(a.size(), 10u);
  ASSERT_EQ(b.size(), 10u);
  const auto what = [](const std::string& line) {
    std::size_t end = 0;  // flow,src,dst,bytes,start_ns
    for (int field = 0; field < 5; ++field) end = line.find(',', end + 1);
    return line.substr(0, end);
  };
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(what(a[i]), what(b[i]));
  EXPECT_NE(folder.read("o/infiniband/flows.csv"), folder.read("o/roce-lossy/flows.csv"));
}

TEST_F(CompareTest, ResultsDoNotDependOnHowManyRunAtOnce) {
  const std::string compare = std::string(small) + "--fabrics all ";
  ASSERT_EQ(run(compare + "--jobs 1 -o " + folder.path("one")).status, 0);
  ASSERT_EQ(run(compare + "--jobs 5 -o " + folder.path("five")).status, 0);
  for (const char* file : {"summary.json", "report.html", "tcp/flows.csv", "tcp.pftrace"}) {
    EXPECT_EQ(folder.read(std::string("one/") + file), folder.read(std::string("five/") + file));
  }
}

TEST_F(CompareTest, ARefusalIsAllThatIsPrinted) {
  const ProgramOutcome outcome =
      run("--workload step:llama-3-8b --gpus 64 --set traffic.parallel.tensor=3");
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
}

TEST_F(CompareTest, SeedsSizesAndSettingsCount) {
  const auto slow = json_of(std::string(small) + "--fabrics roce-pfc --link-rate 10Gbps");
  const auto fast = json_of(std::string(small) + "--fabrics roce-pfc --link-rate 400Gbps");
  EXPECT_GT(slow["end_us"], fast["end_us"]);
  const auto smaller = json_of(std::string(small) + "--fabrics roce-pfc --set host.mtu=256");
  EXPECT_GT(smaller["packet_hops"], 10 * fast["packet_hops"].get<int>());
}

TEST_F(CompareTest, ScenariosAndTablesOfFlows) {
  folder.write("s.toml",
               "[topology]\nhosts = 3\n[traffic]\nbytes = \"7KB\"\n[fabric]\nkind = \"roce\"\n");
  EXPECT_EQ(json_of("--workload " + folder.path("s.toml"))["variants"][0]["finished"], 3);
  folder.write("l.csv", "a,b,gbps,delay_ns\n0,2,100,1000\n1,2,100,1000\n");
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n");
  const std::string tables =
      "--workload " + folder.path("f.csv") + " --topology " + folder.path("l.csv");
  EXPECT_EQ(json_of(tables + " --fabrics all")["variants"][0]["finished"], 1);
  expect_refused("--workload " + folder.path("f.csv"), "needs --topology");
}

// Two servers of one GPU run a schedule of GOAL, and one of Chakra's traces in two files.
TEST_F(CompareTest, Traces) {
  folder.write("server.toml", "gpus = 1\nadapters = 1\n");
  folder.write("s.goal",
               "num_ranks 2\nrank 0 {\na: calc 9000\nb: send 9000b to 1\nb requires a\n}\n"
               "rank 1 {\nrecv 9000b from 0\n}\n");
  const std::string servers = " --fabrics infiniband --servers " + folder.path("server.toml");
  const auto goal = json_of("--workload " + folder.path("s.goal") + " --gpus 2" + servers);
  EXPECT_EQ(goal["finished"], 1);
  EXPECT_GT(goal["job_us"], 9);
  EXPECT_GT(goal["exposed_us"], 0);
  const std::string node =
      "{\"workload_graph\": [{\"Id\": 0, \"NodeType\": 7, \"comm_type\": 6, \"comm_size\": 80}]}";
  for (const char* file : {"t/t.0.json", "t/t.1.json"}) folder.write(file, node);
  for (const char* name : {"t/t.0.json", "t/t", "t"}) {
    const auto chakra = json_of("--workload " + folder.path(name) + " --gpus 2" + servers);
    EXPECT_EQ(chakra["finished"], 2) << name;
  }
  expect_refused("--workload " + folder.path("none.et") + " --gpus 2" + servers,
                 "none.et: there is no such file");
  folder.write("t/t.3.json", node);
  expect_refused("--workload " + folder.path("t") + " --gpus 4" + servers,
                 "it is the trace of rank 3, and with 3 files there are ranks 0 to 2");
  folder.write("t.cm", "Nodes 3\nConnections 1\n0->1 start 0 size 5\n");
  expect_refused("--workload " + folder.path("t.cm") + " --gpus 2" + servers,
                 "t.cm:1: the trace has 3 ranks, and there are 2 GPUs; take as many GPUs");
  EXPECT_TRUE(contains(run("--list").out, "\ntraces on --gpus, as in FILE.et: Chakra's"));
}

// Each leaf has two servers of one GPU, and there is one spine, so that spread jobs share a link.
TEST_F(CompareTest, SeveralJobs) {
  folder.write("server.toml", "gpus = 1\nadapters = 1\n");
  const std::string two =
      "--workload alltoall:1MiB --gpus 2 --workload alltoall:1MiB --gpus 2 "
      "--fabrics infiniband --servers " +
      folder.path("server.toml") + " --set topology.servers_per_group=2 --set topology.spines=1";
  const auto packed = json_of(two + " --alone");
  EXPECT_EQ(packed["traffic"]["alltoall:1MiB"]["job_slowdown"], 1);
  EXPECT_EQ(packed["traffic"]["alltoall:1MiB #2"]["job_slowdown"], 1);
  const auto spread = json_of(two + " --alone --placement spread");
  EXPECT_GT(spread["traffic"]["alltoall:1MiB #2"]["job_slowdown"], 1.6);
  EXPECT_FALSE(json_of(two)["traffic"]["alltoall:1MiB"].contains("job_slowdown"));
  const std::vector<std::string> table = table_of(run(two).out);
  ASSERT_EQ(table.size(), 5u);
  EXPECT_EQ(table[0],
            "An all-to-all, 1MiB on 2 GPUs; An all-to-all, 1MiB on 2 GPUs: 4 GPUs in 4 servers "
            "(server), 1 adapters of 400Gbps each");
  EXPECT_EQ(table[3].rfind("\u00b7 alltoall:1MiB ", 0), 0u) << table[3];
  EXPECT_EQ(table[4].rfind("\u00b7 alltoall:1MiB #2 ", 0), 0u) << table[4];
  expect_refused("--workload allreduce --gpus 8 --workload allreduce",
                 "--gpus: is there 1 times, and --workload 2");
  expect_refused("--workload allreduce --gpus 8 --gpus 16", "--gpus: is there 2 times");
  expect_refused("--workload allreduce --gpus 8 --workload incast --gpus 8",
                 "--workload: \"incast\" is no job, and several workloads are jobs: allreduce, ");
  expect_refused("--workload allreduce --gpus 8 --workload allreduce --gpus 8 --algorithm ring",
                 "--algorithm: goes with one job");
  expect_refused("--workload allreduce --gpus 8 --workload allreduce --gpus 8 --protocol ll",
                 "--protocol: goes with one job");
  expect_refused("--workload incast --protocol ll", "--protocol: goes with a job of GPUs");
  expect_refused("--workload moe:dispatch --gpus 16 --protocol ll",
                 "--protocol: goes with a collective");
  expect_refused("--workload allreduce --gpus 8 --placement spread",
                 "--placement: goes with several jobs");
  expect_refused(two + " --placement best", "--placement: best not in", 2);
  expect_refused("--workload allreduce --gpus 8 --alone", "report.alone: compares the jobs");
}

// A server of one GPU trains, and another one, which comes besides, stores.
TEST_F(CompareTest, Checkpoints) {
  folder.write("server.toml", "gpus = 1\nadapters = 1\n");
  folder.write("model.toml",
               "[model]\nlayers = 2\nhidden = 64\nfeed_forward = 256\nheads = 2\n"
               "key_value_heads = 2\nsequence = 64\n[gpu]\noperations_per_second = 1e12\n");
  const std::string step = "--workload step:" + folder.path("model.toml") + " --gpus 2 " +
                           "--fabrics infiniband --servers " + folder.path("server.toml");
  const auto stored =
      json_of(step + " --storage 1 --set traffic.checkpoint.drive_rate='\"8Gbps\"'");
  // 2 * (4 * 64 * 64 + 3 * 64 * 256) weights of 14 bytes, at 1 GB/s.
  EXPECT_NEAR(stored["checkpoint_us"], 2 * 65'536 * 14 * 1e-3, 200);
  EXPECT_GT(stored["checkpoint_cost_us"], 1'800);
  EXPECT_FALSE(json_of(step).contains("checkpoint_us"));
  expect_refused("--workload allreduce --gpus 8 --storage 1",
                 "--storage: goes with one training step");
  expect_refused(step + " --storage 0", "--storage", 2);
  expect_refused(step + " --storage 1 --set traffic.checkpoint.every=2 --set traffic.steps=2",
                 "traffic.steps: must be more than 2: a step follows each checkpoint");
  expect_refused(step + " --set traffic.checkpoint.storage=2",
                 "traffic.step: 2 storage servers leave none of 2 to train");
  expect_refused(step + " --storage 1 --set traffic.checkpoint.speed=2",
                 "traffic.checkpoint.speed: is not a known key");
}

TEST_F(CompareTest, AFabricThatDoesNotFinishIsNoSuccess) {
  const ProgramOutcome outcome =
      run(std::string(small) + "--fabrics infiniband,roce-pfc --set 'stop_at=\"3us\"'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.error,
            "tulle: infiniband: 9 of 9 flows are not done; roce-pfc: 9 of 9 flows are not done\n");
  EXPECT_TRUE(contains(outcome.out, "\nroce-pfc ")) << "the table is there all the same";
}

TEST_F(CompareTest, MistakesGetOneLine) {
  expect_refused("", "--workload", 2);
  expect_refused("--workload nonsense", "no workload \"nonsense\"; the workloads are incast, ");
  expect_refused(std::string(small) + "--fabrics token-ring",
                 "no fabric \"token-ring\"; the fabrics are infiniband, infiniband-adaptive, ");
  expect_refused(std::string(small) + "--fabrics infinband",
                 "no fabric \"infinband\"; did you mean infiniband? ");
  expect_refused("--workload incats", "no workload \"incats\"; did you mean incast? ");
  expect_refused("--workload alreduce:1MiB", "did you mean allreduce? ");
  expect_refused("--workload step:llama-3-8 --gpus 64", "did you mean llama-3-8b? ");
  expect_refused("--workload allreduce --servers dgx-h10", "did you mean dgx-h100? ");
  expect_refused(std::string(small) + "--set host.mut=3",
                 "--set: host.mut: is not a known key; did you mean mtu?");
  expect_refused(std::string(small) + "--hosts x", "--hosts", 2);
  folder.write("file", "");
  expect_refused(std::string(small) + "-o " + folder.path("file"), folder.path("file"), 1);
  // The file is correct, but does not fit this fabric.
  folder.write("ring.csv",
               "a,b,gbps,delay_ns\n0,4,100,9\n1,5,100,9\n2,6,100,9\n3,7,100,9\n"
               "4,5,100,9\n5,6,100,9\n6,7,100,9\n7,4,100,9\n");
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,2,1000,0\n");
  expect_refused("--workload " + folder.path("f.csv") + " --topology " + folder.path("ring.csv") +
                     " --fabrics roce-lossy,roce-pfc",
                 "roce-pfc: ");
}

}  // namespace
}  // namespace tulle::cli
