// Traces of each format take the times that their messages and computations have by hand.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

// InfiniBand adds 28 bytes of headers and checks to 4,096 of payload.
constexpr double payload_rate = 400e9 / 8 * 4096 / 4124;  // bytes a second
constexpr double mebibyte = 1 << 20;

// Four GPUs, each with an adapter of 400 Gb/s, at one switch.
class Traces : public testing::Test {
 protected:
  report::Outcome run(const std::string& name, const std::string& text,
                      const std::string& keys = "") const {
    folder_.write(name, text);
    return outcome_of(fmt::format("[topology]\nkind = \"single-switch\"\nhosts = 4\n"
                                  "link_rate = \"400Gbps\"\nlink_delay = \"100ns\"\n[traffic]\n"
                                  "pattern = \"trace\"\ntrace = \"{}\"\n{}[fabric]\n"
                                  "kind = \"infiniband\"\n",
                                  name, keys),
                      folder_.path());
  }
  // Returns the time of a run in microseconds.
  double time_of(const std::string& name, const std::string& text) const {
    return number(run(name, text), "job_us");
  }
  // Returns the time in microseconds of messages of one byte, each of which waits for the one
  // before. The last one is over when its sender knows that it has arrived.
  double latency(std::uint32_t messages) const {
    std::string schedule = fmt::format("num_ranks {}\nrank 0 {{\nsend 1b to 1\n}}\n", messages + 1);
    for (std::uint32_t rank = 1; rank < messages; ++rank) {
      schedule +=
          fmt::format("rank {} {{\na: recv 1b from {}\nb: send 1b to {}\nb requires a\n}}\n", rank,
                      rank - 1, rank + 1);
    }
    schedule += fmt::format("rank {} {{\nrecv 1b from {}\n}}\n", messages, messages - 1);
    return time_of("l.goal", schedule);
  }
  static double transfer(double bytes) { return bytes / payload_rate * 1e6; }

  Folder folder_;
};

constexpr char header[] =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {} ep: 1 pp: 1 all_gpus: 4\n";

TEST_F(Traces, AScheduleOfGoal) {
  // 100 us, a message of 4 MiB, 50 us, and 1 MiB back.
  const std::string schedule =
      "num_ranks 2\nrank 0 {\na: calc 100000\nb: send 4194304b to 1\nc: recv 1048576b from 1\n"
      "b requires a\nc requires b\n}\nrank 1 {\na: recv 4194304b from 0\nb: calc 50000\n"
      "c: send 1048576b to 0\nb requires a\nc requires b\n}\n";
  const double expected = 150 + transfer(5 * mebibyte) + latency(2);
  const auto outcome = run("s.goal", schedule);
  EXPECT_NEAR(number(outcome, "job_us") / expected, 1, 0.01);
  EXPECT_NEAR(number(outcome, "exposed_us") / (expected - 150), 1, 0.02);
}

// The sender of a socket is done long before the receiver has read all. A connection's queues have
// room for 64 messages, whoever is the slower one.
TEST_F(Traces, ManyMessagesToASlowReaderOfASocket) {
  constexpr int messages = 300;
  std::string schedule = "num_ranks 2\nrank 0 {\n";
  for (int i = 0; i < messages; ++i) {
    schedule += fmt::format("l{}: send 4096b to 1 tag {}\n", i, i);
  }
  schedule += "}\nrank 1 {\n";
  for (int i = 0; i < messages; ++i) {
    schedule += fmt::format("l{}: recv 4096b from 0 tag {}\n", i, i);
  }
  folder_.write("m.goal", schedule + "}\n");
  const auto outcome = outcome_of(
      "[topology]\nkind = \"single-switch\"\nhosts = 2\nlink_rate = \"400Gbps\"\n"
      "[traffic]\npattern = \"trace\"\ntrace = \"m.goal\"\n"
      "[fabric]\nkind = \"roce\"\nflow_control = \"none\"\n"
      "[host]\ntransport = \"tcp\"\n[host.kernel]\ncores = 1\nreceive = \"10us\"\n",
      folder_.path());
  EXPECT_EQ(count(outcome, "finished"), messages);
  EXPECT_EQ(report::unfinished(outcome), "");
}

