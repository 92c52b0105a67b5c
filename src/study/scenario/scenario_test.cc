// Tests scenarios as people write them, and the errors for wrong ones: one line that names the
// place.

#include "study/scenario/scenario.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/folder_test.h"
#include "study/scenario/build.h"
#include "study/scenario/text_test.h"

namespace tulle::scenario {
namespace {

TEST(Scenario, AShortOneIsEnough) {
  const scenario::Setup setup = built(four_hosts);
  EXPECT_EQ(setup.topology.hosts, 4u);
  EXPECT_EQ(setup.flows.size(), 4u);
  EXPECT_EQ(setup.network.link_layer, sim::LinkLayer::ethernet);
  EXPECT_EQ(setup.network.switches.flow_control, port::FlowControl::pfc);
  EXPECT_EQ(setup.network.host.congestion.packets_per_ack_request, 1u);
  EXPECT_EQ(setup.stop_at, last_moment);
}

TEST(Scenario, OnlyLongTrainingStepsChooseTrainsThemselves) {
  scenario::Setup setup;
  setup.train_is_automatic = setup.may_be_trains = true;
  setup.flows = {{0, 1, 4'096ull << 27}};
  EXPECT_EQ(automatic_train(setup), 1u) << "2^27 packets are no more than 2^27 frames";
  setup.flows.push_back({0, 1, 1});
  EXPECT_EQ(automatic_train(setup), 2u);
  setup.flows = {{0, 1, 4'096ull << 33}};
  EXPECT_EQ(automatic_train(setup), train_packets_max);
  setup.train_is_automatic = false;
  EXPECT_EQ(automatic_train(setup), 1u) << "the scenario has said it";
  setup.train_is_automatic = true;
  setup.may_be_trains = false;
  EXPECT_EQ(automatic_train(setup), 1u) << "other traffic goes in packets";
}

TEST(Scenario, AModelThatWouldTakeHoursIsRefused) {
  scenario::Setup setup;
  setup.train_is_automatic = setup.may_be_trains = true;
  setup.flows.assign(15, {0, 1, 4'096ull << 30});
  EXPECT_TRUE(check_length(setup));
  setup.flows.push_back({0, 1, 1});
  auto refused = check_length(setup);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("16106127361 packets"), std::string::npos)
      << refused.error().message;
  setup.may_be_trains = false;
  EXPECT_TRUE(check_length(setup)) << "what the command line asks for is the user's own choice";
}

TEST(Scenario, MachinesAreForLiveFabricsAlone) {
  const std::string machines =
      "[[machine]]\nname = \"alpha\"\naddress = \"192.0.2.1\"\n"
      "[[machine]]\nname = \"beta\"\naddress = \"192.0.2.2:7\"\nnodes = [\"h1\"]\n";
  EXPECT_EQ(built(std::string(four_hosts) + machines).topology.hosts, 4u);
  const std::string first = std::string(four_hosts) + "[[machine]]\n";
  EXPECT_NE(wrong(first + "address = \"192.0.2.1\"").find("machine.name: is needed"),
            std::string::npos);
  EXPECT_NE(wrong(first + "name = \"alpha\"").find("machine.address: is needed"),
            std::string::npos);
  EXPECT_NE(wrong(std::string(four_hosts) + machines +
                  "[[machine]]\nname = \"beta\"\naddress = \"192.0.2.3\"")
                .find("machine.name: \"beta\" is another machine's name already"),
            std::string::npos);
}

TEST(Scenario, ATrainIsOneLongFrame) {
  const scenario::Setup setup = built(four_hosts, {"host.train = 15"});
  EXPECT_EQ(setup.network.host.train_packets, 15u);
  EXPECT_EQ(setup.network.host.mtu_bytes, 61'440u);
  EXPECT_EQ(setup.network.host.congestion.packets_per_ack_request, 4u);
  const std::vector<std::string> own = {"host.train = 15", "host.packets_per_ack = 1"};
  EXPECT_EQ(built(four_hosts, own).network.host.congestion.packets_per_ack_request, 1u);
  EXPECT_TRUE(contains(wrong(four_hosts, {"host.train = 16"}), "train"));
}

TEST(Scenario, TextsAreKept) {
  auto scenario =
      Scenario::parse(std::string("description = \"D\"\n") + four_hosts, "s.toml", "", {});
  ASSERT_TRUE(scenario);
  EXPECT_EQ(scenario->title(), "Four");
  EXPECT_EQ(scenario->description(), "D");
  EXPECT_FALSE(contains(scenario->settings(0), "title =")) << "they are no settings";
  EXPECT_FALSE(contains(scenario->settings(0), "description ="));
  ASSERT_EQ(scenario->variants().size(), 1u);
  EXPECT_EQ(scenario->variants()[0].name, "");
}

TEST(Scenario, VariantsChangeKeysAndKeepTheRest) {
  const std::string text = std::string(four_hosts) + R"(start = "3us"
[fabric.pfc]
xoff = "50KB"
[[variant]]
name = "a"
title = "A"
fabric.pfc.alpha = 0.5
traffic.bytes = "20KB"
[[variant]]
name = "b"
topology.hosts = 8
[variant.fabric]
kind = "infiniband"
pfc = {}
)";
  auto scenario = Scenario::parse(text, "s.toml", "", {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  ASSERT_EQ(scenario->variants().size(), 2u);
  EXPECT_EQ(scenario->variants()[0].title, "A");
  const scenario::Setup a = built(text, {}, 0);
  EXPECT_EQ(a.variant, "a");
  EXPECT_EQ(a.network.switches.xoff_bytes, 50'000u) << "beside what the variant changes";
  EXPECT_EQ(a.network.switches.alpha, 0.5);
  EXPECT_EQ(a.flows[0].bytes, 20'000u);
  EXPECT_EQ(a.flows[0].start, Time::microseconds(3));
  EXPECT_EQ(a.topology.hosts, 4u) << "of another variant nothing stays";
}

TEST(Scenario, SetComesLastAndOverVariants) {
  const std::string text =
      std::string(four_hosts) + "[[variant]]\nname = \"a\"\ntraffic.bytes = \"20KB\"\n";
  const scenario::Setup setup =
      built(text, {"traffic.bytes = \"30KB\"", "seed = 5", "host.mtu = 1024",
                   "fabric = { kind = \"infiniband\" }", "traffic.bytes = \"40KB\""});
  EXPECT_EQ(setup.flows[0].bytes, 40'000u) << "of two the later";
  EXPECT_EQ(setup.network.seed, 5u);
  EXPECT_EQ(setup.network.host.mtu_bytes, 1'024u);
  EXPECT_EQ(setup.network.link_layer, sim::LinkLayer::infiniband);
}

TEST(Scenario, RecoveryFromLosses) {
  const auto recovery = [](const std::vector<std::string>& set) {
    return built(four_hosts, set).network.host.recovery;
  };
  EXPECT_EQ(recovery({}).kind, transport::Recovery::go_back_n);
  EXPECT_EQ(recovery({}).window_packets, 0u);
  EXPECT_EQ(recovery({"host.in_flight = 9"}).window_packets, 9u);
  EXPECT_EQ(recovery({"host.recovery = \"go-back-0\""}).kind, transport::Recovery::go_back_0);
  const std::string selective = "host.recovery = \"selective-repeat\"";
  // Out and back over a switch at 40 Gb/s with 0.5 us per link takes 2.48 us, or 11.2 packets of
  // 221 ns.
  EXPECT_EQ(recovery({selective, "host.mtu = 1024", "topology.link_rate = \"40Gbps\"",
                      "topology.link_delay = \"500ns\""})
                .window_packets,
            12u);
  // Six links of a fat tree instead of two.
  const std::string tree = "[topology]\nkind = \"fat-tree\"\nk = 4\n[traffic]\n";
  const auto far = built(tree, {selective}).network.host.recovery.window_packets;
  const std::string star = "[topology]\nhosts = 16\n[traffic]\n";
  EXPECT_NEAR(far, 3 * built(star, {selective}).network.host.recovery.window_packets, 2);
  EXPECT_NE(wrong(four_hosts, {selective, "host.in_flight = 0"}), "");
  EXPECT_NE(wrong(four_hosts, {selective, "host.timeout_low = \"0ns\""}), "");
  EXPECT_NE(wrong(four_hosts, {"host.recovery = \"sack\""}), "");
}

TEST(Scenario, ATableMayTakeTheNameOfAnother) {
  EXPECT_EQ(wrong(four_hosts, {"fabric = 3"}), "--set: fabric: must be a table: [fabric]");
  EXPECT_EQ(wrong(four_hosts, {"topology.hosts = { x = 1 }"}),
            "--set: topology.hosts: must be a whole number from 0 to 1048576");
}

TEST(ScenarioErrors, KeysAndValues) {
  EXPECT_TRUE(contains(wrong(std::string(four_hosts) + "sise = \"1KB\"\n"),
                       "s.toml:9: traffic.sise: is not a known key"));
  EXPECT_TRUE(contains(wrong(std::string("sede = 3\n") + four_hosts),
                       "s.toml:1: sede: is not a known key"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"topology.link_rate = \"100GB\""}),
                       "--set: topology.link_rate: must be a rate"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"topology.link_delay = 5"}),
                       "--set: topology.link_delay: must be a time"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"seed = -1"}), "--set: seed: -1 is out of range"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"title = 3"}), "title: must be text"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"traffic.pattern = \"incest\""}),
                       "--set: traffic.pattern: must be \"permutation\", \"shift\""));
  EXPECT_TRUE(contains(wrong(four_hosts, {"host.mtu = 1000"}), "host.mtu: must be 256, 512, 1024"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"topology.hosts = 0"}), "topology.kind: single switch"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"topology.hosts = 1"}), "traffic.pattern: permutation"));
}

