// A scenario and a seed give the same bytes, in one process, in another, and in any build: the
// digests in tests/data/sim_digests.txt hold for -O0 as for -O3. After a change that is meant to
// change results, TULLE_WRITE_DIGESTS=1 build/bin/experiment_test --gtest_filter='Determinism.*'
// writes new digests.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "places.h"
#include "study/experiment/jobs_test.h"
#include "study/experiment/outcome_test.h"
#include "study/experiment/processes_test.h"
#include "study/report/results.h"

namespace tulle::experiment {
namespace {

struct Case {
  const char* name;
  const char* text;
  bool draws = true;  // something depends on the seed
};

// Together the cases use all code that draws, divides or waits.
const Case cases[] = {
    {"roce-dcqcn-flowlet", R"(
[topology]
kind = "leaf-spine"
leaves = 3
hosts_per_leaf = 4
link_rate = "100Gbps"
link_delay = "500ns"
[fabric]
path = "flowlet"
flowlet_gap = "2us"
buffer = "2MB"
ecn = { kmin = "20KB", kmax = "80KB", pmax = 0.2 }
[congestion]
control = "dcqcn"
increase_interval = "20us"
alpha_interval = "20us"
[traffic]
pattern = "poisson"
load = 0.7
duration = "60us"
jitter = "3us"
)"},
    {"infiniband-adaptive", R"(
[topology]
kind = "fat-tree"
k = 4
link_rate = "200Gbps"
[fabric]
kind = "infiniband"
path = "adaptive"
cut_through = true
switch_latency = "130ns"
credits.lane_buffer = "16KB"
[host]
send_delay = "250ns"
receive_delay = "250ns"
[traffic]
pattern = "all-to-all"
rounds = "at-once"
bytes = "9KB"
)"},
    {"infiniband-lmc", R"(
[topology]
kind = "leaf-spine"
leaves = 3
spines = 4
hosts_per_leaf = 3
link_rate = "100Gbps"
[fabric]
kind = "infiniband"
[routing]
lmc = 2
[traffic]
pattern = "poisson"
load = 0.6
duration = "40us"
queue_pairs = 3
)"},
    {"infiniband-torus-lanes", R"(
[topology]
kind = "torus"
size = [4, 4]
link_rate = "100Gbps"
link_delay = "300ns"
[fabric]
kind = "infiniband"
bit_error_rate = 1e-7
credits.lane_buffer = "12KB"
[fabric.arbitration]
high = "3:70,1:10"
low = "0:192,1:64,2:100"
high_limit = 3
[host]
service_levels = 2
timeout = 4
[traffic]
pattern = "poisson"
load = 0.6
duration = "100us"
sizes = "fixed"
bytes = "20KB"
[[partition]]
pkey = 1
full = "0-14"
[[partition]]
pkey = 2
full = "8-10"
limited = "15"
)"},
    {"tcp-kernels", R"(
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 4
link_rate = "25Gbps"
[fabric]
flow_control = "none"
buffer = "200KB"
[host]
transport = "tcp"
tcp = { mtu = 1500, timeout_min = "1ms" }
[host.kernel]
system_call = "1us"
copy_rate = "80Gbps"
transmit = "3us"
interrupt = "2us"
receive_frame = "200ns"
receive = "2us"
interrupt_delay = "8us"
wake_up = "3us"
idle_exit = "5us"
idle_after = "20us"
[traffic]
pattern = "poisson"
load = 0.5
duration = "1ms"
)"},
    {"tcp-dctcp", R"(
[topology]
hosts = 9
link_rate = "10Gbps"
[fabric]
flow_control = "none"
queue = "100KB"
ecn = { kmin = "30KB", kmax = "60KB", pmax = 1 }
[host]
transport = "tcp"
tcp.control = "dctcp"
[traffic]
pattern = "incast"
bytes = "300KB"
jitter = "20us"
)"},
    {"lossy-selective-repeat-spray", R"(
[topology]
kind = "leaf-spine"
leaves = 3
spines = 3
hosts_per_leaf = 3
link_rate = "100Gbps"
link_delay = "500ns"
[fabric]
flow_control = "none"
buffer = "300KB"
path = "packet"
bit_error_rate = 1e-7
lose_every = 100
[host]
recovery = "selective-repeat"
reordering = 3
[traffic]
pattern = "all-to-all"
rounds = "at-once"
bytes = "100KB"
)"},
    {"lossy-window-spray", R"(
[topology]
kind = "leaf-spine"
link_rate = "54.54Gbps"
uplink_rate = "100Gbps"
[fabric]
flow_control = "none"
path = "packet"
queue = "30KB"
[host]
timeout = 4
[congestion]
control = "window"
[traffic]
pattern = "incast"
bytes = "200KB"
)"},
    {"torus-pfc", R"(
[topology]
kind = "torus"
size = [3, 3]
link_rate = "100Gbps"
[fabric.pfc]
xoff = "20KB"
[traffic]
pattern = "permutation"
bytes = "100KB"
)"},
    {"dragonfly-ugal", R"(
[topology]
kind = "dragonfly"
link_rate = "100Gbps"
link_delay = "300ns"
[fabric]
kind = "infiniband"
path = "adaptive"
[routing]
non_minimal = "ugal"
bias = 2
non_minimal_candidates = 2
[host]
recovery = "selective-repeat"
reordering = 32
[traffic]
pattern = "shift"
distance = 8
bytes = "60KB"
[[traffic.and]]
name = "bursts"
pattern = "permutation"
hosts = "0-15, 40-47"
bytes = "10KB"
times = 3
every = "4us"
)"},
    {"endpoint-notices", R"(
[topology]
kind = "leaf-spine"
hosts_per_leaf = 4
link_rate = "100Gbps"
link_delay = "300ns"
[fabric]
kind = "infiniband"
[congestion]
control = "endpoint"
queue = "20KB"
window = "5us"
[traffic]
pattern = "incast"
bytes = "300KB"
jitter = "2us"
)"},
    {"ring-all-reduce", R"(
[topology]
kind = "dragonfly"
link_rate = "400Gbps"
[routing]
kind = "up-down"
[traffic]
pattern = "ring-all-reduce"
bytes = "300KB"
chunks = 2
)"},
    {"infiniband-congestion", R"(
[topology]
kind = "leaf-spine"
leaves = 3
hosts_per_leaf = 4
link_rate = "100Gbps"
link_delay = "300ns"
[fabric]
kind = "infiniband"
head_of_queue_lifetime = "6us"
credits.lane_buffer = "16KB"
[fabric.congestion]
marking_rate = 2
threshold = 8
[host]
timeout = 4
service_levels = 2
[congestion]
control = "infiniband"
flow = "service-level"
ccti_increase = 3
ccti_timer = 7
table = "0:0,3:1,3:4,2:5,1:7,0:5,0:9,0:14"
[traffic]
pattern = "incast"
bytes = "100KB"
queue_pairs = 3
)"},
    {"faults-roce", R"(
[topology]
kind = "leaf-spine"
leaves = 3
spines = 3
hosts_per_leaf = 3
link_rate = "100Gbps"
link_delay = "500ns"
[fabric.pfc]
watchdog = "80us"
xoff = "40KB"
[host]
timeout = 4
watchdog = "50us"
[recovery]
detection = "5us"
routing = "10us"
[[fault]]
link = ["leaf 0", "spine 1"]
at = "20us"
until = "60us"
[[fault]]
kind = "link-flap"
link = ["leaf 1", "host 4"]
at = "30us"
down = "300ns"
period = "7us"
times = 4
[[fault]]
kind = "bit-errors"
link = ["leaf 2", "spine 0"]
rate = 1e-6
[[fault]]
kind = "slow-host"
host = "host 2"
rate = "20Gbps"
buffer = "30KB"
until = "70us"
[[fault]]
kind = "stuck-host"
host = "host 8"
at = "15us"
until = "90us"
[[fault]]
kind = "switch-reboot"
switch = "spine 2"
at = "40us"
until = "80us"
[traffic]
pattern = "poisson"
load = 0.6
duration = "100us"
sizes = "fixed"
bytes = "60KB"
)"},
    {"faults-infiniband", R"(
[topology]
kind = "fat-tree"
k = 4
link_rate = "100Gbps"
link_delay = "300ns"
[fabric]
kind = "infiniband"
cut_through = true
switch_latency = "130ns"
[host]
timeout = 4
[recovery]
trap_delay = "2us"
computing = "10us"
programming = "200ns"
[[fault]]
link = ["edge 0", "aggregation 1"]
at = "20us"
until = "60us"
[[fault]]
link = ["host 3", "edge 1"]
at = "25us"
until = "30us"
[[fault]]
kind = "slow-host"
host = "host 5"
rate = "30Gbps"
[[fault]]
kind = "stuck-host"
host = "host 6"
at = "10us"
until = "50us"
[traffic]
pattern = "poisson"
load = 0.6
duration = "100us"
sizes = "fixed"
bytes = "60KB"
)"},
    {"collective-infiniband", R"(
[topology]
kind = "single-switch"
hosts = 4
link_rate = "400Gbps"
link_delay = "100ns"
[fabric]
kind = "infiniband"
[traffic]
pattern = "collective"
bytes = "4MiB"
)",
     false},
    {"collective-planes", R"(
[topology]
kind = "rail-optimised"
servers = 4
rails = 2
servers_per_group = 2
spines = 2
planes = 2
link_rate = "200Gbps"
link_delay = "100ns"
[fabric]
kind = "infiniband"
[traffic]
pattern = "collective"
collective = "all-to-all"
bytes = "256KiB"
[traffic.servers]
gpus = 4
adapters = 2
scale_up_rate = "900Gbps"
scale_up_latency = "1us"
message_delay = "1us"
)",
     false},
    {"collective-relays", R"(
[topology]
kind = "rail-only"
servers = 4
rails = 4
servers_per_group = 4
spines = 2
link_rate = "200Gbps"
[traffic]
pattern = "collective"
collective = "all-to-all"
algorithm = "direct"
bytes = "1MiB"
servers = { gpus = 4, adapters = 4, scale_up_rate = "900Gbps", scale_up_latency = "1us" }
)",
     false},
    {"collective-in-network", R"(
[topology]
kind = "leaf-spine"
leaves = 4
spines = 2
hosts_per_leaf = 2
link_rate = "400Gbps"
link_delay = "100ns"
[fabric]
kind = "infiniband"
aggregation = true
[traffic]
pattern = "collective"
algorithm = "in-network"
bytes = "256KiB"
)",
     false},
    {"collective-tcp", R"(
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 3
link_rate = "25Gbps"
[fabric]
flow_control = "none"
[host]
transport = "tcp"
[host.kernel]
cores = 1
receive = "10us"
[traffic]
pattern = "collective"
bytes = "512KiB"
)"},
    {"collective-iwarp", R"(
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 3
link_rate = "25Gbps"
[fabric]
flow_control = "none"
buffer = "300KB"
[host]
transport = "iwarp"
tcp = { mtu = 1500, timeout_min = "1ms" }
[traffic]
pattern = "collective"
collective = "all-to-all"
bytes = "600KB"
)"},
    {"collective-srd", R"(
[topology]
kind = "leaf-spine"
leaves = 3
hosts_per_leaf = 2
link_rate = "100Gbps"
[fabric]
flow_control = "none"
[host]
transport = "srd"
[traffic]
pattern = "collective"
collective = "all-to-all"
bytes = "600KB"
)"},
    {"ring-srd", R"(
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 3
link_rate = "100Gbps"
[fabric]
flow_control = "none"
[host]
transport = "srd"
[traffic]
pattern = "collective"
bytes = "1MiB"
)"},
    {"ring-tcp-of-two-cores", R"(
[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 3
link_rate = "25Gbps"
[fabric]
flow_control = "none"
[host]
transport = "tcp"
[host.kernel]
cores = 2
system_call = "1us"
transmit = "3us"
interrupt = "2us"
receive_frame = "200ns"
receive = "2us"
interrupt_delay = "8us"
wake_up = "3us"
idle_exit = "5us"
idle_after = "20us"
[traffic]
pattern = "collective"
bytes = "2MiB"
)"},
    {"two-jobs", two_jobs, false},
};

