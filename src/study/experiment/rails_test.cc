// Rails and planes that are networks of their own take the times of arithmetic.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

// InfiniBand's frames have 4,096 bytes of payload and 28 of headers and checks.
double payload_rate(double link_rate) { return link_rate / 8 * 4'096 / (4'096 + 28); }

report::Outcome collective(const std::string& topology, const std::string& servers,
                           const std::string& traffic) {
  return outcome_of(
      fmt::format("[topology]\nlink_delay = \"100ns\"\n{}[traffic]\npattern = "
                  "\"collective\"\n{}servers = {{ {} }}\n[fabric]\nkind = "
                  "\"infiniband\"\n",
                  topology, traffic, servers));
}

constexpr const char* rails_of_four =
    "servers = 2\nrails = 4\nservers_per_group = 2\nspines = 2\nlink_rate = \"400Gbps\"\n";
std::string rail_topology(const char* kind) {
  return fmt::format("kind = \"{}\"\n{}", kind, rails_of_four);
}
std::string servers_of_four(const char* scale_up_rate, const char* more = "") {
  return fmt::format("gpus = 4, adapters = 4, scale_up_rate = \"{}\", scale_up_latency = \"1us\"{}",
                     scale_up_rate, more);
}
constexpr const char* all_to_all =
    "collective = \"all-to-all\"\nbytes = \"64MiB\"\nalgorithm = \"direct\"\n";

// A ring keeps to its rails, so that it never needs a way between them.
TEST(RailOnly, ARingTakesAsLongAsWithSpinesForAllRails) {
  const std::string ring = "collective = \"all-reduce\"\nbytes = \"16MiB\"\nalgorithm = \"ring\"\n";
  const std::string servers = servers_of_four("3600Gbps");
  EXPECT_EQ(number(collective(rail_topology("rail-only"), servers, ring), "job_us"),
            number(collective(rail_topology("rail-optimised"), servers, ring), "job_us"));
}

// Each GPU has 8 MiB for each other one. Its adapter carries what all four GPUs of its server send
// to the GPU of its number in the other server.
TEST(RailOnly, AnAllToAllLoadsEachAdapterAsWithoutRelays) {
  const double network = 4 * 8.0 * (1 << 20) / payload_rate(400e9);
  const auto outcome =
      collective(rail_topology("rail-only"), servers_of_four("3600Gbps"), all_to_all);
  EXPECT_NEAR(number(outcome, "job_us") / (network * 1e6), 1, 0.02);
}

// A GPU sends 8 MiB to each of three GPUs of its server, and relays as much through each of them.
TEST(RailOnly, ASlowScaleUpNetworkHoldsUpRelays) {
  const double scale_up = 6 * 8.0 * (1 << 20) / (200e9 / 8);
  const auto outcome =
      collective(rail_topology("rail-only"), servers_of_four("200Gbps"), all_to_all);
  EXPECT_NEAR(number(outcome, "job_us") / (scale_up * 1e6), 1, 0.05);
}

// One message waits for the scale-up network, and then for the network: for all of it, or for a
// piece.
TEST(RailOnly, ThePiecesOfARelayFollowOneAnother) {
  Folder folder;
  folder.write("one.goal",
               "num_ranks 8\nrank 0 {\na: send 16777216b to 5 tag 1\n}\nrank 5 {\nb: recv "
               "16777216b from 0 tag 1\n}\n");
  const auto time = [&](const char* chunk) {
    const std::string servers = servers_of_four("800Gbps", chunk);
    return number(outcome_of(fmt::format("[topology]\nlink_delay = \"100ns\"\n{}[traffic]\npattern "
                                         "= \"trace\"\ntrace = \"one.goal\"\nservers = {{ {} }}\n"
                                         "[fabric]\nkind = \"infiniband\"\n",
                                         rail_topology("rail-only"), servers),
                             folder.path()),
                  "job_us") *
           1e-6;
  };
  const double bytes = 16 << 20;
  const double network = bytes / payload_rate(400e9), scale_up = bytes / (800e9 / 8);
  EXPECT_NEAR(time(", relay_chunk = \"16MiB\"") / (network + scale_up), 1, 0.01);
  EXPECT_NEAR(time(", relay_chunk = \"1MiB\"") / (network + scale_up / 16), 1, 0.01);
}

// Two GPUs prefill and two decode, each by itself. A cache of 16,384,000 bytes goes to the GPU of
// its own number or to the other one, over a relay. A piece of 512 KiB comes first there.
TEST(RailOnly, CachesOfServedRequestsTakeRelays) {
  Folder folder;
  folder.write("model.toml",
               "[model]\nlayers = 4\nhidden = 1024\nfeed_forward = 4096\nheads = 8\n"
               "key_value_heads = 8\n[gpu]\noperations_per_second = 1e14\n"
               "memory_bytes_per_second = 1e12\n[serve]\nrequests = 16\narrivals = \"fixed\"\n"
               "rate = 100\nprompt = 1000\noutput = 11\ntensor = 1\n");
  const auto outcome = outcome_of(
      "[topology]\nkind = \"rail-only\"\nservers = 2\nrails = 2\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[fabric]\nkind = \"infiniband\"\n[traffic]\npattern = \"serve\"\n"
      "serve = \"model.toml\"\nservers = { gpus = 2, adapters = 2, scale_up_rate = \"800Gbps\" }\n",
      folder.path());
  const double direct_us = 16'384'000 / payload_rate(400e9) * 1e6;
  const double relayed_us = direct_us + (512 << 10) / (800e9 / 8) * 1e6 + 1;
  EXPECT_GT(relayed_us, 1.015 * direct_us);
  EXPECT_GT(number(outcome, "cache_us.median"), direct_us);
  EXPECT_NEAR(number(outcome, "cache_us.p99") / relayed_us, 1, 0.005);
  EXPECT_LT(number(outcome, "ttft_us.p99") - number(outcome, "ttft_us.median"), 10);
}