// IBTA 4.1.3: there are 0xBFFF unicast LIDs.
TEST(ScenarioErrors, AnInfinibandSubnetHasSoManyLids) {
  const std::vector<std::string> infiniband = {"fabric = { kind = \"infiniband\" }"};
  // 8 leaves and a spine.
  const auto hosts_per_leaf = [](int number) {
    return "[topology]\nkind = \"leaf-spine\"\nleaves = 8\nspines = 1\nhosts_per_leaf = " +
           std::to_string(number) + "\n[traffic]\npattern = \"incast\"\nsenders = 1\n";
  };
  EXPECT_EQ(wrong(hosts_per_leaf(6'142), infiniband), "");
  EXPECT_EQ(wrong(hosts_per_leaf(6'143), infiniband),
            "s.toml: fabric.kind: an InfiniBand subnet has LIDs 1 to 49151 (IBTA 4.1.3), but 49144 "
            "hosts of 1 each and 9 switches need them up to 49153");
  EXPECT_EQ(wrong(hosts_per_leaf(6'143)), "") << "Ethernet has no such limit";
  // With 128 LIDs each, the last of 376 hosts has 48,128 to 48,255; of 384, 49,152 to 49,279.
  const std::vector<std::string> most = {infiniband[0], "routing.lmc = 7"};
  EXPECT_EQ(wrong(hosts_per_leaf(47), most), "");
  EXPECT_EQ(wrong(hosts_per_leaf(48), most),
            "--set: routing.lmc: an InfiniBand subnet has LIDs 1 to 49151 (IBTA 4.1.3), but 384 "
            "hosts of 128 each and 9 switches need them up to 49288");
}

TEST(ScenarioErrors, SeveralPathsAHostAreInfinibandsAndKept) {
  const std::string infiniband = "fabric.kind = \"infiniband\"";
  EXPECT_EQ(wrong(four_hosts, {"routing.lmc = 1"}),
            "--set: routing.lmc: is InfiniBand's; RoCE v2 spreads flows by their UDP source ports");
  EXPECT_EQ(wrong(four_hosts, {infiniband, "routing.lmc = 1", "fabric.path = \"adaptive\""}),
            "--set: routing.lmc: has each queue pair keep a path, which needs path = \"flow\"");
  EXPECT_EQ(wrong(four_hosts, {infiniband, "routing.lmc = 8"}),
            "--set: routing.lmc: 8 is out of range, must be a whole number from 0 to 7");
  EXPECT_EQ(wrong(std::string(four_hosts) + "[routing]\nlmc = 2\n"),
            "s.toml:10: routing.lmc: is InfiniBand's; RoCE v2 spreads flows by their UDP source "
            "ports");
  EXPECT_EQ(built(four_hosts, {infiniband, "routing.lmc = 3"}).player.paths, 8u);
}

// The flows have 40 kB in all, and each byte is in memory twice.
TEST(ScenarioErrors, BytesTakeMemory) {
  const std::string bytes = "traffic.payload = \"bytes\"";
  EXPECT_EQ(wrong(four_hosts, {bytes, "traffic.payload_memory = \"80KB\""}), "");
  EXPECT_EQ(
      wrong(four_hosts, {bytes, "traffic.payload_memory = \"79KB\""}),
      "--set: traffic.payload: \"bytes\" needs all flows' in memory, twice, which is more than "
      "payload_memory, 79 KB; take \"ghost\", or allow more");
  EXPECT_EQ(wrong(four_hosts, {"traffic.payload_memory = \"0B\""}), "") << "ghosts take none";
  EXPECT_TRUE(
      contains(wrong(four_hosts, {bytes, "traffic.bytes = \"1GB\""}), "--set: traffic.payload: "));
  EXPECT_EQ(wrong(std::string(four_hosts) + "payload = \"zeros\"\n"),
            "s.toml:9: traffic.payload: must be \"ghost\" or \"bytes\"");
  EXPECT_TRUE(contains(wrong(four_hosts, {"traffic.payload_memory = 3"}),
                       "--set: traffic.payload_memory: must be "));
  EXPECT_FALSE(built(four_hosts).network.carries_bytes);
  EXPECT_FALSE(built(four_hosts).player.carries_bytes);
}

TEST(ScenarioErrors, WhatIsNoToml) {
  EXPECT_TRUE(contains(wrong("title = \n[topology]"), "s.toml:1: "));
  EXPECT_TRUE(contains(wrong("a = 1\na = 2"), "s.toml:2: "));
  EXPECT_TRUE(contains(wrong(four_hosts, {"traffic.bytes"}), "--set \"traffic.bytes\": write "));
  EXPECT_TRUE(contains(wrong(four_hosts, {"traffic.bytes = [1MB"}), "--set traffic.bytes: "));
  EXPECT_TRUE(contains(wrong(std::string("\xFF\xFE\0x", 4)), "s.toml:1: "));
}

TEST(ScenarioErrors, WhatIsNeededIsNamed) {
  EXPECT_TRUE(contains(wrong(""), "s.toml: topology: is required"));
  EXPECT_TRUE(contains(wrong("[topology]\nhosts = 2\n"), "s.toml: traffic: is required"));
  EXPECT_TRUE(contains(wrong("[topology]\nkind = \"file\"\n[traffic]\n"), "file is needed"));
  EXPECT_TRUE(contains(wrong(std::string(four_hosts) + "[[variant]]\nseed = 3\n"),
                       "s.toml:9: variant.name: is needed"));
}

TEST(ScenarioErrors, Variants) {
  const std::string text = four_hosts;
  EXPECT_EQ(wrong(text + "[variant]\nname = \"a\"\n"),
            "s.toml:9: variant: must be a list of tables: [[variant]]");
  EXPECT_EQ(wrong("variant = 3\n" + text),
            "s.toml:1: variant: must be a list of tables: [[variant]]");
  EXPECT_EQ(wrong("variant = [1, 2]\n" + text),
            "s.toml:1: variant: must be a list of tables: [[variant]]");
  EXPECT_TRUE(contains(wrong(text + "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a\"\n"),
                       "s.toml:11: variant.name: \"a\" is there twice"));
  std::string many = text;
  for (int i = 0; i < 100'000; ++i) many += fmt::format("[[variant]]\nname = \"{}\"\n", i);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(Scenario::parse(many, "s.toml", "", {}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  for (const char* name : {"../a", "a/b", "..", "."}) {
    EXPECT_TRUE(contains(wrong(text + "[[variant]]\nname = \"" + name + "\"\n"),
                         "s.toml:9: variant.name: names a folder"));
  }
  EXPECT_TRUE(contains(wrong(text + "[[variant]]\nname = \"a\"\ntraffic.bites = 3\n"),
                       "s.toml:11: traffic.bites: is not a known key"));
}

TEST(ScenarioErrors, FilesThatAreNotThereOrWrong) {
  Folder folder;
  const std::string flows =
      "[topology]\nhosts = 4\n[traffic]\npattern = \"file\"\nfile = \"f.csv\"\n";
  EXPECT_TRUE(contains(wrong(flows, {}, folder.path()), "there is no file \"f.csv\" in "));
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n2,9,1000,0\n");
  const std::string said = wrong(flows, {}, folder.path());
  EXPECT_TRUE(contains(said, "f.csv:3: there is no host 9; hosts are 0 to 3")) << said;
  EXPECT_TRUE(contains(said, "s.toml:4: traffic.pattern: ")) << said;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n");
  EXPECT_EQ(wrong(flows, {}, folder.path()), "");
  EXPECT_TRUE(contains(wrong(flows, {"traffic.and_file = \"g.csv\""}, folder.path()),
                       "traffic.and_file: "));

  const std::string links = "[topology]\nkind = \"file\"\nfile = \"l.csv\"\n[traffic]\n";
  EXPECT_TRUE(contains(wrong(links, {}, folder.path()), "there is no file \"l.csv\" in "));
  folder.write("l.csv", "a,b,gbps,delay_ns\n0,2,100,1\n1,2,fast,1\n");
  EXPECT_TRUE(contains(wrong(links, {}, folder.path()), "l.csv:3: "));

  EXPECT_TRUE(contains(wrong(four_hosts, {"host.profile = \"none\""}, folder.path()),
                       "host.profile: there is no profile \"none\" in "));
  folder.write("profiles/hosts/mine.toml", "[send]\ndoorbel = \"1ns\"\n");
  EXPECT_TRUE(contains(wrong(four_hosts, {"host.profile = \"mine\""}, folder.path()),
                       "profiles/hosts/mine.toml:2: send.doorbel: is not a known key"));
  folder.write("profiles/hosts/mine.toml", "[send\n");
  EXPECT_TRUE(contains(wrong(four_hosts, {"host.profile = \"mine\""}, folder.path()),
                       "profiles/hosts/mine.toml:1: "));
  EXPECT_TRUE(contains(Scenario::read(folder.path("none.toml"), {}).error().message,
                       "none.toml: No such file or directory"));
  EXPECT_TRUE(contains(Scenario::read(folder.path(), {}).error().message, "is a folder"));
}

TEST(Scenario, AProfileGivesDelaysThatTheScenarioMayChange) {
  Folder folder;
  folder.write(
      "profiles/hosts/mine.toml",
      "title = \"M\"\n[send]\ndoorbell = \"1ns\"\nrequest_fetch = \"2ns\"\npayload_fetch = "
      "\"3ns\"\nadapter = \"4ns\"\n[receive]\nadapter = \"5ns\"\n[completion]\npayload_write = "
      "\"6ns\"\ncompletion_write = \"7ns\"\npoll = \"8ns\"\n");
  const scenario::Setup setup = built(
      four_hosts, {"host.profile = \"mine\"", "host.receive_delay = \"50ns\""}, 0, folder.path());
  EXPECT_EQ(setup.player.post_delay, Time::nanoseconds(1 + 2 + 3));
  EXPECT_EQ(setup.network.host.send_delay, Time::nanoseconds(4));
  EXPECT_EQ(setup.network.host.receive_delay, Time::nanoseconds(50));
  EXPECT_EQ(setup.player.completion_delay, Time::nanoseconds(6 + 7 + 8));
}

TEST(ScenarioErrors, ALosslessRouteInACircleIsNamed) {
  const std::string torus =
      "[topology]\nkind = \"torus\"\nsize = [5]\n[traffic]\n[routing]\nkind = \"shortest\"\n";
  const std::string said = wrong(torus);
  EXPECT_TRUE(contains(said, "s.toml:6: routing.kind: these routes can lock up")) << said;
  for (const char* name : {"switch (0)", "switch (1)", "switch (2)", "switch (3)", "switch (4)"}) {
    EXPECT_TRUE(contains(said, name)) << said;
  }
  EXPECT_EQ(wrong(torus, {"routing.allow_deadlock = true"}), "");
  EXPECT_EQ(wrong(torus, {"routing.kind = \"up-down\""}), "");
  EXPECT_EQ(wrong(torus, {"fabric.flow_control = \"none\""}), "") << "nobody waits for anybody";
  EXPECT_TRUE(contains(wrong(torus, {"fabric.kind = \"infiniband\""}), "can lock up"));
  EXPECT_TRUE(contains(wrong(torus, {"routing.kind = \"fat-tree\""}), "routing.kind: "));
}

// Lanes are InfiniBand's, where switches may change a packet's lane. RoCE's priorities stay
// unchanged.
TEST(ScenarioErrors, TorusAndDragonflyNeedLanes) {
  const std::string torus = "[topology]\nkind = \"torus\"\nsize = [5, 4]\n[traffic]\n";
  const std::string dragonfly = "[topology]\nkind = \"dragonfly\"\n[traffic]\n";
  const std::string infiniband = "fabric = { kind = \"infiniband\" ";
  for (const std::string& text : {torus, dragonfly}) {
    EXPECT_TRUE(contains(wrong(text), "can lock up"));
    EXPECT_TRUE(
        contains(wrong(text, {"routing.lanes = true"}), "routing.lanes: is not a known key"));
    EXPECT_TRUE(built(text, {infiniband + "}"}).path_lanes.has_value());
    EXPECT_TRUE(contains(wrong(text, {infiniband + "}", "routing.lanes = false"}), "can lock up"));
    EXPECT_FALSE(built(text, {infiniband + "}", "routing.kind = \"up-down\""}).path_lanes);
    EXPECT_TRUE(contains(wrong(text, {infiniband + ", sl_to_vl = [1] }"}),
                         "routing.lanes: the lanes of this topology prevent deadlock"));
    EXPECT_TRUE(contains(wrong(text, {infiniband + ", arbitration.low = \"\" }"}),
                         "routing.lanes: uses lanes 0 to 1, of which some have no weight"));
  }
  EXPECT_EQ(wrong(torus, {infiniband + "}", "host.service_levels = 2"}), "");
  EXPECT_TRUE(
      contains(wrong(torus, {infiniband + "}", "host.service_levels = 3"}),
               "routing.lanes: host.service_levels = 3 are too many for this topology, where "
               "each takes two lanes: at most 2"));
  EXPECT_EQ(wrong(dragonfly, {infiniband + "}", "host.service_levels = 4"}), "");
  EXPECT_TRUE(
      contains(wrong(dragonfly, {infiniband + "}", "host.service_levels = 5"}), "at most 4"));
  // On a torus, the service level says which way a packet will go. A switch that chooses paths
  // would not follow it.
  EXPECT_TRUE(contains(wrong(torus, {infiniband + ", path = \"adaptive\" }"}), "can lock up"));
  EXPECT_EQ(wrong(dragonfly, {infiniband + ", path = \"adaptive\" }"}), "");
}

TEST(ScenarioErrors, AThirdGroupNeedsADragonflyAndPathsByPacket) {
  const std::string text =
      "[topology]\nkind = \"dragonfly\"\n[traffic]\n[fabric]\nkind = \"infiniband\"\npath = "
      "\"adaptive\"\n[routing]\nnon_minimal = \"ugal\"\n";
  EXPECT_EQ(wrong(text), "");
  const auto setup = built(text);
  EXPECT_EQ(setup.path_lanes->lanes_per_qos_level(), 3u);
  EXPECT_EQ(setup.network.non_minimal.bias_bytes, 30u * sim::longest_frame_bytes(setup.network));
  EXPECT_TRUE(contains(wrong(text, {"host.service_levels = 3"}), "takes three lanes: at most 2"));
  EXPECT_TRUE(contains(wrong(text, {"routing.lanes = false"}), "can lock up"));
  EXPECT_TRUE(contains(wrong(text, {"fabric.path = \"packet\""}),
                       "s.toml:8: routing.non_minimal: chooses a path for each packet"));
  EXPECT_TRUE(contains(wrong(text, {"routing.kind = \"up-down\""}), "needs a dragonfly"));
  EXPECT_TRUE(contains(wrong(text, {"topology = { kind = \"torus\" }"}), "needs a dragonfly"));
  EXPECT_TRUE(contains(wrong(text, {"topology = { kind = \"dragonfly\", routers_per_group = 16, "
                                    "global_links = 16, hosts_per_router = 1 }"}),
                       "is for up to 255 groups, and there are 257"));
  EXPECT_TRUE(
      contains(wrong(text, {"fabric = { kind = \"roce\", path = \"adaptive\" }"}), "can lock up"));
  EXPECT_EQ(
      wrong(text, {"fabric = { kind = \"roce\", flow_control = \"none\", path = \"adaptive\" }"}),
      "");
  EXPECT_TRUE(
      contains(wrong(text, {"fault = [{ kind = \"link-down\", link = [\"host 0\", \"group 0 "
                            "router 0\"] }]"}),
               "no way around with routing.non_minimal"));
}

TEST(ScenarioErrors, TrafficBesideOtherTrafficHasANameOfItsOwn) {
  const std::string text = "[topology]\nhosts = 6\n[traffic]\nname = \"a\"\n[[traffic.and]]\n";
  EXPECT_TRUE(contains(wrong(text), "traffic.and.name: is needed"));
  EXPECT_TRUE(contains(wrong(text + "name = \"a\"\n"), "is needed, and another than the others'"));
  EXPECT_EQ(wrong(text + "name = \"b\"\n"), "");
  EXPECT_TRUE(contains(wrong(text + "name = \"b\"\nhosts = \"6\"\n"), "must be hosts such as"));
  EXPECT_TRUE(contains(wrong(text + "name = \"b\"\nhosts = \"3\"\n"), "must be two or more"));
  EXPECT_TRUE(
      contains(wrong(text + "name = \"b\"\nhosts = \"2-4, 0, 3\"\n"), "host 3 is there twice"));
  EXPECT_TRUE(contains(wrong(text + "name = \"b\"\nnotify = true\n"), "is not a known key"));
}

TEST(Scenario, ChoosingAmongPathsNeedsRoutesWithSeveral) {
  const std::string tree =
      "[topology]\nkind = \"leaf-spine\"\n[traffic]\n[fabric]\nkind = \"infiniband\"\n";
  EXPECT_EQ(built(tree).routing.kind, fabric::RoutingKind::fat_tree);
  EXPECT_EQ(built(tree, {"fabric.path = \"adaptive\""}).routing.kind, fabric::RoutingKind::up_down);
  EXPECT_TRUE(contains(wrong(tree, {"fabric.path = \"packet\"", "routing.kind = \"fat-tree\""}),
                       "--set: routing.kind: \"fat-tree\" has one way to each host"));
}

TEST(ScenarioErrors, RoceV1HasNoIp) {
  const std::string v1 = "fabric.kind = \"roce-v1\"";
  EXPECT_EQ(wrong(four_hosts, {v1}), "");
  EXPECT_TRUE(contains(wrong(four_hosts, {v1, "fabric.ecn = {}"}),
                       "fabric.ecn: marks IP headers, which RoCE v1 has not"));
  EXPECT_TRUE(contains(wrong(four_hosts, {v1, "congestion.control = \"dcqcn\""}),
                       "congestion.control: \"dcqcn\" needs marks in IP headers"));
  for (const std::string transport : {"tcp", "iwarp", "srd"}) {
    EXPECT_TRUE(contains(wrong(four_hosts, {v1, "host.transport = \"" + transport + "\""}),
                         "host.transport: \"" + transport + "\""));
  }
}

TEST(ScenarioErrors, Buffers) {
  EXPECT_TRUE(contains(wrong(four_hosts, {"fabric.pfc.headroom = \"30KB\""}),
                       "--set: fabric.pfc.headroom: 30 KB is too small for these links: "));
  EXPECT_TRUE(
      contains(wrong(four_hosts, {"fabric.pfc.xoff = \"4KB\""}), "fabric.pfc.xoff: must hold"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"fabric.pfc.xoff = \"8KB\""}), "xon_gap: must be less"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"fabric.ecn = { kmin = \"9KB\", kmax = \"8KB\" }"}),
                       "fabric.ecn.kmax: must not be less than kmin"));
  EXPECT_TRUE(
      contains(wrong(four_hosts, {"fabric.pfc.xoff = \"5GB\""}), "must be less than 4 GiB"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"fabric.pfc.quanta = 2"}),
                       "fabric.pfc.quanta: 2 is out of range, must be a whole number from 3"));
  EXPECT_EQ(wrong(four_hosts, {"fabric.pfc.quanta = 3"}), "");
  const std::string lane = "fabric = { kind = \"infiniband\", credits.lane_buffer = ";
  EXPECT_TRUE(
      contains(wrong(four_hosts, {lane + "\"8KB\" }"}), "credits.lane_buffer: must be from"));
  EXPECT_TRUE(
      contains(wrong(four_hosts, {lane + "\"131009B\" }"}), "credits.lane_buffer: must be"));
  EXPECT_EQ(wrong(four_hosts, {lane + "\"131008B\" }"}), "");
}

TEST(ScenarioErrors, Lanes) {
  const std::string lanes = "fabric = { kind = \"infiniband\", sl_to_vl = ";
  EXPECT_TRUE(contains(wrong(four_hosts, {lanes + "[0, 8] }"}),
                       "--set: fabric.sl_to_vl: must be up to 16 lanes, by service level: 0 to 7"));
  EXPECT_TRUE(contains(wrong(four_hosts, {lanes + "[-1] }"}), "fabric.sl_to_vl: must be up to 16"));
  EXPECT_TRUE(
      contains(wrong(four_hosts, {lanes + "\"0,1\" }"}), "fabric.sl_to_vl: must be a list"));
  EXPECT_TRUE(contains(wrong(four_hosts, {lanes + "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0] }"}),
                       "fabric.sl_to_vl: must be up to 16"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"fabric.sl_to_vl = [0]"}),
                       "fabric.sl_to_vl: is not a known key"));
  EXPECT_EQ(built(four_hosts, {lanes + "[1, 15] }"}).network.lanes.hosts[2], port::vl15);
}