// Returns all results of a run, less its seed's number and its number of events, which is internal
// to the simulator.
std::string text_of(report::Outcome outcome, const Case& c) {
  EXPECT_GT(count(outcome, "finished"), 0u) << c.name;
  for (report::Figures* figures : {&outcome.figures, &outcome.simulator}) {
    std::erase_if(*figures, [](const report::Measured& measured) {
      return measured.figure->key == "bytes_verified";
    });
    for (report::Measured& measured : *figures) {
      const std::string_view key = measured.figure->key;
      if (key == "seed" || key == "events") measured.value = std::uint64_t{0};
    }
  }
  return report::flows_csv(outcome) + report::sheet_csv(outcome.links) +
         report::summary_json({"", "", "", {outcome}});
}

std::string results_of(const Case& c, const std::vector<std::string>& set = {},
                       bool order_by_time = false, std::uint32_t threads = 1) {
  return text_of(outcome_of(c.text, "", set, order_by_time, threads), c);
}

// FNV-1a (Fowler, Noll and Vo), 64 bits.
std::string digest(const std::string& text) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01B3;
  std::array<char, 17> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(hash));
  return hex.data();
}

constexpr char digests_path[] = TULLE_TEST_DATA "/sim_digests.txt";

TEST(Determinism, TwiceInOneProcess) {
  for (const Case& c : cases) EXPECT_EQ(results_of(c), results_of(c)) << c.name;
}

