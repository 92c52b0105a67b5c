// Tests runs, and the results that are gathered from them.

#include "scenario/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "scenario/folder_test.h"
#include "scenario/outcome_test.h"
#include "scenario/results.h"

namespace tulle::scenario {
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
  const Outcome outcome = outcome_of(two_hosts, folder.path(), {"host.completion_delay = \"1ns\""});
  ASSERT_EQ(outcome.flows.size(), 1u);
  EXPECT_EQ(outcome.flows[0].start, Time{7'500});
  EXPECT_EQ(outcome.flows[0].end, Time{7'500 + 5'170'240 + 1'000});
  EXPECT_EQ(outcome.flows[0].slowdown, 1.0);
  EXPECT_EQ(outcome.end, outcome.flows[0].end);
  EXPECT_DOUBLE_EQ(outcome.goodput_bits_per_second, 80'000 / 5.17874e-6);
  EXPECT_EQ(outcome.packet_hops, 6u) << "three packets over two links";
  EXPECT_EQ(outcome.link_traversals, 12u) << "and three acknowledgements";
  ASSERT_EQ(outcome.links.size(), 4u);
  EXPECT_EQ(outcome.links[0].from, "host 0");
  EXPECT_EQ(outcome.links[0].to, "switch 0");
  EXPECT_EQ(outcome.links[0].frames, 3u);
  EXPECT_EQ(outcome.links[0].bytes, 10'262u);
  EXPECT_DOUBLE_EQ(outcome.links[0].utilisation, 10'262 * 8 / 5.17874e-6 / 100e9);
  EXPECT_EQ(outcome.links[1].bytes, 3 * 86u);
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
        const Outcome outcome = outcome_of(std::string("[topology]\n") + topology +
                                               "[traffic]\npattern = \"file\"\nfile = \"f.csv\"\n",
                                           folder.path(), {fabric, "host.send_delay = \"200ns\""});
        ASSERT_EQ(outcome.finished, 1u);
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
  const Outcome outcome = outcome_of(two_hosts, folder.path());
  const auto taken_us = [&](std::size_t i) {
    return static_cast<double>((outcome.flows[i].end - outcome.flows[i].start).ps) * 1e-6;
  };
  EXPECT_DOUBLE_EQ(outcome.completion_us.min, taken_us(0));
  EXPECT_DOUBLE_EQ(outcome.completion_us.median, taken_us(49));
  EXPECT_DOUBLE_EQ(outcome.completion_us.p99, taken_us(98));
  EXPECT_DOUBLE_EQ(outcome.completion_us.max, taken_us(99));
}

TEST(Run, AFlowThatWaitsStartsWhenTheOtherHasArrived) {
  Folder folder;
  folder.write("f.csv",
               "src,dst,bytes,start_ns,after\n0,1,1000,0,\n1,0,1000,0,0\n1,0,1000,50000,0\n");
  const Outcome outcome = outcome_of(two_hosts, folder.path());
  // The awaited flow tells its receiver, with 4 bytes of immediate data. 1,102 x 80 x 2 + 2 us.
  EXPECT_EQ(outcome.flows[1].start, Time{2 * 88'160 + 2'000'000});
  EXPECT_EQ(outcome.flows[2].start, Time::microseconds(50)) << "not before its own time";
  EXPECT_EQ(outcome.finished, 3u);
}

TEST(Run, LatencyIsOneWayFromTheCallToItsBeingSeen) {
  // 1,000 bytes and 4 of immediate data: 1,000 + 82 + 16 + 4 = 1,102 bytes at 80 ps, twice.
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n");
  const Outcome outcome = outcome_of(
      two_hosts, folder.path(),
      {"host = { post_delay = \"10ns\", send_delay = \"20ns\", receive_delay = \"30ns\", "
       "completion_delay = \"40ns\" }",
       "traffic.notify = true", "fabric.switch_latency = \"50ns\""});
  EXPECT_EQ(outcome.flows[0].start, Time::zero());
  EXPECT_EQ(outcome.flows[0].arrived,
            Time{10'000 + 20'000 + 2'000'000 + 50'000 + 30'000 + 40'000 + 2 * 88'160});
  EXPECT_EQ(outcome.arrivals, 1u);
  EXPECT_DOUBLE_EQ(outcome.latency_us.max, 2.32632);
}

TEST(Run, AMessageSharedAmongQueuePairsIsOneFlow) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000000,0\n1,0,1000000,0\n");
  const Outcome outcome = outcome_of(two_hosts, folder.path(), {"traffic.queue_pairs = 4"});
  ASSERT_EQ(outcome.flows.size(), 2u);
  EXPECT_EQ(outcome.finished, 2u);
  EXPECT_EQ(outcome.flows[0].flow.bytes, 1'000'000u);
}

// Two leaves, four spines. Each of sixteen queue pairs takes the next of its host's 2^lmc paths.
TEST(Run, QueuePairsTakeAHostsPathsInTurn) {
  const std::string text =
      "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 4\nhosts_per_leaf = 1\n"
      "link_rate = \"100Gbps\"\n[fabric]\nkind = \"infiniband\"\n"
      "[traffic]\npattern = \"shift\"\nbytes = \"400KB\"\nqueue_pairs = 16\n";
  for (const std::uint32_t lmc : {0u, 1u, 2u, 3u}) {
    const Outcome outcome = outcome_of(text, "", {"routing.lmc = " + std::to_string(lmc)});
    EXPECT_EQ(outcome.finished, 2u);
    std::vector<std::uint64_t> bytes;  // by uplink of the first leaf
    for (const LinkOutcome& link : outcome.links) {
      if (link.from != "leaf 0" || link.to.find("spine") == std::string::npos) continue;
      if (link.bytes > 100'000) bytes.push_back(link.bytes);
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
    const Outcome outcome =
        outcome_of(two_hosts, folder.path(), {"traffic.payload = \"bytes\"", other});
    EXPECT_EQ(outcome.finished, 4u) << other;
    EXPECT_EQ(outcome.bytes_verified, 1 + 4'095 + 100'001 + 5'000) << other;
    const Outcome ghosts = outcome_of(two_hosts, folder.path(), {other});
    EXPECT_FALSE(ghosts.bytes_verified) << other;
    EXPECT_EQ(flows_csv(ghosts), flows_csv(outcome)) << other;
  }
}

TEST(Run, BytesThatAreSentTwiceArriveToo) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,4000000,0\n1,0,4000000,0\n");
  const Outcome outcome =
      outcome_of(two_hosts, folder.path(),
                 {"traffic.payload = \"bytes\"", "fabric = { bit_error_rate = 1e-6 }"});
  EXPECT_GT(outcome.retransmitted, 10u);
  EXPECT_EQ(outcome.bytes_verified, 8'000'000u);
}

// A bit flips on its way and no check of the network finds it. The receiver's application does.
TEST(Run, AByteThatIsNotAsItWasSentNamesItsFlow) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n1,0,9000,0\n0,1,30000,0\n");
  for (const char* other : {"traffic.notify = true", "traffic.notify = false"}) {
    auto scenario =
        Scenario::parse(two_hosts, "s.toml", folder.path(),
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
    EXPECT_EQ((*run)->outcome().bytes_verified, 9'000u + 15'000u) << "of the others";
  }
}

TEST(Run, StopsAtATime) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n0,1,1000000000,0\n0,1,5,900000\n");
  const Outcome outcome = outcome_of(two_hosts, folder.path(), {"stop_at = \"100us\""});
  EXPECT_EQ(outcome.finished, 1u);
  EXPECT_FALSE(outcome.flows[1].start.is_never());
  EXPECT_TRUE(outcome.flows[1].end.is_never());
  EXPECT_TRUE(outcome.flows[2].start.is_never());
  const std::string csv = flows_csv(outcome);
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
  const Outcome whole = outcome_of(two_hosts, folder.path(), slow);
  EXPECT_EQ(whole.finished, 1u);
  EXPECT_NEAR(whole.completion_us.max, 8e6 * (24 * 4'178 + 1'778 + 16 + 4'194 + 2 * 86), 10);
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,10000000,0\n");
  const Outcome part = outcome_of(two_hosts, folder.path(), slow);
  EXPECT_EQ(part.finished, 0u);
  EXPECT_EQ(part.failed, 0u);
  EXPECT_FALSE(part.flows[0].start.is_never());
}

TEST(Run, APauseOnASlowLinkHoldsUntilItIsRenewed) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,2,200000,0\n1,2,200000,0\n");
  const Outcome outcome =
      outcome_of(two_hosts, folder.path(),
                 {"topology.hosts = 3", "topology.link_rate = \"1bps\"", "host.timeout = 0",
                  "fabric.pfc = { xoff = \"10KB\", xon_gap = \"5KB\" }"});
  EXPECT_EQ(outcome.finished, 2u);
  EXPECT_GT(outcome.pauses, 0u);
  EXPECT_EQ(outcome.lossless_dropped, 0u);
}

TEST(Run, StopsWhenItIsTold) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000000000,0\n");
  auto scenario = Scenario::parse(two_hosts, "s.toml", folder.path(), {});
  auto run = Run::prepare(std::move(*scenario->build(0)));
  int calls = 0;
  (*run)->run([&](const Progress& progress) {
    EXPECT_EQ(progress.flows, 1u);
    EXPECT_GE(progress.share_done, 0.0);
    return ++calls < 3;
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ((*run)->outcome().finished, 0u);
}

TEST(Run, AFlowThatNobodyAnswersFailsAndOthersGoOn) {
  // One of some 33,000 bits is always wrong, so that all frames are lost until the retries are used
  // up.
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns,after\n0,1,4000,0,\n1,0,4000,0,0\n");
  const Outcome outcome =
      outcome_of(two_hosts, folder.path(),
                 {"fabric.bit_error_rate = 0.001", "host = { timeout = 4, retry_count = 2 }"});
  EXPECT_EQ(outcome.failed, 1u);
  EXPECT_EQ(outcome.finished, 0u);
  EXPECT_EQ(outcome.dropped, 0u) << "for want of room";
  EXPECT_EQ(outcome.retransmitted, 2u);
  EXPECT_EQ(outcome.timeouts, 3u);
  const std::string csv = flows_csv(outcome);
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
  const Outcome slow = with_an_idle_host("25");
  const Outcome fast = with_an_idle_host("100");
  EXPECT_GT(slow.notifications, 0u);
  EXPECT_EQ(fast.notifications, slow.notifications);
  EXPECT_EQ(fast.end, slow.end);
  EXPECT_LT(slow.end, Time::microseconds(1'000));
}

TEST(Run, AHostMayHaveMorePeersThanADeviceServes) {
  const Outcome outcome = outcome_of(
      "[topology]\nhosts = 17000\n[traffic]\npattern = \"incast\"\nbytes = \"1B\"\nreceiver = 0\n");
  EXPECT_EQ(outcome.finished, 16'999u);
}

// --- written results ---

TEST(Results, Tables) {
  Outcome outcome;
  FlowOutcome& done = outcome.flows.emplace_back();
  done.flow = {3, 4, 1'000, Time::zero(), -1};
  done.start = Time{1'500};
  done.end = Time{2'001'500};
  done.arrived = Time{1'001'750};
  done.slowdown = 1.25;
  FlowOutcome& unfinished = outcome.flows.emplace_back();
  unfinished.flow = {4, 3, 5, Time::zero(), -1};
  unfinished.start = Time::zero();
  EXPECT_EQ(flows_csv(outcome),
            "flow,src,dst,bytes,start_ns,end_ns,fct_ns,slowdown,status,latency_ns\n"
            "0,3,4,1000,1.500,2001.500,2000,1.2500,done,1000.250\n"
            "1,4,3,5,0,,,,unfinished,\n");
  LinkOutcome link;
  link.from = "host 3";
  link.to = "leaf 0";
  link.port = 2;
  link.frames = 5;
  link.bytes = 600;
  link.utilisation = 0.123456;
  link.queue_bytes_max = 7;
  link.dropped = 8;
  link.marked = 9;
  link.pauses = 10;
  link.paused = Time{11'012};
  link.credit_stalls = 13;
  outcome.links.push_back(link);
  EXPECT_EQ(links_csv(outcome),
            "from,port,to,frames,bytes,utilisation,queue_max_bytes,dropped,marked,pauses,paused_ns,"
            "credit_stalls\n"
            "host 3,2,leaf 0,5,600,0.1235,7,8,9,10,11.012,13\n");
}

constexpr std::array<const char*, 24> keys = {
    "share_of_ideal",   "seed",          "flows",         "finished",       "failed",
    "end_us",           "fct_us",        "slowdown",      "goodput_gbps",   "dropped",
    "lossless_dropped", "retransmitted", "timeouts",      "marked",         "notifications",
    "pauses",           "paused_us",     "credit_stalls", "median",         "p99",
    "buffer_max_bytes", "events",        "packet_hops",   "link_traversals"};

TEST(Results, TheSummaryHasItsKeys) {
  auto scenario =
      Scenario::parse("title = \"\\\"T\\\"\"\n[topology]\n[traffic]\n", "s.toml", "", {});
  ASSERT_TRUE(scenario);
  Outcome outcome;
  outcome.seed = 77;
  const std::string one = summary_json(*scenario, {outcome});
  EXPECT_NE(one.find("\"title\": \"\\\"T\\\"\""), std::string::npos) << one;
  EXPECT_NE(one.find("\"seed\": 77"), std::string::npos);
  EXPECT_EQ(one.find("\"variants\""), std::string::npos);
  for (const char* key : keys) {
    EXPECT_NE(one.find("\"" + std::string(key) + "\": "), std::string::npos) << key;
  }
  Outcome other = outcome;
  outcome.variant = "a";
  other.variant = "b";
  const std::string two = summary_json(*scenario, {outcome, other});
  EXPECT_NE(two.find("\"variants\": ["), std::string::npos);
  EXPECT_LT(two.find("\"variant\": \"a\""), two.find("\"variant\": \"b\""));
}

TEST(Results, FilesAppearWholeInFoldersOfTheirVariants) {
  Folder folder;
  auto scenario = Scenario::parse("[topology]\n[traffic]\n", "s.toml", "", {});
  Outcome a, b;
  a.variant = "a";
  b.variant = "b";
  ASSERT_TRUE(write_results(folder.path("one/deep"), *scenario, {a}));
  EXPECT_EQ(folder.read("one/deep/summary.json"), summary_json(*scenario, {a}));
  EXPECT_EQ(folder.read("one/deep/flows.csv"), flows_csv(a));
  EXPECT_EQ(folder.read("one/deep/links.csv"), links_csv(a));
  ASSERT_TRUE(write_results(folder.path("two"), *scenario, {a, b}));
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path("two"))) {
    if (entry.is_regular_file()) {
      files.insert(std::filesystem::relative(entry.path(), folder.path("two")).string());
    }
  }
  EXPECT_EQ(files, (std::set<std::string>{"a/flows.csv", "a/links.csv", "b/flows.csv",
                                          "b/links.csv", "summary.json"}));
}

TEST(Results, WhereNothingCanBeWrittenItIsSaid) {
  Folder folder;
  folder.write("file", "");
  auto scenario = Scenario::parse("[topology]\n[traffic]\n", "s.toml", "", {});
  const auto written = write_results(folder.path("file/results"), *scenario, {Outcome{}});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("file/results"), std::string::npos);
  EXPECT_EQ(written.error().message.find('\n'), std::string::npos);
  std::filesystem::create_directories(folder.path("taken/flows.csv/x"));
  EXPECT_FALSE(write_results(folder.path("taken"), *scenario, {Outcome{}}));
  EXPECT_FALSE(std::filesystem::exists(folder.path("taken/flows.csv.part"))) << "nothing is left";
}

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
  const Outcome locked = outcome_of(ring, "", one_lane);
  EXPECT_EQ(locked.finished, 0u);
  EXPECT_EQ(locked.dropped, 0u);
  std::vector<std::string> later = one_lane;
  later.back() = "stop_at = \"40ms\"";
  EXPECT_EQ(outcome_of(ring, "", later).packet_hops, locked.packet_hops) << "nothing moves";

  const Outcome free = outcome_of(ring);
  EXPECT_EQ(free.finished, 8u);
  EXPECT_EQ(free.retransmitted, 0u);
  // Three flows of 1 MB share each link: 240 us.
  EXPECT_GT(free.end, Time::microseconds(240));
  EXPECT_LT(free.end, Time::microseconds(400));
}

TEST(Run, TorusAndDragonflyFinishUnderLoadOnTwoLanes) {
  for (const char* topology : {"kind = \"torus\"\nsize = [4, 5]\n", "kind = \"dragonfly\"\n"}) {
    const std::string text = std::string("[topology]\n") + topology +
                             "link_rate = \"100Gbps\"\n[fabric]\nkind = \"infiniband\"\n"
                             "credits.lane_buffer = \"9KB\"\n[host]\nservice_levels = 2\n"
                             "[routing]\nlmc = 1\n"
                             "[traffic]\npattern = \"all-to-all\"\nrounds = \"at-once\"\n"
                             "bytes = \"20KB\"\n";
    const Outcome outcome = outcome_of(text);
    EXPECT_EQ(outcome.finished, outcome.flows.size()) << topology;
    EXPECT_EQ(outcome.retransmitted, 0u) << topology;
    EXPECT_EQ(outcome.unmapped, 0u) << topology;
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
  const Outcome at_switch = outcome_of(text, folder.path());
  EXPECT_EQ(at_switch.finished, 3u);
  EXPECT_EQ(at_switch.failed, 1u);
  EXPECT_EQ(at_switch.flows[3].status, verbs::CompletionStatus::retry_exceeded_error);
  EXPECT_EQ(at_switch.pkey_dropped, 9u) << "three packets, three times";
  EXPECT_EQ(at_switch.pkey_violations, 0u);
  EXPECT_EQ(at_switch.dropped, 0u);
  const Outcome at_host =
      outcome_of(text, folder.path(), {"fabric.partition_enforcement = \"in\""});
  EXPECT_EQ(at_host.failed, 1u);
  EXPECT_EQ(at_host.pkey_dropped, 0u) << "where it comes in it is of the host's partition";
  EXPECT_EQ(at_host.pkey_violations, 9u);
}

// Switches know partitions, but only hosts know which members are limited.
TEST(Run, LimitedMembersDoNotTalkToEachOther) {
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,100,0\n0,2,100,0\n");
  const Outcome outcome = outcome_of(R"([topology]
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
  EXPECT_EQ(outcome.finished, 1u);
  EXPECT_EQ(outcome.failed, 1u);
  EXPECT_TRUE(outcome.flows[0].end.is_never());
  EXPECT_EQ(outcome.pkey_dropped, 0u);
  EXPECT_EQ(outcome.pkey_violations, 1u);
}

// An incast of six runs beside a pair with a path of its own, whose traffic repeats.
TEST(Run, TrafficWithNamesHasResultsOfItsOwn) {
  const Outcome outcome = outcome_of(R"([topology]
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
  const KindOutcome &incast = outcome.kinds[0], &pair = outcome.kinds[1];
  EXPECT_EQ(incast.name, "incast");
  EXPECT_EQ(incast.flows, 6u);
  EXPECT_EQ(pair.flows, 6u);
  EXPECT_EQ(pair.finished, 6u);
  EXPECT_EQ(outcome.finished, 12u);
  EXPECT_EQ(pair.slowdown.max, 1.0) << "nothing is in its way";
  EXPECT_GT(incast.slowdown.median, 4);
  EXPECT_EQ(outcome.flows[0].flow.destination, 8u) << "the seventh of those who take part";
  EXPECT_EQ(outcome.flows[6].flow.source, 6u);
  EXPECT_EQ(outcome.flows[8].start, Time::microseconds(51));
  EXPECT_EQ(outcome.flows[10].start, Time::microseconds(101));
  EXPECT_EQ(outcome.end, std::max(incast.end, pair.end));
  EXPECT_GT(incast.goodput_bits_per_second, 85e9);
  const std::string table = summary_table({outcome});
  EXPECT_NE(table.find("\n  incast "), std::string::npos) << table;
  EXPECT_NE(flows_csv(outcome).find(",latency_ns,traffic\n"), std::string::npos);
  EXPECT_NE(flows_csv(outcome).find("\n11,7,6,4000,"), std::string::npos);
  EXPECT_NE(flows_csv(outcome).find(",pair\n"), std::string::npos);
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
  const Outcome held_back = outcome_of(text);
  const Outcome told = outcome_of(text, "", {"congestion.control = \"endpoint\""});
  EXPECT_EQ(held_back.notices, 0u);
  EXPECT_GT(held_back.kinds[1].slowdown.median, 3);
  EXPECT_GT(told.notices, 4u);
  EXPECT_LT(told.kinds[1].slowdown.p99, 1.5);
  EXPECT_GT(told.kinds[0].goodput_bits_per_second, 85e9);
  const std::string loose = "congestion = { control = \"endpoint\", queue = \"1GB\" }";
  EXPECT_EQ(outcome_of(text, "", {loose}).notices, 0u) << "a queue that long there is not";
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
  const Outcome locked = outcome_of(locked_ring, "", {});
  EXPECT_EQ(locked.finished, 0u);
  EXPECT_EQ(locked.discarded, 0u);
  const Outcome freed = outcome_of(
      locked_ring, "", {"fabric = { kind = \"infiniband\", head_of_queue_lifetime = \"100us\" }"});
  EXPECT_EQ(freed.finished, 5u);
  EXPECT_GT(freed.discarded, 0u);
  EXPECT_GE(freed.retransmitted, freed.discarded);
  EXPECT_EQ(freed.dropped, 0u);
  // Only ports to hosts have a lifetime here, and those never lock up.
  const Outcome leaves =
      outcome_of(locked_ring, "",
                 {"fabric = { kind = \"infiniband\", leaf_head_of_queue_lifetime = \"100us\" }"});
  EXPECT_EQ(leaves.finished, 0u);
  EXPECT_EQ(leaves.discarded, 0u);
}

}  // namespace
}  // namespace tulle::scenario
