// Tests runs, and the results that are gathered from them.

#include "study/experiment/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"
#include "study/report/columns.h"
#include "study/report/results.h"

namespace tulle::experiment {
namespace {

constexpr char two_hosts[] = R"([topology]
kind = "single-switch"
hosts = 2
link_rate = "100Gbps"
[traffic]
pattern = "file"
file = "f.csv"
)";

TEST(Run, AFlowsTimesAndItsLinksCounts) {
  // 10,000 bytes at 80 ps a byte are frames of 4,194 + 4,178 + 1,890 (1,808 and 82) bytes. The
  // first is sent again on the second link, and two links take 1 us each. The acknowledgement comes
  // back as 86 bytes, twice.
  //   (10,262 + 4,194) x 80 + 2,000,000 + 2 x 6,880 + 2,000,000 = 5,170,240 ps
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,10000,7.5\n");
  const report::Outcome outcome =
      outcome_of(two_hosts, folder.path(), {"host.completion_delay = \"1ns\""});
  ASSERT_EQ(outcome.flows.size(), 1u);
  EXPECT_EQ(outcome.flows[0].start, Time{7'500});
  EXPECT_EQ(outcome.flows[0].end, Time{7'500 + 5'170'240 + 1'000});
  EXPECT_EQ(outcome.flows[0].slowdown, 1.0);
  EXPECT_DOUBLE_EQ(number(outcome, "end_us"), 5.17874);
  EXPECT_NEAR(number(outcome, "goodput_gbps"), 80 / 5.17874, 1e-6);
  EXPECT_EQ(count(outcome, "packet_hops"), 6u) << "three packets over two links";
  EXPECT_EQ(count(outcome, "link_traversals"), 12u) << "and three acknowledgements";
  ASSERT_EQ(outcome.links.rows.size(), 4u);
  const report::Sheet::Row& first = outcome.links.rows[0];
  EXPECT_EQ(first.names, (std::vector<std::string>{"host 0", "0", "switch 0"}));
  EXPECT_EQ(count(outcome.links, 0, "frames"), 3u);
  EXPECT_EQ(count(outcome.links, 0, "bytes"), 10'262u);
  EXPECT_DOUBLE_EQ(std::get<double>(*find(outcome.links, first, "utilisation")),
                   10'262 * 8 / 5.17874e-6 / 100e9);
  EXPECT_EQ(count(outcome.links, 1, "bytes"), 3 * 86u);
}

// A flow alone takes exactly the time that its slowdown is measured against.
TEST(Run, AFlowAloneHasASlowdownOfOne) {
  constexpr std::array<const char*, 4> fabrics = {
      "fabric = {}", "fabric = { cut_through = true, switch_latency = \"300ns\" }",
      "fabric = { kind = \"infiniband\" }",
      "fabric = { kind = \"infiniband\", cut_through = true, switch_latency = \"130ns\" }"};
  constexpr std::array<const char*, 6> topologies = {
      "kind = \"single-switch\"\nhosts = 4\nlink_rate = \"100Gbps\"\n",
      "kind = \"single-switch\"\nhosts = 4\nlink_rate = \"3Gbps\"\n",
      "kind = \"leaf-spine\"\nlink_rate = \"100Gbps\"\nuplink_rate = \"400Gbps\"\n",
      "kind = \"leaf-spine\"\nlink_rate = \"400Gbps\"\nuplink_rate = \"100Gbps\"\n",
      "kind = \"fat-tree\"\nk = 4\nlink_rate = \"54.54Gbps\"\nlink_delay = \"33ns\"\n",
      "kind = \"torus\"\nsize = [3]\nhosts_per_switch = 2\nlink_rate = \"200Gbps\"\nuplink_rate = "
      "\"90Gbps\"\n"};
  for (const char* fabric : fabrics) {
    for (const char* topology : topologies) {
      for (const std::uint64_t bytes : {1, 3, 64, 4'095, 4'096, 4'596, 8'192, 10'001, 123'456}) {
        Folder folder;
        folder.write("f.csv", "src,dst,bytes,start_ns\n0,3," + std::to_string(bytes) + ",0\n");
        const report::Outcome outcome =
            outcome_of(std::string("[topology]\n") + topology +
                           "[traffic]\npattern = \"file\"\nfile = \"f.csv\"\n",
                       folder.path(), {fabric, "host.send_delay = \"200ns\""});
        ASSERT_EQ(count(outcome, "finished"), 1u);
        // An update of credits may come before the last acknowledgement, which costs 8 bytes per
        // link.
        const bool credits = std::string(fabric).find("infiniband") != std::string::npos;
        EXPECT_GE(outcome.flows[0].slowdown, 1.0) << fabric << "\n" << topology << bytes;
        EXPECT_LE(outcome.flows[0].slowdown, credits ? 1.003 : 1.0) << fabric << "\n"
                                                                    << topology << bytes;
      }
    }
  }
}

TEST(Run, QuantilesAreRanks) {
  // Flows of 1 to 100 x 4,096 bytes, one after the other in time.
  Folder folder;
  std::string flows = "src,dst,bytes,start_ns\n";
  for (int i = 1; i <= 100; ++i) {
    flows += "0,1," + std::to_string(i * 4'096) + "," + std::to_string(i * 100'000) + "\n";
  }
  folder.write("f.csv", flows);
  const report::Outcome outcome = outcome_of(two_hosts, folder.path());
  const auto taken_us = [&](std::size_t i) {
    return static_cast<double>((outcome.flows[i].end - outcome.flows[i].start).ps) * 1e-6;
  };
  EXPECT_DOUBLE_EQ(number(outcome, "fct_us.min"), taken_us(0));
  EXPECT_DOUBLE_EQ(number(outcome, "fct_us.median"), taken_us(49));
  EXPECT_DOUBLE_EQ(number(outcome, "fct_us.p99"), taken_us(98));
  EXPECT_DOUBLE_EQ(number(outcome, "fct_us.max"), taken_us(99));
}

TEST(Run, AFlowThatWaitsStartsWhenTheOtherHasArrived) {
  Folder folder;
  folder.write("f.csv",
               "src,dst,bytes,start_ns,after\n0,1,1000,0,\n1,0,1000,0,0\n1,0,1000,50000,0\n");
  const report::Outcome outcome = outcome_of(two_hosts, folder.path());
  // The awaited flow tells its receiver, with 4 bytes of immediate data. 1,102 x 80 x 2 + 2 us.
  EXPECT_EQ(outcome.flows[1].start, Time{2 * 88'160 + 2'000'000});
  EXPECT_EQ(outcome.flows[2].start, Time::microseconds(50)) << "not before its own time";
  EXPECT_EQ(count(outcome, "finished"), 3u);
}

TEST(Run, LatencyIsOneWayFromTheCallToItsBeingSeen) {
  // 1,000 bytes and 4 of immediate data: 1,000 + 82 + 16 + 4 = 1,102 bytes at 80 ps, twice.
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n");
  const report::Outcome outcome = outcome_of(
      two_hosts, folder.path(),
      {"host = { post_delay = \"10ns\", send_delay = \"20ns\", receive_delay = \"30ns\", "
       "completion_delay = \"40ns\" }",
       "traffic.notify = true", "fabric.switch_latency = \"50ns\""});
  EXPECT_EQ(outcome.flows[0].start, Time::zero());
  EXPECT_EQ(outcome.flows[0].arrived,
            Time{10'000 + 20'000 + 2'000'000 + 50'000 + 30'000 + 40'000 + 2 * 88'160});
  EXPECT_DOUBLE_EQ(number(outcome, "latency_us.max"), 2.32632);
}

TEST(Run, AMessageSharedAmongQueuePairsIsOneFlow) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000000,0\n1,0,1000000,0\n");
  const report::Outcome outcome = outcome_of(two_hosts, folder.path(), {"traffic.queue_pairs = 4"});
  ASSERT_EQ(outcome.flows.size(), 2u);
  EXPECT_EQ(count(outcome, "finished"), 2u);
  EXPECT_EQ(outcome.flows[0].bytes, 1'000'000u);
}

// Two leaves, four spines. Each of sixteen queue pairs takes the next of its host's 2^lmc paths.
TEST(Run, QueuePairsTakeAHostsPathsInTurn) {
  const std::string text =
      "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 1\n"
      "link_rate = \"100Gbps\"\n[fabric]\nkind = \"infiniband\"\n"
      "[traffic]\npattern = \"shift\"\nbytes = \"400KB\"\nqueue_pairs = 16\n";
  for (const std::uint32_t lmc : {0u, 1u, 2u, 3u}) {
    const report::Outcome outcome = outcome_of(text, "", {"routing.lmc = " + std::to_string(lmc)});
    EXPECT_EQ(count(outcome, "finished"), 2u);
    std::vector<std::uint64_t> bytes;  // by uplink of the first leaf
    for (std::size_t i = 0; i < outcome.links.rows.size(); ++i) {
      const std::vector<std::string>& names = outcome.links.rows[i].names;
      if (names[0] != "leaf 0" || names[2].find("spine") == std::string::npos) continue;
      const std::uint64_t of_link = count(outcome.links, i, "bytes");
      if (of_link > 100'000) bytes.push_back(of_link);
    }
    ASSERT_EQ(bytes.size(), std::min(1u << lmc, 4u)) << "data, and not acknowledgements alone";
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
    EXPECT_LT(*most - *least, 10'000u);
  }
}

TEST(Run, BytesArriveAsTheyWereSent) {
  Folder folder;
  // One byte, a byte less than a packet, several packets, and a flow that waits for another, whose
  // receiver is therefore told.
  folder.write(
      "f.csv",
      "src,dst,bytes,start_ns,after\n0,1,1,0,\n1,0,4095,0,\n0,1,100001,0,\n1,0,5000,0,2\n");
  constexpr std::array<const char*, 6> others = {
      "seed = 3", "traffic.queue_pairs = 3", "traffic.notify = true",
      "fabric.kind = \"infiniband\"", "host.mtu = 256",
      // Packets are lost, and retransmitted with all packets behind them.
      "fabric = { flow_control = \"none\", bit_error_rate = 1e-6 }"};
  for (const char* other : others) {
    const report::Outcome outcome =
        outcome_of(two_hosts, folder.path(), {"traffic.payload = \"bytes\"", other});
    EXPECT_EQ(count(outcome, "finished"), 4u) << other;
    EXPECT_EQ(count(outcome, "bytes_verified"), 1 + 4'095 + 100'001 + 5'000) << other;
    const report::Outcome ghosts = outcome_of(two_hosts, folder.path(), {other});
    EXPECT_EQ(find(ghosts, "bytes_verified"), nullptr) << other;
    EXPECT_EQ(report::flows_csv(ghosts), report::flows_csv(outcome)) << other;
  }
}

TEST(Run, BytesThatAreSentTwiceArriveToo) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,4000000,0\n1,0,4000000,0\n");
  const report::Outcome outcome =
      outcome_of(two_hosts, folder.path(),
                 {"traffic.payload = \"bytes\"", "fabric = { bit_error_rate = 1e-6 }"});
  EXPECT_GT(count(outcome, "retransmitted"), 10u);
  EXPECT_EQ(count(outcome, "bytes_verified"), 8'000'000u);
}

// A bit flips on its way and no check of the network finds it. The receiver's application does.
TEST(Run, AByteThatIsNotAsItWasSentNamesItsFlow) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n1,0,9000,0\n0,1,30000,0\n");
  for (const char* other : {"traffic.notify = true", "traffic.notify = false"}) {
    auto scenario = scenario::Scenario::parse(
        two_hosts, "s.toml", folder.path(),
        {"traffic.payload = \"bytes\"", "traffic.queue_pairs = 2", other});
    ASSERT_TRUE(scenario);
    auto setup = scenario->build(0);
    ASSERT_TRUE(setup);
    auto run = Run::prepare(std::move(*setup));
    ASSERT_TRUE(run);
    std::uint32_t packets = 0;
    std::byte sent{};
    (*run)->show_to([&](const sim::Sending& sending) {
      const bool counts =
          sending.node == 0 && sending.frame != nullptr && sending.frame->payload_bytes == 4'096;
      if (!counts || ++packets != 3) return;  // the first packet of the second queue pair
      sent = sending.payload[17];
      const_cast<std::byte*>(sending.payload)[17] ^= std::byte{0x80};
    });
    (*run)->run([](const Progress&) { return true; });
    const Result<void> intact = (*run)->check_payloads();
    ASSERT_FALSE(intact);
    const auto value = std::to_integer<unsigned>(sent);
    EXPECT_EQ(intact.error().message,
              fmt::format("flow 1 (host 0 to host 1), queue pair 1: byte 17 of 15000 is 0x{:02x}, "
                          "but 0x{:02x} was sent",
                          value ^ 0x80, value));
    EXPECT_EQ(count((*run)->outcome(), "bytes_verified"), 9'000u + 15'000u) << "of the others";
  }
}

TEST(Run, StopsAtATime) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n0,1,1000000000,0\n0,1,5,900000\n");
  const report::Outcome outcome = outcome_of(two_hosts, folder.path(), {"stop_at = \"100us\""});
  EXPECT_EQ(count(outcome, "finished"), 1u);
  EXPECT_FALSE(outcome.flows[1].start.is_never());
  EXPECT_TRUE(outcome.flows[1].end.is_never());
  EXPECT_TRUE(outcome.flows[2].start.is_never());
  const std::string csv = report::flows_csv(outcome);
  EXPECT_NE(csv.find(",unfinished,\n"), std::string::npos);
  EXPECT_NE(csv.find("2,0,1,5,,,,,not begun,\n"), std::string::npos);
}

// At a bit a second, 24 packets of 4,096 bytes and one of 1,696, the first stored and forwarded,
// and an acknowledgement over two links take ten days. A hundred times as much takes longer than
// virtual time lasts.
TEST(Run, ASlowLinkEndsWithVirtualTime) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,100000,0\n");
  const std::vector<std::string> slow = {"topology.link_rate = \"1bps\"", "host.timeout = 0"};
  const report::Outcome whole = outcome_of(two_hosts, folder.path(), slow);
  EXPECT_EQ(count(whole, "finished"), 1u);
  EXPECT_NEAR(number(whole, "fct_us.max"), 8e6 * (24 * 4'178 + 1'778 + 16 + 4'194 + 2 * 86), 10);
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,10000000,0\n");
  const report::Outcome part = outcome_of(two_hosts, folder.path(), slow);
  EXPECT_EQ(count(part, "finished"), 0u);
  EXPECT_EQ(count(part, "failed"), 0u);
  EXPECT_FALSE(part.flows[0].start.is_never());
}

TEST(Run, APauseOnASlowLinkHoldsUntilItIsRenewed) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,2,200000,0\n1,2,200000,0\n");
  const report::Outcome outcome =
      outcome_of(two_hosts, folder.path(),
                 {"topology.hosts = 3", "topology.link_rate = \"1bps\"", "host.timeout = 0",
                  "fabric.pfc = { xoff = \"10KB\", xon_gap = \"5KB\" }"});
  EXPECT_EQ(count(outcome, "finished"), 2u);
  EXPECT_GT(count(outcome, "pauses"), 0u);
  EXPECT_EQ(count(outcome, "lossless_dropped"), 0u);
}

TEST(Run, StopsWhenItIsTold) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000000000,0\n");
  auto scenario = scenario::Scenario::parse(two_hosts, "s.toml", folder.path(), {});
  auto run = Run::prepare(std::move(*scenario->build(0)));
  int calls = 0;
  (*run)->run([&](const Progress& progress) {
    EXPECT_EQ(progress.flows, 1u);
    EXPECT_GE(progress.share_done, 0.0);
    return ++calls < 3;
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(count((*run)->outcome(), "finished"), 0u);
}

TEST(Run, AFlowThatNobodyAnswersFailsAndOthersGoOn) {
  // One of some 33,000 bits is always wrong, so that all frames are lost until the retries are used
  // up.
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns,after\n0,1,4000,0,\n1,0,4000,0,0\n");
  const report::Outcome outcome =
      outcome_of(two_hosts, folder.path(),
                 {"fabric.bit_error_rate = 0.001", "host = { timeout = 4, retry_count = 2 }"});
  EXPECT_EQ(count(outcome, "failed"), 1u);
  EXPECT_EQ(count(outcome, "finished"), 0u);
  EXPECT_EQ(count(outcome, "dropped"), 0u) << "for want of room";
  EXPECT_EQ(count(outcome, "retransmitted"), 2u);
  EXPECT_EQ(count(outcome, "timeouts"), 3u);
  const std::string csv = report::flows_csv(outcome);
  EXPECT_NE(csv.find("0,0,1,4000,0,,,,failed,\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find("1,1,0,4000,,,,,not begun,\n"), std::string::npos) << csv;
}

// Senders of 25 Gb/s that started from 100 would need two more notifications before they slow down
// at all, and take 1.8 ms, where 0.65 is the ideal.
TEST(Run, DcqcnStartsFromTheRateOfTheHostsOwnLink) {
  constexpr char congested[] = R"([topology]
kind = "file"
file = "l.csv"
[traffic]
pattern = "file"
file = "f.csv"
[fabric.ecn]
kmin = "20KB"
kmax = "80KB"
[congestion]
control = "dcqcn"
)";
  const auto with_an_idle_host = [&](const std::string& gbps) {
    Folder folder;
    folder.write("l.csv", "a,b,gbps,delay_ns\n0,4," + gbps +
                              ",1000\n1,4,25,1000\n2,4,25,1000\n3,4,25,1000\n");
    folder.write("f.csv", "src,dst,bytes,start_ns\n1,3,1000000,0\n2,3,1000000,0\n");
    return outcome_of(congested, folder.path());
  };
  const report::Outcome slow = with_an_idle_host("25");
  const report::Outcome fast = with_an_idle_host("100");
  EXPECT_GT(count(slow, "notifications"), 0u);
  EXPECT_EQ(count(fast, "notifications"), count(slow, "notifications"));
  EXPECT_EQ(number(fast, "end_us"), number(slow, "end_us"));
  EXPECT_LT(number(slow, "end_us"), 1'000);
}

TEST(Run, AHostMayHaveMorePeersThanADeviceServes) {
  const report::Outcome outcome = outcome_of(
      "[topology]\nhosts = 17000\n[traffic]\npattern = \"incast\"\nbytes = \"1B\"\nreceiver = 0\n");
  EXPECT_EQ(count(outcome, "finished"), 16'999u);
}

// --- written results ---

// Every switch of a ring sends to the third after it, more than the lanes hold. Each lane is full
// of packets for the next switch, and nothing moves any more. With a second lane for packets that
// cross the ring's end, all flows finish.
TEST(Run, ARingLocksUpOnOneLaneAndNotOnTwo) {
  const std::string ring = R"([topology]
kind = "torus"
size = [8]
link_rate = "100Gbps"
link_delay = "100ns"
[fabric]
kind = "infiniband"
credits.lane_buffer = "16KB"
[traffic]
pattern = "shift"
distance = 3
bytes = "1MB"
)";
  const std::vector<std::string> one_lane = {"routing.lanes = false",
                                             "routing.allow_deadlock = true", "stop_at = \"20ms\""};
  const report::Outcome locked = outcome_of(ring, "", one_lane);
  EXPECT_EQ(count(locked, "finished"), 0u);
  EXPECT_EQ(count(locked, "dropped"), 0u);
  std::vector<std::string> later = one_lane;
  later.back() = "stop_at = \"40ms\"";
  EXPECT_EQ(count(outcome_of(ring, "", later), "packet_hops"), count(locked, "packet_hops"))
      << "nothing moves";

  const report::Outcome free = outcome_of(ring);
  EXPECT_EQ(count(free, "finished"), 8u);
  EXPECT_EQ(count(free, "retransmitted"), 0u);
  // Three flows of 1 MB share each link: 240 us.
  EXPECT_GT(number(free, "end_us"), 240);
  EXPECT_LT(number(free, "end_us"), 400);
}

TEST(Run, TorusAndDragonflyFinishUnderLoadOnTwoLanes) {
  for (const char* topology : {"kind = \"torus\"\nsize = [4, 5]\n", "kind = \"dragonfly\"\n"}) {
    const std::string text = std::string("[topology]\n") + topology +
                             "link_rate = \"100Gbps\"\n[fabric]\nkind = \"infiniband\"\n"
                             "credits.lane_buffer = \"9KB\"\n[host]\nservice_levels = 2\n"
                             "[routing]\nlmc = 1\n"
                             "[traffic]\npattern = \"all-to-all\"\nrounds = \"at-once\"\n"
                             "bytes = \"20KB\"\n";
    const report::Outcome outcome = outcome_of(text);
    EXPECT_EQ(count(outcome, "finished"), outcome.flows.size()) << topology;
    EXPECT_EQ(count(outcome, "retransmitted"), 0u) << topology;
    EXPECT_EQ(count(outcome, "unmapped"), 0u) << topology;
  }
}

// Hosts 0 and 1 are full members of partition 1, and host 2 is a limited member. Host 3 is in
// another partition.
TEST(Run, FlowsBetweenPartitionsFailWhenTheirRetriesHaveRunOut) {
  Folder folder;
  folder.write("f.csv",
               "src,dst,bytes,start_ns\n0,1,10000,0\n0,2,10000,0\n2,1,10000,0\n0,3,10000,0\n");
  const std::string text = R"([topology]
kind = "single-switch"
hosts = 4
[fabric]
kind = "infiniband"
[host]
timeout = 8
retry_count = 2
[traffic]
pattern = "file"
file = "f.csv"
[[partition]]
pkey = 1
full = "0-1"
limited = "2"
[[partition]]
pkey = 2
full = "3"
)";
  const report::Outcome at_switch = outcome_of(text, folder.path());
  EXPECT_EQ(count(at_switch, "finished"), 3u);
  EXPECT_EQ(count(at_switch, "failed"), 1u);
  EXPECT_TRUE(at_switch.flows[3].failed);
  EXPECT_EQ(count(at_switch, "pkey_dropped"), 9u) << "three packets, three times";
  EXPECT_EQ(count(at_switch, "pkey_violations"), 0u);
  EXPECT_EQ(count(at_switch, "dropped"), 0u);
  const report::Outcome at_host =
      outcome_of(text, folder.path(), {"fabric.partition_enforcement = \"in\""});
  EXPECT_EQ(count(at_host, "failed"), 1u);
  EXPECT_EQ(count(at_host, "pkey_dropped"), 0u)
      << "where it comes in it is of the host's partition";
  EXPECT_EQ(count(at_host, "pkey_violations"), 9u);
}

// Switches know partitions, but only hosts know which members are limited.
TEST(Run, LimitedMembersDoNotTalkToEachOther) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,100,0\n0,2,100,0\n");
  const report::Outcome outcome = outcome_of(R"([topology]
kind = "single-switch"
hosts = 3
[fabric]
kind = "infiniband"
[host]
timeout = 8
retry_count = 0
[traffic]
pattern = "file"
file = "f.csv"
[[partition]]
pkey = 5
full = "2"
limited = "0-1"
)",
                                             folder.path());
  EXPECT_EQ(count(outcome, "finished"), 1u);
  EXPECT_EQ(count(outcome, "failed"), 1u);
  EXPECT_TRUE(outcome.flows[0].end.is_never());
  EXPECT_EQ(count(outcome, "pkey_dropped"), 0u);
  EXPECT_EQ(count(outcome, "pkey_violations"), 1u);
}

// An incast of six runs beside a pair with a path of its own, whose traffic repeats.
TEST(Run, TrafficWithNamesHasResultsOfItsOwn) {
  const report::Outcome outcome = outcome_of(R"([topology]
hosts = 9
link_rate = "100Gbps"
[traffic]
name = "incast"
pattern = "incast"
hosts = "0-5, 8"
receiver = 6
bytes = "100KB"
[[traffic.and]]
name = "pair"
pattern = "shift"
hosts = "6, 7"
bytes = "4KB"
times = 3
every = "50us"
start = "1us"
)");
  ASSERT_EQ(outcome.kinds.size(), 2u);
  EXPECT_EQ(outcome.kinds[0].name, "incast");
  EXPECT_EQ(count(outcome, "traffic.incast.flows"), 6u);
  EXPECT_EQ(count(outcome, "traffic.pair.flows"), 6u);
  EXPECT_EQ(count(outcome, "traffic.pair.finished"), 6u);
  EXPECT_EQ(count(outcome, "finished"), 12u);
  EXPECT_EQ(number(outcome, "traffic.pair.slowdown.max"), 1.0) << "nothing is in its way";
  EXPECT_GT(number(outcome, "traffic.incast.slowdown.median"), 4);
  EXPECT_EQ(outcome.flows[0].destination, 8u) << "the seventh of those who take part";
  EXPECT_EQ(outcome.flows[6].source, 6u);
  EXPECT_EQ(outcome.flows[8].start, Time::microseconds(51));
  EXPECT_EQ(outcome.flows[10].start, Time::microseconds(101));
  EXPECT_EQ(number(outcome, "end_us"), std::max(number(outcome, "traffic.incast.end_us"),
                                                number(outcome, "traffic.pair.end_us")));
  EXPECT_GT(number(outcome, "traffic.incast.goodput_gbps"), 85);
  const std::string table = report::summary_table({outcome});
  EXPECT_NE(table.find("\n  incast "), std::string::npos) << table;
  EXPECT_NE(report::flows_csv(outcome).find(",latency_ns,traffic\n"), std::string::npos);
  EXPECT_NE(report::flows_csv(outcome).find("\n11,7,6,4000,"), std::string::npos);
  EXPECT_NE(report::flows_csv(outcome).find(",pair\n"), std::string::npos);
}

// Four senders to one receiver through a tree with one spine, and a pair whose path shares their
// links.
TEST(Run, WhoCausesCongestionAtAHostIsTold) {
  const std::string text = R"([topology]
kind = "leaf-spine"
spines = 1
hosts_per_leaf = 5
link_rate = "100Gbps"
uplink_rate = "400Gbps"
[fabric]
kind = "infiniband"
[traffic]
name = "incast"
pattern = "incast"
hosts = "0-3, 5"
receiver = 4
bytes = "4MB"
[[traffic.and]]
name = "victim"
pattern = "shift"
hosts = "4, 6"
bytes = "4KB"
start = "300us"
every = "10us"
times = 50
)";
  const report::Outcome held_back = outcome_of(text);
  const report::Outcome told = outcome_of(text, "", {"congestion.control = \"endpoint\""});
  EXPECT_EQ(count(held_back, "notices"), 0u);
  EXPECT_GT(number(held_back, "traffic.victim.slowdown.median"), 3);
  EXPECT_GT(count(told, "notices"), 4u);
  EXPECT_LT(number(told, "traffic.victim.slowdown.p99"), 1.5);
  EXPECT_GT(number(told, "traffic.incast.goodput_gbps"), 85);
  const std::string loose = "congestion = { control = \"endpoint\", queue = \"1GB\" }";
  EXPECT_EQ(count(outcome_of(text, "", {loose}), "notices"), 0u)
      << "a queue that long there is not";
}

// Five switches in a ring, where each host sends to the one two further on. The shortest paths are
// all clockwise.
constexpr char locked_ring[] = R"(stop_at = "1s"
[topology]
kind = "torus"
size = [5]
link_rate = "100Gbps"
[traffic]
pattern = "shift"
distance = 2
bytes = "1MB"
[routing]
kind = "shortest"
allow_deadlock = true
lanes = false
[fabric]
kind = "infiniband"
[host]
timeout = 8  # 1 ms
)";

TEST(Run, AHeadOfQueueLifetimeEndsADeadlock) {
  const report::Outcome locked = outcome_of(locked_ring, "", {});
  EXPECT_EQ(count(locked, "finished"), 0u);
  EXPECT_EQ(count(locked, "discarded"), 0u);
  const report::Outcome freed = outcome_of(
      locked_ring, "", {"fabric = { kind = \"infiniband\", head_of_queue_lifetime = \"100us\" }"});
  EXPECT_EQ(count(freed, "finished"), 5u);
  EXPECT_GT(count(freed, "discarded"), 0u);
  EXPECT_GE(count(freed, "retransmitted"), count(freed, "discarded"));
  EXPECT_EQ(count(freed, "dropped"), 0u);
  // Only ports to hosts have a lifetime here, and those never lock up.
  const report::Outcome leaves =
      outcome_of(locked_ring, "",
                 {"fabric = { kind = \"infiniband\", leaf_head_of_queue_lifetime = \"100us\" }"});
  EXPECT_EQ(count(leaves, "finished"), 0u);
  EXPECT_EQ(count(leaves, "discarded"), 0u);
}

// An exception on any thread comes to the caller, and no thread waits for one that is gone.
TEST(Run, AnExceptionInAThreadEndsTheRun) {
  for (const std::uint32_t threads : {1u, 2u, 4u}) {
    auto setup = setup_of(
        "[topology]\nkind = \"leaf-spine\"\nleaves = 4\nhosts_per_leaf = 4\n"
        "[traffic]\npattern = \"permutation\"\nbytes = \"20MB\"\n",
        "", {});
    ASSERT_TRUE(setup);
    auto run = Run::prepare(std::move(*setup), threads);
    ASSERT_TRUE(run);
    ASSERT_EQ((*run)->threads(), threads);
    const auto fails = [](const Progress& progress) -> bool {
      if (progress.events > 100'000) throw std::bad_alloc();
      return true;
    };
    EXPECT_THROW((*run)->run(fails), std::bad_alloc) << threads;
  }
}

}  // namespace
}  // namespace tulle::experiment