TEST(Determinism, NodesInTurnsOrAllInTheOrderOfTime) {
  for (const Case& c : cases) {
    for (const char* seed : {"seed = 1", "seed = 2", "seed = 3"}) {
      const bool same = results_of(c, {seed}) == results_of(c, {seed}, true);
      EXPECT_TRUE(same) << c.name << ", " << seed;
    }
  }
}

TEST(Determinism, AnyNumberOfThreads) {
  for (const Case& c : cases) {
    const std::string alone = results_of(c);
    for (const std::uint32_t threads : {2u, 3u, 5u}) {
      EXPECT_TRUE(alone == results_of(c, {}, false, threads))
          << c.name << ", " << threads << " threads";
    }
  }
}

TEST(Determinism, AnyNumberOfProcesses) {
  for (const Case& c : cases) {
    const std::string alone = results_of(c);
    for (const auto& [processes, threads] : {std::pair{2u, 1u}, {3u, 1u}, {4u, 1u}, {2u, 2u}}) {
      const bool same = alone == text_of(outcome_of_processes(c.text, processes, threads), c);
      EXPECT_TRUE(same) << c.name << ", " << processes << " processes of " << threads << " threads";
    }
  }
}

// There are so many queue pairs at one host that numbers drawn for them would collide.
TEST(Determinism, NumbersOfQueuePairsDoNotDependOnTheOrderOfNodes) {
  const Case many = {"many-queue-pairs", R"(
[topology]
kind = "leaf-spine"
leaves = 9
spines = 8
hosts_per_leaf = 1
[traffic]
pattern = "incast"
bytes = "1MB"
queue_pairs = 5000
jitter = "3us"
)"};
  EXPECT_TRUE(results_of(many) == results_of(many, {}, true));
}