TEST(ScenarioErrors, Shares) {
  for (const char* shares : {"[1, 1]", "[1, 1, 1, 1, 1, 1, 1, 101]", "[1, 1, 1, 1, 1, 1, 1, -1]",
                             "[1, 1, 1, 1, 1, 1, 1, 1, 1]"}) {
    const std::string said = wrong(four_hosts, {std::string("fabric.shares = ") + shares});
    EXPECT_TRUE(contains(said, "fabric.shares: must be 8 whole numbers, by class")) << said;
  }
  const auto quantum = built(four_hosts, {"fabric.shares = [3, 1, 1, 1, 1, 1, 1, 0]"})
                           .network.switches.quantum_bytes;
  EXPECT_EQ(quantum[0], 3 * quantum[1]);
  EXPECT_GE(quantum[1], 4'178u) << "a frame";
  EXPECT_EQ(quantum[7], 0u);
  EXPECT_TRUE(contains(
      wrong(four_hosts, {"fabric = { kind = \"infiniband\", shares = [1, 1, 1, 1, 1, 1, 1, 1] }"}),
      "fabric.shares: is not a known key"));
}

TEST(ScenarioErrors, Arbitration) {
  const std::string table = "fabric = { kind = \"infiniband\", arbitration.";
  for (const char* key : {"high", "low"}) {
    for (const char* text : {"8:4", "0:256", "0", "0:", ":4", "0:4,", "0:4;1:4", "0:-1", "0: 4"}) {
      const std::string said = wrong(four_hosts, {table + key + " = \"" + text + "\" }"});
      EXPECT_TRUE(contains(said, std::string("--set: fabric.arbitration.") + key +
                                     ": must be up to 64 entries LANE:WEIGHT"))
          << text << ": " << said;
    }
  }
  std::string many = "0:1";
  for (int i = 1; i < 64; ++i) many += ",1:1";
  EXPECT_EQ(wrong(four_hosts, {table + "low = \"" + many + "\" }"}), "");
  EXPECT_TRUE(contains(wrong(four_hosts, {table + "low = \"" + many + ",1:1\" }"}), "up to 64"));
  EXPECT_TRUE(contains(wrong(four_hosts, {table + "high_limit = 256 }"}),
                       "fabric.arbitration.high_limit: 256 is out of range"));
  EXPECT_TRUE(
      contains(wrong(four_hosts, {table + "high = \"0:0\" }"}),
               "arbitration.low: lane 0 of service level 0 has no weight, here nor in high"));
  EXPECT_EQ(wrong(four_hosts, {table + "high = \"\", arbitration.low = \"0:1\" }"}), "");
  EXPECT_TRUE(
      contains(wrong(four_hosts, {"fabric.arbitration = {}"}), "fabric.arbitration: is no"));
}

TEST(Scenario, PartitionsHaveHostsAsMembers) {
  const std::string text =
      std::string(four_hosts) +
      "[fabric]\nkind = \"infiniband\"\n[[partition]]\npkey = 1\nfull = \"0-1\"\n"
      "limited = \"2\"\n[[partition]]\npkey = 0x7000\nfull = \"1, 2 - 2\"\n";
  const scenario::Setup setup = built(text);
  using Table = std::vector<Pkey>;
  EXPECT_EQ(setup.network.pkeys[0], Table{Pkey{0x8001}});
  EXPECT_EQ(setup.network.pkeys[1], (Table{Pkey{0x8001}, Pkey{0xF000}}));
  EXPECT_EQ(setup.network.pkeys[2], (Table{Pkey{0x0001}, Pkey{0xF000}}));
  EXPECT_EQ(setup.network.pkeys[3], Table{default_pkey});
  EXPECT_TRUE(setup.network.enforce_inbound && setup.network.enforce_outbound);
  const scenario::Setup out = built(text, {"fabric.partition_enforcement = \"out\""});
  EXPECT_TRUE(!out.network.enforce_inbound && out.network.enforce_outbound);
}

TEST(ScenarioErrors, Partitions) {
  const std::string text = std::string(four_hosts) + "[fabric]\nkind = \"infiniband\"\n";
  const auto said = [&](const std::string& keys) { return wrong(text + "[[partition]]\n" + keys); };
  EXPECT_TRUE(contains(said("full = \"0\""), "s.toml:11: partition.pkey: is needed"));
  for (const char* pkey : {"0", "0x8000", "-1"}) {
    EXPECT_TRUE(contains(said(std::string("pkey = ") + pkey), "s.toml:12: partition.pkey: "))
        << pkey;
  }
  for (const char* hosts : {"4", "0-4", "3-2", "-1", "0,", "a", "0 1", "1-", "0-1-2"}) {
    const std::string line = said(std::string("pkey = 1\nfull = \"") + hosts + "\"");
    EXPECT_TRUE(
        contains(line, "s.toml:13: partition.full: must be hosts such as \"0-3, 8\", up to 3"))
        << hosts << ": " << line;
  }
  EXPECT_TRUE(contains(said("pkey = 1\nfull = \"0\"\nlimited = \"0\""),
                       "partition.limited: host 0 is in partition 1 already"));
  EXPECT_TRUE(contains(said("pkey = 1\nhosts = \"0\""), "partition.hosts: is not a known key"));
  EXPECT_TRUE(
      contains(wrong(four_hosts, {"partition = 1"}), "must be a list of tables: [[partition]]"));
  EXPECT_TRUE(contains(wrong(std::string(four_hosts) + "[[partition]]\npkey = 1\n"),
                       "s.toml:9: partition: needs fabric.kind = \"infiniband\""));
  EXPECT_TRUE(
      contains(wrong(text, {"fabric.partition_enforcement = \"on\""}),
               "fabric.partition_enforcement: must be \"off\", \"in\", \"out\" or \"both\""));
}

TEST(ScenarioErrors, LessHeadroomThanLinksNeedIsAskedFor) {
  EXPECT_TRUE(contains(wrong(four_hosts, {"fabric.pfc.headroom = \"20KB\""}),
                       "give it so many, or take allow_loss = true"));
  EXPECT_EQ(wrong(four_hosts, {"fabric.pfc = { headroom = \"20KB\", allow_loss = true }"}), "");
}

TEST(ScenarioErrors, Tcp) {
  const std::string tcp = "host.transport = \"tcp\"";
  const std::string off = "fabric.flow_control = \"none\"";
  const scenario::Setup setup = built(four_hosts, {tcp, off, "host.tcp.mtu = 1500"});
  EXPECT_EQ(setup.player.transport, verbs::QpType::stream);
  EXPECT_EQ(setup.network.host.tcp.mss_bytes, 1'460u);
  EXPECT_EQ(setup.network.host.stack.cores, 0u);
  EXPECT_EQ(
      built(four_hosts, {tcp, off, "host.kernel.system_call = \"1us\""}).network.host.stack.cores,
      2u);
  EXPECT_TRUE(contains(wrong(four_hosts, {tcp, "fabric.kind = \"infiniband\""}),
                       "host.transport: \"tcp\" is over IP and Ethernet"));
  EXPECT_TRUE(contains(wrong(four_hosts, {tcp, "host.tcp.control = \"dctcp\""}),
                       "needs switches that mark packets"));
  EXPECT_TRUE(contains(wrong(four_hosts, {tcp, "host.tcp.receive_buffer = \"10KB\""}),
                       "host.tcp.receive_buffer: must be from two segments"));
  EXPECT_TRUE(contains(wrong(four_hosts, {tcp, "host.tcp.timeout_min = \"0s\""}),
                       "host.tcp.timeout_min: must be more than zero"));
  EXPECT_TRUE(contains(wrong(four_hosts, {tcp, "host.tcp.mtu = 9999"}), "host.tcp.mtu"));
  EXPECT_TRUE(contains(wrong(four_hosts, {tcp, "host.tcp.mss = 1000"}), "host.tcp.mss"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"host.kernel.cores = 0"}), "host.kernel.cores"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"host.kernel.cores = 1", "congestion.control = \"dcqcn\"",
                                          "fabric.ecn = { kmin = \"9KB\" }"}),
                       "congestion.control: dcqcn is an adapter's"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"host.kernel.cores = 1", "fabric.kind = \"infiniband\""}),
                       "host.kernel: is for hosts on Ethernet"));
}

