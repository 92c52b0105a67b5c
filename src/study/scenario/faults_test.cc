// Tests the faults of a scenario, and how its fabric recovers from them.

#include <gtest/gtest.h>

#include "study/scenario/text_test.h"

namespace tulle::scenario {
namespace {

constexpr char two_leaves[] = R"([topology]
kind = "leaf-spine"
links_per_pair = 2
[traffic]
pattern = "permutation"
)";

Setup with_fault(const std::string& fault, const std::string& more = "") {
  return built(two_leaves + more + "[[fault]]\n" + fault);
}

TEST(Scenario, FaultsNameLinksByTheirEnds) {
  scenario::Setup setup =
      with_fault("link = [\"leaf 0\", \"spine 1\"]\nat = \"1us\"\nuntil = \"2us\"");
  ASSERT_EQ(setup.network.faults.outages.size(), 2u) << "both of them";
  for (const fabric::Outage& outage : setup.network.faults.outages) {
    const fabric::Link& link = setup.topology.links[outage.link];
    EXPECT_EQ(setup.topology.name(link.a) + ", " + setup.topology.name(link.b), "leaf 0, spine 1");
    EXPECT_EQ(outage.from, Time::microseconds(1));
    EXPECT_EQ(outage.until, Time::microseconds(2));
  }
  setup = with_fault("link = [\"spine 1\", \"leaf 0\"]\nparallel = 1");
  ASSERT_EQ(setup.network.faults.outages.size(), 1u);
  EXPECT_EQ(setup.network.faults.outages[0].from, Time::zero());
  EXPECT_TRUE(setup.network.faults.outages[0].until.is_never());
}

TEST(Scenario, FlapsAndRebootsAreOutages) {
  scenario::Setup setup = with_fault(
      "kind = \"link-flap\"\nlink = [\"host 0\", \"leaf 0\"]\nat = \"1us\"\ndown = \"2us\"\n"
      "period = \"10us\"\ntimes = 3");
  ASSERT_EQ(setup.network.faults.outages.size(), 3u);
  EXPECT_EQ(setup.network.faults.outages[2].from, Time::microseconds(21));
  EXPECT_EQ(setup.network.faults.outages[2].until, Time::microseconds(23));
  setup = with_fault("kind = \"switch-reboot\"\nswitch = \"leaf 1\"\nuntil = \"1ms\"");
  EXPECT_EQ(setup.network.faults.outages.size(), 6u)
      << "two hosts, two links to each of two spines";
}

TEST(Scenario, RecoveryIsTheFabrics) {
  const std::string link = "link = [\"leaf 0\", \"spine 1\"]";
  scenario::Setup setup = with_fault(link, "[recovery]\ndetection = \"3us\"\nrouting = \"4us\"\n");
  EXPECT_FALSE(setup.recovery.subnet_manager);
  EXPECT_EQ(setup.recovery.detection, Time::microseconds(3));
  EXPECT_EQ(setup.recovery.routing, Time::microseconds(4));
  setup = with_fault(link, "[fabric]\nkind = \"infiniband\"\n[recovery]\ntraps = false\n");
  EXPECT_TRUE(setup.recovery.subnet_manager);
  EXPECT_FALSE(setup.recovery.traps);
}

TEST(ScenarioErrors, Faults) {
  const auto said_of = [](const std::string& fault, const std::string& more = "") {
    return wrong(two_leaves + more + "[[fault]]\n" + fault);
  };
  const std::string link = "link = [\"leaf 0\", \"spine 1\"]\n";
  const std::pair<std::string, std::string> cases[] = {
      {"kind = \"fire\"", "s.toml:7: fault.kind: must be \"link-down\""},
      {"", "s.toml:6: fault.link: is needed, the two ends"},
      {"link = [\"leaf 0\"]", "s.toml:7: fault.link: is needed, the two ends"},
      {"link = \"leaf 0\"", "s.toml:7: fault.link: must be a list of texts"},
      {"link = [\"leaf 0\", \"leaf 7\"]", "s.toml:7: fault.link: there is no \"leaf 7\" here"},
      {"link = [\"leaf 0\", \"leaf 1\"]", "s.toml:7: fault.link: there is none from leaf 0"},
      {link + "parallel = 2", "s.toml:8: fault.parallel: there are 2 such links"},
      {link + "at = \"2us\"\nuntil = \"2us\"", "s.toml:9: fault.until: must be later than at"},
      {link + "at = 2", "s.toml:8: fault.at: must be a time"},
      {link + "rate = 1", "s.toml:8: fault.rate: is not a known key"},
      {"kind = \"link-flap\"\n" + link, "s.toml:6: fault.down: is needed"},
      {"kind = \"link-flap\"\ndown = \"1us\"\nperiod = \"1us\"\n" + link,
       "s.toml:9: fault.period: must be longer than down"},
      {"kind = \"link-flap\"\nat = \"9000000s\"\ndown = \"1us\"\nperiod = \"2us\"\n" + link,
       "s.toml:6: fault.times: are so many that virtual time ends before"},
      {link + "until = \"9000001s\"", "s.toml:8: fault.until: must be at most"},
      {"kind = \"bit-errors\"\n" + link, "s.toml:6: fault.rate: is needed"},
      {"kind = \"bit-errors\"\nrate = 1\n" + link, "s.toml:8: fault.rate: must be a number"},
      {"kind = \"slow-host\"\nrate = \"1Gbps\"", "s.toml:6: fault.host: is needed"},
      {"kind = \"slow-host\"\nhost = \"leaf 0\"\nrate = \"1Gbps\"",
       "s.toml:8: fault.host: must be the name of a host"},
      {"kind = \"slow-host\"\nhost = \"host 0\"", "s.toml:6: fault.rate: is needed"},
      {"kind = \"slow-host\"\nhost = \"host 0\"\nrate = \"1Gbps\"\nbuffer = \"1KB\"",
       "s.toml:10: fault.buffer: must be from"},
      {"kind = \"stuck-host\"\nhost = \"host 0\"", "s.toml:6: fault: a host is stuck for ever"},
      {"kind = \"switch-reboot\"\nswitch = \"host 0\"", "s.toml:8: fault.switch: must be the name"},
      {"kind = \"bit-errors\"\nrate = 0\n" + link + "[[fault]]\nkind = \"bit-errors\"\nrate = 0\n" +
           link,
       "s.toml:13: fault.link: has such a fault at this time already"},
  };
  for (const auto& [fault, expected] : cases) {
    EXPECT_TRUE(contains(said_of(fault), expected)) << said_of(fault) << "\n" << fault;
  }
  EXPECT_TRUE(contains(said_of(link, "[recovery]\ntraps = true\n"),
                       "s.toml:7: recovery.traps: is not a known key"));
  EXPECT_TRUE(contains(
      said_of(link, "[fabric]\nkind = \"infiniband\"\n[recovery]\nsweep_interval = \"0ns\"\n"),
      "s.toml:9: recovery.sweep_interval: must be more than zero"));
}

// Four leaves, two spines. Without the links from leaf 0 to spine 0 and from leaf 1 to spine 1, the
// shortest paths between these two leaves go down to another leaf and up again.
TEST(ScenarioErrors, RoutesAroundFaultsThatCanLockUp) {
  const std::string text = R"([topology]
kind = "leaf-spine"
leaves = 4
[traffic]
pattern = "permutation"
bytes = "10KB"
[[fault]]
kind = "link-down"
link = ["leaf 0", "spine 0"]
at = "10us"
[[fault]]
kind = "link-down"
link = ["leaf 1", "spine 1"]
at = "20us"
until = "100ms"
)";
  const std::string said = wrong(text);
  EXPECT_TRUE(contains(said,
                       "routing.kind: without the link from leaf 0 to spine 0 and 1 more the "
                       "new routes can lock up"))
      << said;
  EXPECT_TRUE(contains(said, "take \"up-down\", or allow_deadlock = true")) << said;
  EXPECT_TRUE(
      contains(wrong(text + "[routing]\nkind = \"shortest\"\n"), "s.toml:17: routing.kind"));
  for (const char* way_out : {"routing.kind = \"up-down\"", "routing.allow_deadlock = true",
                              "fabric.flow_control = \"none\"", "fabric.kind = \"infiniband\""}) {
    EXPECT_EQ(wrong(text, {way_out}), "") << way_out;
  }
  // With one link down, a shortest path by the other spine is left. A fault that is not noticed
  // causes no new routes.
  EXPECT_EQ(wrong(text, {"fault = [{ kind = \"link-down\", link = [\"leaf 0\", \"spine 0\"] }]"}),
            "");
  EXPECT_EQ(wrong(text, {"recovery.detection = \"200ms\""}), "");
}

}  // namespace
}  // namespace tulle::scenario