TEST(Determinism, AnotherSeedIsAnotherRun) {
  for (const Case& c : cases) {
    const std::string one = results_of(c, {"seed = 1"});
    EXPECT_EQ(one, results_of(c)) << c.name << ": 1 is the default";
    EXPECT_EQ(one != results_of(c, {"seed = 2"}), c.draws) << c.name;
  }
}

// The memory of a flow is given back after its last packet, which makes a run longer, and the share
// of that time in which a core was busy smaller.
TEST(Determinism, WithGhostsAsWithBytes) {
  for (const Case& c : cases) {
    if (c.name == std::string_view("ring-tcp-of-two-cores")) continue;
    EXPECT_EQ(results_of(c), results_of(c, {"traffic.payload = \"bytes\""})) << c.name;
  }
}

TEST(Determinism, TheSameInEveryBuild) {
  std::map<std::string, std::string> expected, found;
  for (const Case& c : cases) found[c.name] = digest(results_of(c));
  if (std::getenv("TULLE_WRITE_DIGESTS") != nullptr) {
    std::ofstream out(digests_path);
    for (const auto& [name, value] : found) out << name << " " << value << "\n";
  }
  std::ifstream in(digests_path);
  for (std::string name, value; in >> name >> value;) expected[name] = value;
  EXPECT_EQ(found, expected) << "if results were to change, see the top of this file";
}

}  // namespace
}  // namespace tulle::experiment