TEST(ScenarioErrors, CongestionControl) {
  EXPECT_TRUE(
      contains(wrong(four_hosts, {"congestion.control = \"dcqcn\""}), "a table [fabric.ecn]"));
  EXPECT_EQ(wrong(four_hosts, {"congestion.control = \"dcqcn\"", "fabric.ecn = {}"}), "");
  EXPECT_TRUE(contains(wrong(four_hosts, {"congestion = { control = \"none\", g = 0.5 }"}),
                       "congestion.g: is not a known key"));
  EXPECT_TRUE(contains(
      wrong(four_hosts,
            {"congestion = { control = \"dcqcn\", alpha_interval = \"0us\" }", "fabric.ecn = {}"}),
      "alpha_interval: must be more than zero"));
}

TEST(ScenarioErrors, InfinibandCongestionControl) {
  const std::string on = "fabric = { kind = \"infiniband\", congestion = {} }";
  const auto said = [&](const std::string& congestion) {
    return wrong(four_hosts, {on, "congestion = { control = \"infiniband\"" + congestion + " }"});
  };
  EXPECT_EQ(said(""), "");
  EXPECT_EQ(said(", table = \"0:0,3:16383\", ccti_limit = 1, ccti_min = 1"), "");
  EXPECT_TRUE(contains(said(", table = \"4:0\""), "congestion.table: must be up to"));
  EXPECT_TRUE(contains(said(", table = \"0:16384\""), "congestion.table: must be up to"));
  EXPECT_TRUE(contains(said(", table = \"0\""), "congestion.table: must be up to"));
  EXPECT_TRUE(contains(said(", ccti_limit = 128"), "ccti_limit: is beyond the table's last entry"));
  EXPECT_TRUE(contains(said(", ccti_limit = 3, ccti_min = 4"), "ccti_min: is beyond the limit"));
  EXPECT_TRUE(contains(said(", g = 0.5"), "congestion.g: is not a known key"));
  EXPECT_TRUE(contains(wrong(four_hosts, {on}), "congestion.control: fabric.congestion has"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"congestion.control = \"infiniband\""}),
                       "congestion.control: infiniband needs switches that mark packets"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"fabric.congestion = {}"}),
                       "fabric.congestion: is not a known key"));
  for (const char* key : {"threshold = 16", "marking_rate = 65536", "packet_size = \"16321B\"",
                          "victim_mask = \"some\""}) {
    const std::string name = std::string(key).substr(0, std::string(key).find(' '));
    EXPECT_TRUE(contains(wrong(four_hosts, {"fabric = { kind = \"infiniband\", congestion = { " +
                                            std::string(key) + " } }"}),
                         "fabric.congestion." + name))
        << key;
  }
}