// NCCL's relays are of use with spines between the rails, too: a message then stays on one leaf.
TEST(RailOnly, RelaysKeepMessagesOffTheSpines) {
  const auto frames_up = [](const char* across) {
    const auto outcome = collective(
        rail_topology("rail-optimised"),
        servers_of_four("3600Gbps", fmt::format(", across_rails = \"{}\"", across).c_str()),
        all_to_all);
    std::uint64_t frames = 0;
    for (std::size_t row = 0; row < outcome.links.rows.size(); ++row) {
      const auto& names = outcome.links.rows[row].names;
      if (names[2].starts_with("spine")) frames += count(outcome.links, row, "frames");
    }
    return frames;
  };
  EXPECT_GT(frames_up("network"), 0u);
  EXPECT_EQ(frames_up("scale-up"), 0u);
}

double message_time(const std::string& topology, const std::string& bytes,
                    const std::string& plane = "") {
  return number(outcome_of(fmt::format("[topology]\nhosts = 2\nlink_delay = \"100ns\"\n{}[traffic]"
                                       "\npattern = \"shift\"\nbytes = \"{}\"\n{}[fabric]\nkind = "
                                       "\"infiniband\"\n",
                                       topology, bytes, plane)),
                "end_us") *
         1e-6;
}

TEST(Planes, ASprayedMessageHasTheRateOfAllPlanes) {
  const double bytes = 64e6;
  const std::string planes = "planes = 4\nlink_rate = \"100Gbps\"\n";
  EXPECT_NEAR(message_time(planes, "64MB") / (bytes / payload_rate(400e9)), 1, 0.01);
  EXPECT_NEAR(message_time(planes, "64MB", "plane = \"flow\"\n") / (bytes / payload_rate(100e9)), 1,
              0.01);
}

// A message of one packet cannot be split, so that it has the time of one plane.
TEST(Planes, AShortMessageTakesOnePlane) {
  EXPECT_EQ(message_time("planes = 4\nlink_rate = \"100Gbps\"\n", "4096B"),
            message_time("link_rate = \"100Gbps\"\n", "4096B"));
}

TEST(Planes, AnEmptyNetworkHasASlowdownOfOne) {
  for (const char* plane : {"spray", "flow"}) {
    const auto outcome = outcome_of(
        fmt::format("[topology]\nhosts = 2\nplanes = 4\nlink_delay = \"100ns\"\n[traffic]\npattern "
                    "= \"incast\"\nreceiver "
                    "= 0\nbytes = \"1MB\"\nplane = \"{}\"\n[fabric]\nkind = \"infiniband\"\n",
                    plane));
    EXPECT_NEAR(number(outcome, "slowdown.max"), 1, 0.001) << plane;
    ASSERT_EQ(outcome.flows.size(), 1u) << "messages, and not their parts";
    EXPECT_EQ(outcome.flows[0].source, 1u);
    EXPECT_EQ(outcome.flows[0].bytes, 1'000'000u);
  }
}

// A ring's steps follow one another over planes as over one link of their rate together, less one
// link's delay of news from plane to plane, which counts as part of message_delay.
TEST(Planes, ACollectiveTakesAsLongAsOnOneLinkOfTheSameRate) {
  const std::string servers =
      "gpus = 1, adapters = 1, scale_up_rate = \"3600Gbps\", message_delay = \"2us\"";
  const std::string ring = "collective = \"all-reduce\"\nbytes = \"64MiB\"\nalgorithm = \"ring\"\n";
  const double one = number(
      collective("kind = \"single-switch\"\nhosts = 4\nlink_rate = \"400Gbps\"\n", servers, ring),
      "job_us");
  const double four =
      number(collective("kind = \"single-switch\"\nhosts = 4\nlink_rate = \"100Gbps\"\nplanes = "
                        "4\n",
                        servers, ring),
             "job_us");
  EXPECT_NEAR(four / one, 1, 0.01);
}

TEST(Planes, PayloadsArriveUndamaged) {
  for (const char* plane : {"spray", "flow"}) {
    const auto outcome = outcome_of(
        fmt::format("[topology]\nkind = \"leaf-spine\"\nplanes = 3\n[traffic]\npattern = "
                    "\"all-to-all\"\nbytes = \"50001B\"\npayload = \"bytes\"\nplane = \"{}\"\n",
                    plane));
    EXPECT_EQ(count(outcome, "bytes_verified"), 4u * 3 * 50'001) << plane;
    EXPECT_EQ(count(outcome, "finished"), 12u);
  }
}

}  // namespace
}  // namespace tulle::experiment