TEST_F(Traces, ConnectionsOfHtsim) {
  // The second connection is sent on by the receiver of the first one, which begins after 20 us.
  const std::string matrix =
      "Nodes 4\nConnections 2\nTriggers 1\n0->1 id 1 start 20000000 size 4194304 "
      "recv_done_trigger 1\n1->2 id 2 trigger 1 size 2097152\ntrigger id 1 oneshot\n";
  const auto outcome = run("c.cm", matrix);
  EXPECT_NEAR(number(outcome, "job_us") / (20 + transfer(6 * mebibyte) + latency(2)), 1, 0.01);
  EXPECT_EQ(find(outcome, "exposed_us"), nullptr) << "nothing is computed";
}

TEST_F(Traces, AWorkloadOfSimAi) {
  // Two layers. All four GPUs share a tensor: an all-reduce of 64 MiB in the first layer.
  const double reduce = transfer(64 * mebibyte * 2 * 3 / 4) + 2 * latency(3);
  const std::string workload = fmt::format(header, 4) +
                               "2\nattention -1 100000 ALLREDUCE 67108864 30000 NONE 0 40000 NONE "
                               "0 0\nmlp -1 200000 NONE 0 50000 NONE 0 60000 NONE 0 0\n";
  EXPECT_NEAR(time_of("w.txt", workload) / (480 + reduce), 1, 0.01);
}

TEST_F(Traces, ASumThatNobodyWaitsForIsHidden) {
  // The weight gradient of the last layer is summed beside 5 ms of the first one's.
  const std::string workload = fmt::format(header, 1) +
                               "2\na -1 0 NONE 0 0 NONE 0 5000000 NONE 0 0\n"
                               "b -1 0 NONE 0 0 NONE 0 100000 ALLREDUCE 67108864 0\n";
  const auto outcome = run("w.txt", workload);
  EXPECT_NEAR(number(outcome, "job_us"), 5100, 1);
  EXPECT_LT(number(outcome, "exposed_us"), 1);
}

TEST_F(Traces, NodesOfChakra) {
  // The host launches (10 us), the GPU computes (90 us), then all gather 4 MiB of each: a ring.
  const std::string trace = R"({"workload_graph": [
    {"Id": 1, "NodeType": 4, "runtime": 10, "is_cpu_op": true, "data_deps": []},
    {"Id": 2, "NodeType": 4, "runtime": 90, "is_cpu_op": false, "data_deps": [1]},
    {"Id": 3, "NodeType": 7, "comm_type": 2, "comm_size": 4194304, "data_deps": [2]}]})";
  const double expected = 100 + 3 * transfer(4 * mebibyte) + latency(3);
  EXPECT_NEAR(time_of("t.json", trace) / expected, 1, 0.01);
}

// A collective that all ranks call at once takes the time of the pattern "collective".
TEST_F(Traces, ACollectiveIsTheSameAsByItsName) {
  const auto named = outcome_of(
      "[topology]\nkind = \"single-switch\"\nhosts = 4\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[traffic]\npattern = \"collective\"\nbytes = \"1MiB\"\n[fabric]\n"
      "kind = \"infiniband\"\n");
  const auto traced = run("t.json",
                          R"({"workload_graph": [{"Id": 1, "NodeType": 7, "comm_type": 0,
                              "comm_size": 1048576}]})");
  EXPECT_EQ(number(traced, "job_us"), number(named, "job_us"));
}

// The host's computations do not hold the GPU's up.
TEST_F(Traces, ProcessorsWorkSideBySide) {
  EXPECT_NEAR(time_of("p.goal",
                      "num_ranks 1\nrank 0 {\na: calc 70000\nb: calc 50000 cpu 1\n"
                      "c: calc 30000\n}\n"),
              100, 0.01);
}

TEST_F(Traces, MessagesWithinAServerTakeItsNetwork) {
  const auto outcome = run("s.goal",
                           "num_ranks 2\nrank 0 {\nsend 45000000b to 1\n}\nrank 1 {\n"
                           "recv 45000000b from 0\n}\n",
                           "servers = { gpus = 2, adapters = 2, scale_up_rate = \"3600Gbps\", "
                           "scale_up_latency = \"1us\" }\n");
  EXPECT_NEAR(number(outcome, "job_us"), 101, 0.01);
}

}  // namespace
}  // namespace tulle::experiment