TEST(Scenario, TheUsualTableOfInjectionDelays) {
  const auto table = [](const std::string& more) {
    return built(four_hosts, {"fabric = { kind = \"infiniband\", congestion = {} }",
                              "congestion = { control = \"infiniband\"" + more + " }"})
        .network.host.congestion.infiniband;
  };
  const auto usual = table("").table;
  ASSERT_EQ(usual.size(), 128u);
  EXPECT_EQ(usual[16].multiplier, 0);  // 7 * 256 / 9025 / 0.218 = 0.91
  EXPECT_EQ(usual[17].multiplier, 1);
  EXPECT_EQ(usual[95].multiplier, 32);
  EXPECT_EQ(usual[127].multiplier, 57);
  EXPECT_EQ(table(", ccti_limit = 9").limit(), 9);
  const auto given = table(", table = \"0:0,3:5\"");
  EXPECT_EQ(given.table[1], (transport::congestion::TableEntry{3, 5}));
  EXPECT_EQ(given.timer, Time::nanoseconds(1'024) * 150);
}

// Values that no fabric has lead to one line of error or are accepted. They never end the program.
TEST(ScenarioErrors, Nonsense) {
  EXPECT_TRUE(contains(wrong(four_hosts, {"traffic.bytes = \"40TB\""}), "at most 32 TiB"));
  EXPECT_TRUE(contains(wrong(four_hosts, {"traffic.bytes = \"0B\""}), "at least 1 byte"));
  const std::string lossy = "fabric.flow_control = \"none\"";
  for (const char* set : {"topology.link_delay = \"1000s\"", "topology.link_rate = \"1bps\"",
                          "topology.link_rate = \"1000Tbps\"", "fabric.switch_latency = \"1000s\"",
                          "host.send_delay = \"1000s\"", "traffic.start = \"9000000s\"",
                          "fabric.buffer = \"9KB\"", "stop_at = \"9000000s\""}) {
    EXPECT_EQ(wrong(four_hosts, {lossy, set}), "") << set;
  }
  EXPECT_EQ(wrong(four_hosts, {"fabric.pfc.alpha = 1e6"}), "");
}

TEST(ScenarioErrors, BuffersTooSmall) {
  EXPECT_TRUE(
      contains(wrong(four_hosts, {"fabric.buffer = \"1B\""}), "fabric.buffer: must hold a frame"));
  const std::string lossy = "fabric = { flow_control = \"none\", ";
  EXPECT_TRUE(contains(wrong(four_hosts, {lossy + "buffer = \"1B\" }"}),
                       "fabric.buffer: must hold a frame"));
  EXPECT_TRUE(
      contains(wrong(four_hosts, {lossy + "queue = \"1B\" }"}), "fabric.queue: must hold a frame"));
  EXPECT_TRUE(contains(wrong(four_hosts, {lossy + "alpha = 1e-6 }"}),
                       "fabric.alpha: must leave a queue room"));
}

// Values whose sums exceed the range of a Time are refused.
TEST(ScenarioErrors, BeyondTime) {
  for (const char* key : {"topology.link_delay", "fabric.switch_latency", "fabric.fec_delay",
                          "host.post_delay", "host.send_delay", "host.completion_delay"}) {
    EXPECT_TRUE(contains(wrong(four_hosts, {std::string(key) + " = \"1000.1s\""}),
                         std::string(key) + ": must be at most 1000 s"));
  }
  for (const char* key : {"traffic.start", "traffic.jitter", "stop_at"}) {
    EXPECT_TRUE(contains(wrong(four_hosts, {std::string(key) + " = \"9000001s\""}),
                         std::string(key) + ": must be at most 9000000 s"));
  }
  EXPECT_TRUE(contains(wrong(four_hosts, {"topology.link_rate = \"1001Tbps\""}),
                       "topology.link_rate: must be at most 1000 Tbps"));
  // PFC's headroom would not suffice, and a fabric that is called lossless would lose frames.
  EXPECT_TRUE(contains(wrong(four_hosts, {"topology.link_delay = \"10s\""}),
                       "fabric.pfc.headroom: these links are so long and fast"));
  Folder folder;
  folder.write("f.csv", "src,dst,bytes,start_ns\n0,1,1000,9223372036854775\n");
  EXPECT_TRUE(contains(
      wrong("[topology]\n[traffic]\npattern = \"file\"\nfile = \"f.csv\"\n", {}, folder.path()),
      "traffic.start: a flow begins after 9000000 s, the end of virtual time"));
}

TEST(ScenarioErrors, Sizes) {
  const std::string torus = "[topology]\nkind = \"torus\"\nsize = SIZE\n[traffic]\n";
  for (const char* size : {"[0, 1]", "[-4, 9999999999]", "[2, 2, 2, 2]", "[1]"}) {
    std::string text = torus;
    text.replace(text.find("SIZE"), 4, size);
    EXPECT_NE(wrong(text), "") << size;
  }
}

TEST(Scenario, TheHostsRateCountsWhateverLinkComesFirst) {
  Folder folder;
  folder.write("l.csv", "a,b,gbps,delay_ns\n2,3,400,10\n0,2,100,10\n1,3,100,10\n");
  const scenario::Setup setup =
      built("[topology]\nkind = \"file\"\nfile = \"l.csv\"\n[traffic]\n", {}, 0, folder.path());
  EXPECT_EQ(scenario::host_bits_per_second(setup.topology), 100'000'000'000);
}

TEST(Scenario, AFindingIsOneLine) {
  for (const std::string text :
       {"\"a\\nb\" = 1\n", "[\"x\\u001b[31m\"]\n", "title = \"a\\tb\"\nseed = \"\\r\"\n",
        "a = 1\n\"\\n\" = 2\n\"\\n\" = 3\n"}) {
    auto scenario = Scenario::parse(text, "s.toml", "", {});
    const std::string message =
        scenario ? scenario->build(0).error().message : scenario.error().message;
    EXPECT_TRUE(message.starts_with("s.toml:")) << message;
    for (const char c : message) EXPECT_GE(c, ' ') << message;
  }
}

}  // namespace
}  // namespace tulle::scenario
